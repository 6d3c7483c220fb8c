"""Games to play the wrappers with: a list of steps behind an environment, and Gymnasium's own wrappers."""

from __future__ import annotations

from typing import Any

import ale_py
import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

from fastdqn.envs import games
from fastdqn.options.game import OWN_GAME, GameOptions

PLAIN = GameOptions(noop_max=0, episodic_life=False, fire_reset=False, clip_rewards=False)


def game_of(name: str, **options: Any) -> GameOptions:
    """Return the registered environment called `name`, presented as it is but for `options`."""
    return GameOptions(**{"name": name, **OWN_GAME, **options})


class Scripted(gymnasium.Env[Any, Any]):
    """Plays a fixed list of (screen value, reward, terminated, truncated, lives); notes actions and resets."""

    def __init__(self, script: list[tuple[int, float, bool, bool, int]], meanings: tuple[str, ...] = ("NOOP", "UP")):
        self.script, self.meanings = script, meanings
        self.at = 0
        self.actions: list[int] = []
        self.resets = 0
        self.action_space = Discrete(len(meanings))
        self.observation_space = Box(0, 255, (210, 160, 3), np.uint8)

    def get_action_meanings(self) -> list[str]:
        return list(self.meanings)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.resets += 1
        return np.zeros((210, 160, 3), np.uint8), {"lives": 3}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        value, reward, terminated, truncated, lives = self.script[self.at]
        self.at += 1
        self.actions.append(int(action))
        return np.full((210, 160, 3), value, np.uint8), reward, terminated, truncated, {"lives": lives}


def steps(*values: int, lives: int = 3, reward: float = 0.0) -> list[tuple[int, float, bool, bool, int]]:
    return [(value, reward, False, False, lives) for value in values]


def preprocessed(game: str, **options: Any) -> Any:
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    gymnasium.register_envs(ale_py)
    env = gymnasium.make(games.gymnasium_id(games.rom_of(game)))
    return FrameStackObservation(AtariPreprocessing(env, **options), 4)
