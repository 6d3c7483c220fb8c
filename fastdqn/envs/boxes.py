"""Environments that Gymnasium knows by an id and that show vectors: with discrete actions, say CartPole-v1, or with
continuous ones, say Pendulum-v1.
"""

from __future__ import annotations

import warnings
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from fastdqn.envs.games import find_modules_here, is_own_id
from fastdqn.envs.own import OwnEnv, check_actions, kind_of, plain_said_of, said_of
from fastdqn.errors import RunError, UserError

_EXTRAS = {"mujoco": "mujoco", "pygame": "watch", "box2d": "box2d"}
"""Of fastdqn, by what an environment says that it lacks."""


class BoxEnv(OwnEnv):
    """A registered environment: its actions from 0 to A - 1, its vectors (D,) as float32.

    Args:
        name: the id.
        frame_limit: steps that a game may have, beside a limit of its own.
        drawn: whether somebody watches: some environments take much longer where they could be drawn.

    Raises:
        UserError: a package that it needs is missing, or it cannot be learnt from here.
    """

    def __init__(self, name: str, frame_limit: int, drawn: bool = False) -> None:
        self._drawn = drawn
        super().__init__(name, frame_limit)

    def render(self) -> Any:
        """Return what it looks like now, (H, W, 3) uint8 RGB.

        Raises:
            UserError: a package that it needs for that is missing, or it draws nothing.
            RunError: it failed.
        """
        try:
            picture: Any = self.env.render()
        except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
            missing = getattr(error, "name", None)
            way = f"; pip install {missing.partition('.')[0]}" if missing else _extra_for(error)
            raise UserError(f"{self.name} cannot be drawn: {plain_said_of(error)}{way}.") from error
        except (Exception, SystemExit) as error:
            if "mujoco" in type(self.env.unwrapped).__module__:
                raise RunError(
                    f"{self.name} cannot be drawn: {said_of(error)}; on a machine without a display set MUJOCO_GL=egl, "
                    "or MUJOCO_GL=osmesa where there is no GPU."
                ) from error
            raise self._failure("render", error) from error
        if not (isinstance(picture, np.ndarray) and picture.shape[2:] in ((3,), (4,)) and picture.dtype == np.uint8):
            raise UserError(f"{self.name} draws no pictures.")
        return picture[..., :3]  # pyright: ignore[reportUnknownVariableType] - without what may say how opaque it is

    def _made(self) -> gymnasium.Env[Any, Any]:
        own = is_own_id(self.name)
        if own:
            find_modules_here()
        try:
            known = self.name if own else gymnasium.spec(self.name)
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message=".*render_mode.*")  # who watches one without is told so
                try:
                    if self._drawn:
                        return gymnasium.make(known, render_mode="rgb_array", disable_env_checker=True)
                except gymnasium.error.DependencyNotInstalled:
                    raise
                except Exception:  # it may be the drawing that it refuses
                    pass
                return gymnasium.make(known, disable_env_checker=True)
        except gymnasium.error.DependencyNotInstalled as error:
            said = f"{plain_said_of(error)}{_extra_for(error)}"
            raise UserError(f"{self.name} needs a package that is missing: {said}.") from error
        except (Exception, SystemExit) as error:  # whatever an environment's own constructor raises
            raise UserError(f"The environment {self.name} cannot be made: {said_of(error)}.") from error

    def _check_spaces(self, actions: Any, shown: Any) -> None:
        self._check_actions(actions)
        if not isinstance(shown, Box) or len(shown.shape) != 1 or "float" not in str(cast(Any, shown).dtype):
            raise UserError(
                f"{self.name} shows {kind_of(shown)}, but of registered environments an agent here learns from vectors "
                "alone: a Box of floats (D,); to learn from pictures, make it by module:function."
            )

    def _check_actions(self, actions: Any) -> None:
        check_actions(self.name, actions)

    def _seen(self, shown: Any) -> Any:
        vector = np.array(shown, np.float32)
        if vector.shape != self.observation_space.shape:
            raise ValueError(f"it shows {vector.shape}, but its observation_space says {self.observation_space.shape}")
        return vector

    def _check_numbers(self, seen: Any) -> None:
        if not np.isfinite(seen).all():
            raise ValueError("what it shows is not finite")


class ControlEnv(BoxEnv):
    """A registered environment with continuous actions: an agent's are (A,) from -1 to 1, and are scaled here, and
    nowhere else, to what the environment takes. What is beyond -1 or 1 is clipped.

    Args:
        name: the id.
        frame_limit: steps that a game may have, beside a limit of its own.
        drawn: as of `BoxEnv`.

    Raises:
        UserError: a package that it needs is missing, or it cannot be learnt from here.
    """

    def _take(self, actions: Any) -> None:
        self._low, self._high = actions.low, actions.high
        self._middle = (np.asarray(actions.high, np.float64) + actions.low) / 2.0
        self._half = (np.asarray(actions.high, np.float64) - actions.low) / 2.0
        self._first, self._count = 0, len(actions.low)
        self.action_space = Box(-1.0, 1.0, actions.shape, np.float32)

    def _given(self, action: Any) -> Any:
        scaled = (self._middle + self._half * action).astype(self._low.dtype)
        return np.clip(scaled, self._low, self._high)

    def _check_actions(self, actions: Any) -> None:
        numbered = isinstance(actions, Discrete)
        if not isinstance(actions, Box) or len(actions.shape) != 1 or "float" not in str(cast(Any, actions).dtype):
            raise UserError(
                f"{self.name} has the action space {kind_of(actions)}, but an agent here acts with a vector of "
                f"numbers: a Box of floats (A,){'; actor-critics choose one of several' if numbered else ''}."
            )
        box = cast(Any, actions)
        low, high = np.asarray(box.low, np.float64), np.asarray(box.high, np.float64)
        if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
            raise UserError(
                f"{self.name} has actions without finite bounds, the lower below the upper, which an agent's, from -1 "
                "to 1, could be scaled to."
            )


class EitherEnv(ControlEnv):
    """A registered environment with numbered or with continuous actions, whichever it has."""

    def _take(self, actions: Any) -> None:
        (BoxEnv if self._numbered else ControlEnv)._take(self, actions)

    def _given(self, action: Any) -> Any:
        return (BoxEnv if self._numbered else ControlEnv)._given(self, action)

    def _check_actions(self, actions: Any) -> None:
        self._numbered = not isinstance(actions, Box)
        (BoxEnv if self._numbered else ControlEnv)._check_actions(self, actions)


def _extra_for(error: Exception) -> str:
    """Return what is said of fastdqn's extra that has what is missing; nothing if none has it."""
    extra = next((_EXTRAS[word] for word in _EXTRAS if word in str(error).lower()), None)
    return f"; fastdqn's extra has it: pip install 'fastdqn[{extra}]'" if extra else ""
