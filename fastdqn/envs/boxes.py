"""Environments that Gymnasium knows by an id and that show vectors, say CartPole-v1."""

from __future__ import annotations

from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from fastdqn.envs.own import OwnEnv, check_actions, kind_of, said_of
from fastdqn.errors import UserError


class BoxEnv(OwnEnv):
    """A registered environment: its actions from 0 to A - 1, its vectors (D,) as float32.

    Args:
        name: the id.
        frame_limit: steps that a game may have, beside a limit of its own.

    Raises:
        UserError: a package that it needs is missing, or it cannot be learnt from here.
    """

    def render(self) -> Any:
        """Return what it looks like now, (H, W, 3) uint8 RGB.

        Raises:
            UserError: a package that it needs for that is missing, or it draws nothing.
            RunError: it failed.
        """
        try:
            picture: Any = self.env.render()
        except gymnasium.error.DependencyNotInstalled as error:
            raise UserError(f"{self.name} cannot be drawn: {said_of(error)}.") from error
        except Exception as error:
            raise self._failure("render", error) from error
        if not (isinstance(picture, np.ndarray) and picture.ndim == 3 and picture.dtype == np.uint8):
            raise UserError(f"{self.name} draws no pictures.")
        return picture  # pyright: ignore[reportUnknownVariableType]

    def _made(self) -> gymnasium.Env[Any, Any]:
        try:
            known = gymnasium.spec(self.name)
            return gymnasium.make(known, render_mode="rgb_array", disable_env_checker=True)
        except Exception as error:  # whatever an environment's own constructor raises
            raise UserError(f"The environment {self.name} cannot be made: {said_of(error)}.") from error

    def _check_spaces(self, actions: Any, shown: Any) -> None:
        check_actions(self.name, actions)
        if not isinstance(shown, Box) or len(shown.shape) != 1 or "float" not in str(cast(Any, shown).dtype):
            raise UserError(
                f"{self.name} shows {kind_of(shown)}, but of registered environments an agent here learns from vectors "
                "alone: a Box of floats (D,)."
            )

    def _seen(self, shown: Any) -> Any:
        vector = np.array(shown, np.float32)
        if vector.shape != self.observation_space.shape:
            raise ValueError(f"it shows {vector.shape}, but its observation_space says {self.observation_space.shape}")
        return vector
