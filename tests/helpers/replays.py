"""Replays of frames that tests can tell apart."""

from __future__ import annotations

import numpy as np
import torch

from fastdqn.replay.prioritized import DeviceReplay, PrioritizedReplay
from fastdqn.replay.ring import FrameReplay
from fastdqn.types import VectorStep

CPU = torch.device("cpu")
GAMMA = 0.9


def make_replay(rows: int, envs: int, n_step: int, device: torch.device = CPU, side: int = 84) -> FrameReplay:
    return FrameReplay(rows * envs, envs, (side, side), 4, n_step, GAMMA, device, seed=0)


def filled_replay(device: torch.device = CPU, n_step: int = 3) -> FrameReplay:
    """A replay of 150 steps of four games of noise, with room for 50 more before the oldest go."""
    replay = FrameReplay(4 * 200, 4, (84, 84), 4, n_step, 0.99, device, seed=1)
    rng = np.random.default_rng(0)
    replay.reset(rng.integers(256, size=(4, 84, 84), dtype=np.uint8))
    play_noise(replay, 150, rng)
    return replay


def weighted_replay(prioritized: bool, device: torch.device = CPU) -> DeviceReplay:
    """The same, drawn from by priority if asked to."""
    replay = filled_replay(device)
    if not prioritized:
        return replay
    weighted = PrioritizedReplay(replay)
    feed_priorities(weighted)
    return weighted


def play_noise(replay: DeviceReplay, count: int, rng: np.random.Generator) -> None:
    """Add `count` steps of four games of random frames, rewards and ends."""
    for _ in range(count):
        ends = rng.random((2, 4)) < 0.05
        step = VectorStep(
            rng.integers(256, size=(4, 84, 84), dtype=np.uint8),
            rng.integers(-1, 2, size=4).astype(np.float32),
            ends[0],
            ends[1] & ~ends[0],
            np.zeros(4, bool),
            (),
        )
        replay.add(rng.integers(6, size=4), step)


def feed_priorities(replay: PrioritizedReplay) -> None:
    """Give every stored transition a priority, as if each had been drawn."""
    last = replay.frames.starts()[1]
    for time in range(last + 1):
        begin, real = next(replay.frames.spans(time, time + 1))
        replay.priorities.fill(begin, real.float() * 0.5)


class Script:
    """Steps of two small games with ends where a test wants them; every frame is told by its one value."""

    def __init__(self, ends: dict[tuple[int, int], str], envs: int = 2, side: int = 36) -> None:
        self.ends, self.envs, self.side = ends, envs, side
        self.time = 0
        self.over = np.zeros(envs, bool)

    def frames(self) -> np.ndarray:
        values = [(1 + self.time * self.envs + i) % 251 for i in range(self.envs)]
        return np.stack([np.full((self.side, self.side), value, np.uint8) for value in values])

    def step(self) -> tuple[np.ndarray, VectorStep]:
        kinds = [self.ends.get((self.time, i), "") for i in range(self.envs)]
        terminated = np.array([kind in ("over", "life") for kind in kinds]) & ~self.over
        truncated = np.array([kind == "cut" for kind in kinds]) & ~self.over
        reset = self.over
        actions = np.array([(self.time + i) % 5 for i in range(self.envs)])
        reward = np.where(reset, 0, (np.arange(self.envs) + self.time) % 3 - 1).astype(np.float32)
        self.over = (np.array([kind in ("over", "cut") for kind in kinds])) & ~reset
        self.time += 1
        return actions, VectorStep(self.frames(), reward, terminated, truncated, reset, ())


ENDS = {
    (3, 0): "over",
    (5, 1): "life",
    (9, 0): "cut",
    (11, 0): "over",
    (12, 1): "cut",
    (20, 1): "over",
    (21, 0): "life",
}
RESETS = {(4, 0), (10, 0), (12, 0), (13, 1), (21, 1)}
"""Where ENDS have a reset instead of a transition, by time and game, in the first 40 steps."""


def feed(script: Script, replay: DeviceReplay, steps: int) -> None:
    replay.reset(script.frames())
    for _ in range(steps):
        replay.add(*script.step())
