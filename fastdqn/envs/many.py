"""Many games at once, of whatever kind: how many, and how they are played."""

from __future__ import annotations

import numpy as np

from fastdqn import process
from fastdqn.envs import games
from fastdqn.envs.build import build_env, describe
from fastdqn.envs.serial import SerialVector
from fastdqn.envs.vector import AtariVector, VectorEnv, check_num_envs
from fastdqn.options.game import GameOptions, VectorOptions


def build_games(game: GameOptions, vector: VectorOptions, seed: np.random.SeedSequence) -> tuple[VectorEnv, str]:
    """Return the games, each with a seed of its own, and one line that says how they are presented.

    Raises:
        UserError: there is no such game, or not memory enough for so many.
    """
    envs = build_vector_env(game, vector, seed)
    return envs, describe_games(envs, game)


def build_vector_env(game: GameOptions, vector: VectorOptions, seed: np.random.SeedSequence) -> VectorEnv:
    """Return as many games as `vector` says, each with a seed of its own: Atari's in the emulator's threads,
    others one after the other.

    Raises:
        UserError: there is no such game, or not memory enough for so many.
    """
    count = num_envs_of(vector)
    check_num_envs(count)
    if not games.is_atari(game.name):
        return SerialVector([build_env(game, "opencv", vector.frame_size) for _ in range(count)], seed)
    threads = min(vector.env_threads or process.cores(), count)
    return AtariVector(games.rom_of(game.name), game, count, seed, threads, vector.frame_size)


def num_envs_of(vector: VectorOptions) -> int:
    """Return how many games to play at once: as asked for, else 4 for each core, from 8 to 128."""
    return vector.num_envs or min(128, max(8, 4 * process.cores()))


def describe_games(envs: VectorEnv, game: GameOptions) -> str:
    """Return one line that says how the games are presented."""
    side = envs.obs_shape[-1]
    how = f"in {envs.threads} emulator threads" if envs.threads else "one after the other"
    shown = f"vectors of {side} numbers" if len(envs.obs_shape) == 1 else f"{side}x{side} frames"
    return describe(game, f"{envs.num_envs} games at once {how}, {shown}")
