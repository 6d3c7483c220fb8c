"""The OpenCV wrappers, faster than the classic ones: the whole stack in one environment, uint8 from end to end.

What plays is the same as in `classic.py` (a test plays both side by side). What is faster:

* the screen is read from the emulator for the last two frames of a skip only, into two fixed buffers;
* `cv2.cvtColor` and `cv2.resize` work on uint8 and write straight into the frame that is kept;
* one Python call for each env step instead of nine nested ones.

What is shown differs in three ways: the full screen squeezed to 84x84 instead of 84x110 cropped, unless `crop` asks for
that; OpenCV's rounding; and where a skip is cut short by a lost life or the end of a game, the last screen alone
instead of the maximum of two. Nothing is learnt from that frame, its discount is 0. A truncated skip does show the
maximum.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol

import cv2
import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from fastdqn.envs.classic import FrameEnv, Info, waits_for_fire
from fastdqn.envs.frames import FrameStore, shown_rows
from fastdqn.options.game import GameOptions
from fastdqn.types import EpisodeEnd, Frame, LazyFrames


class Emulator(Protocol):
    """The part of ale_py.ALEInterface that is used."""

    def act(self, action: Any) -> float:
        """Play one frame, return its reward."""
        ...

    def game_over(self, *, with_truncation: bool = True) -> bool: ...

    def game_truncated(self) -> bool: ...

    def lives(self) -> int: ...

    def getScreenRGB(self, buffer: Frame) -> Any: ...  # noqa: N802 - ale_py's name

    def getMinimalActionSet(self) -> list[Any]: ...  # noqa: N802 - ale_py's name

    def getLegalActionSet(self) -> list[Any]: ...  # noqa: N802 - ale_py's name


class OpenCVAtari(gymnasium.Env[Any, Any]):
    """An emulator behind the 2017 protocol: `reset` and `step` return LazyFrames (frame_stack, side, side).

    Args:
        env: the bare environment, one frame for each step, with the emulator as its attribute `ale`.
        game: how it is presented.
        side: of the square frames.
    """

    def __init__(self, env: FrameEnv, game: GameOptions, side: int = 84) -> None:
        bare: Any = env.unwrapped
        emulator: Emulator = bare.ale
        self.env = env
        self.ale = emulator
        self.game = game
        self._side = side
        self._actions = list(emulator.getLegalActionSet() if game.full_action_set else emulator.getMinimalActionSet())
        self._fire = game.fire_reset and waits_for_fire(env)
        self.action_space = Discrete(len(self._actions))
        self.observation_space = Box(0, 255, (game.frame_stack, side, side), np.uint8)
        shape = env.observation_space.shape or (210, 160, 3)
        self._older = np.zeros(shape, np.uint8)  # the screen one frame before `_newest`
        self._newest = np.zeros(shape, np.uint8)
        self._gray = np.zeros(shape[:2], np.uint8)
        self._has_older = False
        height, self._rows = shown_rows(side, game.crop)
        self._squeezed = np.empty((height, side), np.uint8)  # what rows are kept of
        self._store = FrameStore((1, side, side))
        self._frames: deque[Frame] = deque(maxlen=game.frame_stack)
        self._lives = 0
        self._game_over = True
        self._done = self._terminated = self._truncated = False
        self._score = 0.0
        self._game_frames = 0
        self._finished: list[EpisodeEnd] = []

    def reset(
        self,
        *,
        seed: int | None = None,
        options: Info | None = None,  # noqa: ARG002 - Gymnasium's interface
    ) -> tuple[LazyFrames, Info]:
        self._noop_reset(seed)
        if self._fire:
            for action in (1, 2):
                self._skip(action)
                if self._done:
                    self._noop_reset(None)
        self._frames.extend([self._frame()] * self.game.frame_stack)
        return LazyFrames(tuple(self._frames)), {"lives": self._lives}

    def step(self, action: int) -> tuple[LazyFrames, float, bool, bool, Info]:
        if not 0 <= action < len(self._actions):
            raise ValueError(f"action {action} is not in 0..{len(self._actions) - 1}")
        reward = self._skip(action)
        if self.game.clip_rewards:
            reward = float((reward > 0) - (reward < 0))
        self._frames.append(self._frame())
        return LazyFrames(tuple(self._frames)), reward, self._terminated, self._truncated, {"lives": self._lives}

    def pop_finished(self) -> tuple[EpisodeEnd, ...]:
        """Return the games that have finished since the last call."""
        if not self._finished:
            return ()
        finished, self._finished = tuple(self._finished), []
        return finished

    def close(self) -> None:
        self.env.close()

    def _tick(self, action: int) -> float:
        """Play one frame; afterwards `_done` says whether the learning episode is over."""
        reward = self.ale.act(self._actions[action])
        self._score += reward
        self._game_frames += 1
        lives = self.ale.lives()
        self._terminated = self.game.episodic_life and 0 < lives < self._lives
        self._lives = lives
        if self.ale.game_over():  # terminated or truncated
            self._game_over = True
            over = self.ale.game_over(with_truncation=False)
            self._terminated = self._terminated or over
            self._truncated = self.ale.game_truncated()
            self._finished.append(EpisodeEnd(self._score, self._game_frames, self._truncated and not over))
            self._score, self._game_frames = 0.0, 0
        self._done = self._terminated or self._truncated
        return reward

    def _skip(self, action: int) -> float:
        """Play one action for frame_skip frames, reading the screens that `_frame` will need."""
        skip = self.game.frame_skip
        near_limit = self._game_frames + skip >= self.game.frame_limit  # may be truncated before its last frame
        total = 0.0
        self._has_older = True  # with skip 1 the older screen is the one of the env step before
        for i in range(skip):
            total += self._tick(action)
            if i >= skip - 2 or near_limit:
                self._older, self._newest = self._newest, self._older
                self.ale.getScreenRGB(self._newest)
            if self._done:
                if not near_limit and i < skip - 1:
                    self.ale.getScreenRGB(self._newest)
                    self._has_older = False
                break
        return total

    def _frame(self) -> Frame:
        """Return the frame to keep, uint8 (1, side, side), of the last two screens."""
        screen = self._newest
        if self._has_older:
            screen = np.maximum(self._older, screen, out=self._older)
        cv2.cvtColor(screen, cv2.COLOR_RGB2GRAY, dst=self._gray)
        frame = self._store.new()
        if not self.game.crop:
            cv2.resize(self._gray, (self._side, self._side), dst=frame[0], interpolation=cv2.INTER_AREA)
            return frame
        cv2.resize(self._gray, self._squeezed.shape[::-1], dst=self._squeezed, interpolation=cv2.INTER_AREA)
        frame[0] = self._squeezed[self._rows]
        return frame

    def _noop_reset(self, seed: int | None) -> None:
        self._life_reset(seed)
        if self.game.noop_max > 0:
            for _ in range(int(self.env.unwrapped.np_random.integers(1, self.game.noop_max + 1))):
                self._tick(0)
                if self._done:
                    self._life_reset(None)
        self.ale.getScreenRGB(self._newest)
        self._has_older = False

    def _life_reset(self, seed: int | None) -> None:
        """Start a new game if the last one is over; after a lost life go on with a no-op frame."""
        if self._game_over or seed is not None or not self.game.episodic_life:
            self._new_game(seed)
        else:
            self._tick(0)
            if self._game_over:
                self._new_game(None)
        self._lives = self.ale.lives()
        self._done = self._terminated = self._truncated = self._game_over = False

    def _new_game(self, seed: int | None) -> None:
        self.env.reset(seed=seed)
        self._score, self._game_frames = 0.0, 0
