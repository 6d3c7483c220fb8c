"""Environments of one's own: loaded by name, checked, and presented as what the wrappers expect.

They are played through `reset` and `step` alone, so that whatever the user has wrapped them in counts. What is wrong
with them is one sentence: UserError for what they are, RunError for what their own code raises.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sysconfig
import traceback
import weakref
from collections.abc import Generator
from pathlib import Path
from typing import Any, cast

import cv2
import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from fastdqn import process
from fastdqn.envs.frames import FrameStore
from fastdqn.envs.games import find_modules_here
from fastdqn.errors import RunError, UserError
from fastdqn.types import Frame

SMALLEST = 8
"""Pixels that a picture must have each way."""
DIMMEST = 64
"""Of 255, what the brightest value of a picture must be able to be: a frame is rounded to whole numbers of these."""
LARGEST = float(np.finfo(np.float32).max)
"""Reward."""
WITH_IDS = "environments with an id that Gymnasium knows (module:Id-v0 for your own)"
"""Where agents learn from vectors."""
_LIBRARIES = (
    *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")),
    str(Path(__file__).resolve().parents[1]),
    "<",  # what has no file
)

_played: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
"""Every environment that was made here and is still there, by its id."""

Picture = NDArray[np.uint8]  # (H, W), (H, W, 1) or (H, W, 3)
Info = dict[str, Any]


class OwnEnv(gymnasium.Env[Any, Any]):
    """An environment of the user's: its actions from 0 to A - 1, its pictures, one frame for each step.

    Args:
        name: module:function.
        frame_limit: frames that a game may have.

    Raises:
        UserError: it cannot be loaded, or cannot be learnt from here.
        RunError: it cannot be made.
    """

    def __init__(self, name: str, frame_limit: int) -> None:
        self.name = name
        self.env = self._made()
        inner = self.env.unwrapped
        if _played.get(id(inner)) is inner:
            raise UserError(f"{name} returned an environment that it had returned before; each game needs a new one.")
        _played[id(inner)] = inner
        self._closed = weakref.finalize(self, _close, self.env)  # at the end of the process at the latest
        process.close_at_end(self._closed)
        self.metadata = self.env.metadata
        actions: Any = getattr(self.env, "action_space", None)
        shown: Any = getattr(self.env, "observation_space", None)
        self._check_spaces(actions, shown)
        self._take(actions)
        self.observation_space = shown
        self._limit = frame_limit
        self._frames = 0
        self.picture: Picture = np.zeros(shown.shape, np.uint8)
        """The newest one, where pictures are shown."""
        self.meanings = self._meanings()
        """Names of the actions (A), where the environment has them."""

    def get_action_meanings(self) -> list[str]:
        """Return a name for each action."""
        return self.meanings or [f"action {self._first + i}" for i in range(self._count)]

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        """Raises RunError for whatever the environment raises, or if it shows something else than it says."""
        super().reset(seed=seed)  # the number of no-ops is drawn from this one's np_random
        self._frames = 0
        try:
            shown, info = self.env.reset(seed=seed, options=options)
            seen = self._seen(shown)
            self._check_numbers(seen)
            return seen, info
        except (Exception, SystemExit) as error:
            raise self._failure("reset", error) from error

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        """Raises RunError for whatever the environment raises, or if it shows something else than it says."""
        self._frames += 1
        try:
            given = self._given(action)
            shown, said, terminated, truncated, info = self.env.step(given)
            seen, reward = self._seen(shown), _number(said)
            # of actions that are no numbers the agent is to blame, whose run says so when it looks at its weights
            if np.isfinite(given).all():
                if not abs(reward) <= LARGEST:
                    raise ValueError(f"its reward is {reward}")
                self._check_numbers(seen)
            truncated = bool(truncated) or self._frames >= self._limit
            return seen, reward, bool(terminated), truncated, info
        except (Exception, SystemExit) as error:
            raise self._failure("step", error) from error

    def close(self) -> None:
        """Close it, once; what it raises then is dropped."""
        self._closed()

    def _made(self) -> gymnasium.Env[Any, Any]:
        factory = _loaded(self.name)
        try:
            with _folder_kept():
                env = factory()
        except (Exception, SystemExit) as error:
            raise self._failure("its constructor", error) from error
        if not isinstance(env, gymnasium.Env):
            raise UserError(f"{self.name} must return a gymnasium.Env, not {type(env).__name__}.")
        return cast("gymnasium.Env[Any, Any]", env)

    def _take(self, actions: Any) -> None:
        """Present these actions as those of an agent."""
        self._first, self._count = int(actions.start), int(actions.n)
        self.action_space: gymnasium.Space[Any] = Discrete(self._count)

    def _given(self, action: Any) -> Any:
        """Return what the environment calls an agent's action."""
        return self._first + int(action)

    def _check_spaces(self, actions: Any, shown: Any) -> None:
        check_actions(self.name, actions)
        shape: tuple[int, ...] = (shown.shape or ()) if isinstance(shown, Box) else ()
        fits = len(shape) in (2, 3) and shape[2:] in ((), (1,), (3,)) and min(shape[:2]) >= SMALLEST
        if not fits or shown.dtype != np.uint8:
            vectors = f" Actor-critics learn from vectors, in {WITH_IDS}."
            raise UserError(
                f"{self.name} shows {kind_of(shown)}, but an agent here learns from pictures: a Box of uint8, (H, W, "
                f"3) for RGB, (H, W) or (H, W, 1) for gray, at least {SMALLEST}x{SMALLEST}."
                f"{vectors if len(shape) == 1 else ''}"
            )
        if (brightest := int(shown.high.max())) < DIMMEST:
            raise UserError(
                f"{self.name} shows pictures of 0 to {brightest}, of which little would be seen: 255 is bright; let it "
                f"multiply them by {255 // max(1, brightest)}."
            )

    def _check_numbers(self, seen: Any) -> None:
        """Raise ValueError if what it shows is not finite, which pictures always are."""

    def _seen(self, shown: Any) -> Any:
        """Return a copy of what it shows: an environment may draw into the same array again."""
        picture = np.array(shown, order="C")
        if picture.dtype != np.uint8 or picture.shape != self.observation_space.shape:
            said = f"uint8 {self.observation_space.shape}"
            raise ValueError(f"it shows {picture.dtype} {picture.shape}, but its observation_space says {said}")
        self.picture = picture
        return picture

    def _meanings(self) -> list[str] | None:
        """Return the names of the actions, if there is one for each."""
        if not self.env.has_wrapper_attr("get_action_meanings"):
            return None
        try:
            names = [str(name) for name in self.env.get_wrapper_attr("get_action_meanings")()]
        except (Exception, SystemExit) as error:
            raise self._failure("get_action_meanings", error) from error
        return names if len(names) == self._count else None

    def _failure(self, during: str, error: BaseException) -> RunError:
        return RunError(f"The environment {self.name} failed in {during}: {said_of(error)}.")


class WholePicture(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Turns a picture into gray, if it is RGB, and squeezes the whole of it into a square frame, by area.

    Takes uint8 (H, W), (H, W, 1) or (H, W, 3), returns uint8 (1, side, side).
    """

    def __init__(self, env: gymnasium.Env[Any, Any], side: int = 84) -> None:
        super().__init__(env)
        self.observation_space = Box(0, 255, (1, side, side), np.uint8)
        self._size = (side, side)
        self._store = FrameStore((1, side, side))

    def observation(self, observation: Picture) -> Frame:
        gray = cv2.cvtColor(observation, cv2.COLOR_RGB2GRAY) if observation.shape[2:] == (3,) else observation
        frame = self._store.new()
        cv2.resize(gray, self._size, dst=frame[0], interpolation=cv2.INTER_AREA)
        return frame


def _number(reward: Any) -> float:
    """Return a reward, which may be an array of one number."""
    if isinstance(reward, float | int):  # as nearly all are
        return float(reward)
    numbers = np.asarray(reward)
    if numbers.size != 1:
        raise ValueError(f"its reward has the shape {numbers.shape}")
    return float(numbers.item())


def _close(env: gymnasium.Env[Any, Any]) -> None:
    with contextlib.suppress(Exception, SystemExit):
        env.close()


@contextlib.contextmanager
def _folder_kept() -> Generator[None]:
    """Come back to the current folder, where runs are written, if the user's code leaves it, as games often do."""
    here = Path.cwd()
    try:
        yield
    finally:
        os.chdir(here)


def _loaded(path: str) -> Any:
    """Return the function or class that `path`, module:function, names; modules of the current folder are found.

    Raises:
        UserError: there is none, or its module cannot be imported.
    """
    module, _, attribute = path.partition(":")
    if module.endswith(".py"):
        raise UserError(
            f"The environment {path!r} names a file; name its module as in an import, {Path(module).stem}:{attribute}, "
            "from its folder."
        )
    find_modules_here()
    try:
        with _folder_kept():
            factory: Any = getattr(importlib.import_module(module), attribute)
    except (Exception, SystemExit) as error:  # a module of the user's own may raise anything
        raise UserError(f"The environment {path!r} cannot be loaded: {said_of(error)}.") from error
    if not callable(factory):
        raise UserError(f"The environment {path!r} cannot be loaded: {attribute} is not a function or class.")
    return factory


def check_actions(name: str, actions: Any) -> None:
    """Raise UserError unless an agent here can choose among these actions."""
    if not isinstance(actions, Discrete):
        vectors = f"; soft actor-critic and PPO act with vectors of numbers, in {WITH_IDS}"
        other = vectors if isinstance(actions, Box) else ""
        raise UserError(
            f"{name} has the action space {kind_of(actions)}, but an agent here chooses one action of several "
            f"(gymnasium.spaces.Discrete){other}."
        )


def kind_of(space: Any) -> str:
    """Return what kind of space it is, in a few words."""
    if isinstance(space, Box):
        return f"Box of {space.dtype} {space.shape}"
    return "None" if space is None else type(space).__name__


def plain_said_of(error: BaseException) -> str:
    """Return what an error says, on one line."""
    return " ".join(str(error).split()).rstrip(".")


def said_of(error: BaseException) -> str:
    """Return what an error says, on one line, and where in the user's own code it arose."""
    said = plain_said_of(error)
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_LIBRARIES)]
    place = f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""
    return f"{type(error).__name__}{': ' if said else ''}{said}{place}"
