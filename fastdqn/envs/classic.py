"""The classic wrappers of 2017, one step each: easy to read, and the reference for faster ones.

In their order, from the emulator outwards: ScoreKeeper, EpisodicLife, NoopReset, MaxAndSkip, FireReset,
ProcessFrame84, ChannelFirst, FrameStack, SignReward. After OpenAI's baselines (`atari_wrappers.py`, 2017), in
Gymnasium's interface, with two repairs: games that end inside a reset are reset again and their scores kept.
"""

from __future__ import annotations

from collections import deque
from typing import Any, SupportsFloat

import cv2
import gymnasium
import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from fastdqn.envs.frames import FrameStore, playing_area
from fastdqn.types import EpisodeEnd, Frame, LazyFrames

Info = dict[str, Any]
FrameEnv = gymnasium.Env[Any, Any]
Step = tuple[Any, SupportsFloat, bool, bool, Info]


class ScoreKeeper(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Counts raw rewards and frames of whole games, whatever the wrappers above it do with lives and signs."""

    def __init__(self, env: FrameEnv) -> None:
        super().__init__(env)
        self._score = 0.0
        self._frames = 0
        self._finished: list[EpisodeEnd] = []

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        self._score, self._frames = 0.0, 0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> Step:
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._score += float(reward)
        self._frames += 1
        if terminated or truncated:
            self._finished.append(EpisodeEnd(self._score, self._frames, truncated and not terminated))
            self._score, self._frames = 0.0, 0
        return obs, reward, terminated, truncated, info

    def pop_finished(self) -> tuple[EpisodeEnd, ...]:
        """Return the games that have finished since the last call."""
        if not self._finished:
            return ()
        finished, self._finished = tuple(self._finished), []
        return finished


class EpisodicLife(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Reports a lost life as the end of an episode, and resets the game only when it is really over.

    After a lost life `reset` plays one no-op frame in the running game instead (trap: the emulator's own
    episodic-life switch would start a new game).
    """

    def __init__(self, env: FrameEnv) -> None:
        super().__init__(env)
        self._lives = 0
        self._game_over = True

    def step(self, action: Any) -> Step:
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._game_over = terminated or truncated
        lives = _lives(info)
        if 0 < lives < self._lives:
            terminated = True
        self._lives = lives
        return obs, reward, terminated, truncated, info

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        if self._game_over or seed is not None:
            obs, info = self.env.reset(seed=seed, options=options)
        else:
            obs, _, terminated, truncated, info = self.env.step(0)
            if terminated or truncated:
                obs, info = self.env.reset(options=options)
        self._game_over = False
        self._lives = _lives(info)
        return obs, info


class NoopReset(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Plays 1 to `noop_max` no-op frames after each reset (Mnih et al. 2015); none with `noop_max` = 0."""

    def __init__(self, env: FrameEnv, noop_max: int = 30) -> None:
        super().__init__(env)
        self.noop_max = noop_max

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        obs, info = self.env.reset(seed=seed, options=options)
        if self.noop_max > 0:
            for _ in range(int(self.unwrapped.np_random.integers(1, self.noop_max + 1))):
                obs, _, terminated, truncated, info = self.env.step(0)
                if terminated or truncated:
                    obs, info = self.env.reset()
        return obs, info


class MaxAndSkip(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Repeats an action for `skip` frames, sums the rewards, shows the maximum of the last two frames."""

    def __init__(self, env: FrameEnv, skip: int = 4) -> None:
        super().__init__(env)
        self._skip = skip
        self._frames: deque[NDArray[Any]] = deque(maxlen=2)

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        obs, info = self.env.reset(seed=seed, options=options)
        self._frames.clear()
        self._frames.append(obs)
        return obs, info

    def step(self, action: Any) -> Step:
        total = 0.0
        terminated = truncated = False
        info: Info = {}
        for _ in range(self._skip):
            obs, reward, terminated, truncated, info = self.env.step(action)
            self._frames.append(obs)
            total += float(reward)
            if terminated or truncated:
                break
        return np.max(np.stack(self._frames), axis=0), total, terminated, truncated, info


class FireReset(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Presses action 1 (FIRE), then action 2, after each reset, in games that wait for it."""

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        obs, info = self.env.reset(seed=seed, options=options)
        for action in (1, 2):
            obs, _, terminated, truncated, info = self.env.step(action)
            if terminated or truncated:
                obs, info = self.env.reset()
        return obs, info


class ProcessFrame84(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Turns an RGB screen into 84x84 luminance: float32 arithmetic, 84x110 by area, rows 18 to 101 kept.

    Takes uint8 (H, W, 3), returns uint8 (84, 84, 1).
    """

    def __init__(self, env: FrameEnv) -> None:
        super().__init__(env)
        self.observation_space = Box(0, 255, (84, 84, 1), np.uint8)
        self._store = FrameStore((84, 84, 1))

    def observation(self, observation: NDArray[np.uint8]) -> Frame:
        rgb = observation.astype(np.float32)
        luminance = rgb[:, :, 0] * 0.299 + rgb[:, :, 1] * 0.587 + rgb[:, :, 2] * 0.114
        height, rows = playing_area(84)
        resized = cv2.resize(luminance, (84, height), interpolation=cv2.INTER_AREA)
        frame = self._store.new()
        frame[:, :, 0] = resized[rows]  # towards zero, as astype does
        return frame


class ChannelFirst(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Moves the channel to the front: (H, W, C) becomes (C, H, W)."""

    def __init__(self, env: FrameEnv) -> None:
        super().__init__(env)
        height, width, channels = env.observation_space.shape or (0, 0, 0)
        self.observation_space = Box(0, 255, (channels, height, width), np.uint8)

    def observation(self, observation: Frame) -> Frame:
        return np.moveaxis(observation, 2, 0)


class FrameStack(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Shows the last `size` frames as one LazyFrames; the first frame of an episode fills the whole stack."""

    def __init__(self, env: FrameEnv, size: int = 4) -> None:
        super().__init__(env)
        self._frames: deque[Frame] = deque(maxlen=size)
        _, height, width = env.observation_space.shape or (0, 0, 0)
        self.observation_space = Box(0, 255, (size, height, width), np.uint8)

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[LazyFrames, Info]:
        frame, info = self.env.reset(seed=seed, options=options)
        self._frames.extend([frame] * (self._frames.maxlen or 0))
        return LazyFrames(tuple(self._frames)), info

    def step(self, action: Any) -> Step:
        frame, reward, terminated, truncated, info = self.env.step(action)
        self._frames.append(frame)
        return LazyFrames(tuple(self._frames)), reward, terminated, truncated, info


class SignReward(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Replaces a reward by its sign: -1, 0 or 1 (Mnih et al. 2015)."""

    def step(self, action: Any) -> Step:
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, float(np.sign(float(reward))), terminated, truncated, info


def waits_for_fire(env: FrameEnv) -> bool:
    """Tell whether FireReset fits the game: its action 1 is FIRE, and there is an action 2."""
    bare: Any = env.unwrapped
    meanings: list[str] = bare.get_action_meanings()
    return len(meanings) > 2 and meanings[1] == "FIRE"


def _lives(info: Info) -> int:
    return int(info.get("lives", 0))
