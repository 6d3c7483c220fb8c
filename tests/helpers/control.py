"""Environments with continuous actions: one that is learnt in seconds, and one that remembers what it was told."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box


class Reach(gymnasium.Env[Any, Any]):
    """A point on a line is to be moved to 0: the reward is minus its distance, for 10 steps, at most 1 a step.

    It moves by a quarter of the action's share of its bounds, so that agents see the same whatever the bounds are. Who
    does nothing scores -5 on average, the best that there is -0.44.
    """

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012 - as Gymnasium has it

    def __init__(self, low: float = -1.0, high: float = 1.0, render_mode: str | None = None) -> None:
        self.observation_space = Box(-1.0, 1.0, (1,), np.float64)
        self.action_space = Box(low, high, (1,), np.float32)
        self.low, self.high = low, high

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place, self.steps = self.np_random.uniform(-1.0, 1.0), 0
        return np.array([self.place]), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        share = 2.0 * (float(action[0]) - self.low) / (self.high - self.low) - 1.0
        self.place = float(np.clip(self.place + 0.25 * share, -1.0, 1.0))
        self.steps += 1
        return np.array([self.place]), -abs(self.place), False, self.steps == 10, {}


class Ears(gymnasium.Env[Any, Any]):
    """Remembers its actions. It shows how many steps were taken in all and in this game; an odd game is truncated after
    three of them, an even one terminates.
    """

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012 - as Gymnasium has it

    def __init__(self, actions: Any = None, shown: Any = None, render_mode: str | None = None) -> None:
        self.observation_space = shown or Box(-np.inf, np.inf, (2,), np.float64)
        self.action_space = actions or Box(-2.0, 2.0, (1,), np.float32)
        self.heard: list[Any] = []
        self.total = self.games = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps, self.games, self.total = 0, self.games + 1, self.total + 1
        return np.array([self.total, self.steps], np.float64), {}

    def step(self, action: Any) -> Any:
        self.heard.append(np.array(action))
        self.steps, self.total = self.steps + 1, self.total + 1
        over, odd = self.steps == 3, self.games % 2 == 1
        return np.array([self.total, self.steps], np.float64), float(self.total), over and not odd, over and odd, {}


@contextlib.contextmanager
def registered(**kinds: Any) -> Iterator[None]:
    """Let Gymnasium know environments, by ids of their names and -v0, made without arguments or by a pair (class,
    arguments).
    """
    for name, kind in kinds.items():
        made, arguments = kind if isinstance(kind, tuple) else (kind, {})
        gymnasium.register(f"{name}-v0", made, kwargs=arguments)
    try:
        yield
    finally:
        for name in kinds:
            del gymnasium.registry[f"{name}-v0"]
