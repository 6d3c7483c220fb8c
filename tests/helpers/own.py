"""Environments of one's own that remember what they showed and were told, and some that are wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from fastdqn.options.game import OWN_GAME, GameOptions


def game_of(made_by: Callable[[], Any], **options: Any) -> GameOptions:
    """Return the game whose environment `made_by` makes, presented as it is but for `options`."""
    globals()["made"] = made_by
    return GameOptions(**{"name": f"{__name__}:made", **OWN_GAME, **options})


class Dots(gymnasium.Env[Any, Any]):
    """Shows dots at random, which the seed governs; a game lasts 20 steps, each of which scores a quarter."""

    length = 20

    def __init__(self, shape: tuple[int, ...] = (50, 70, 3), first_action: int = 0) -> None:
        self.action_space: Any = Discrete(4, start=first_action)
        self.observation_space: Any = Box(0, 255, shape, np.uint8)
        self.shown: list[np.ndarray] = []
        self.actions: list[int] = []
        self.seeds: list[int | None] = []
        self.count = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.count = 0
        return self.picture(), {}

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self.actions.append(action)
        self.count += 1
        return self.picture(), 0.25, self.count == self.length, False, {}

    def picture(self) -> Any:
        self.shown.append(self.np_random.integers(0, 256, self.observation_space.shape, np.uint8))
        return self.shown[-1]


class Named(Dots):
    """Dots whose actions have names; in its sixth step it loses one of two lives."""

    names: tuple[str, ...] = ("NOOP", "FIRE", "LEFT", "RIGHT")

    def get_action_meanings(self) -> list[str]:
        return list(self.names)

    def reset(self, **arguments: Any) -> Any:
        return super().reset(**arguments)[0], {"lives": 2}

    def step(self, action: Any) -> Any:
        return (*super().step(action)[:4], {"lives": 2 if self.count < 6 else 1})


class Heedless(Dots):
    """Dots that do not heed a seed: the very same ones for ever."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.count = 0
        return self.picture(), {}

    def picture(self) -> Any:
        return np.full(self.observation_space.shape, self.count, np.uint8)


class OneArray(Dots):
    """Draws into the same array again and again."""

    def picture(self) -> Any:
        self.canvas = getattr(self, "canvas", np.zeros((50, 70, 3), np.uint8))
        self.canvas[:] = 10 * self.count
        return self.canvas


class Breaks(Dots):
    """Raises in its constructor, its first reset or its 30th step."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where
        if where == "its constructor":
            raise OSError("no such level")

    def reset(self, **arguments: Any) -> Any:
        if self.where == "reset":
            raise KeyError("start")
        return super().reset(**arguments)

    def step(self, action: Any) -> Any:
        if self.where == "step" and len(self.actions) == 29:
            raise IndexError("list index\nout of range.")
        return super().step(action)


class Says(Dots):
    """Has the spaces that it is given."""

    def __init__(self, **spaces: Any) -> None:
        super().__init__()
        for name, space in spaces.items():
            setattr(self, name, space)


nothing = 3
