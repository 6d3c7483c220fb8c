"""Many games at once, of whatever kind: how many, and how they are played."""

from __future__ import annotations

import dataclasses

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
    (envs,), note = _built(game, vector, seed, 1)
    return envs, note


def build_halves(
    game: GameOptions, vector: VectorOptions, seed: np.random.SeedSequence
) -> tuple[tuple[VectorEnv, ...], str]:
    """Return the same in two halves that can play in turns, each in threads of its own; all together where there are
    not threads for both, or an odd number of games.

    Raises:
        UserError: there is no such game, or not memory enough for so many.
    """
    whole = num_envs_of(vector) % 2 or (vector.env_threads or process.cores()) < 2 or not games.is_atari(game.name)
    return _built(game, vector, seed, 1 if whole else 2)


def _built(
    game: GameOptions, vector: VectorOptions, seed: np.random.SeedSequence, parts: int
) -> tuple[tuple[VectorEnv, ...], str]:
    """Return the games in one or two parts, and one line about all of them."""
    count, threads, seeds = num_envs_of(vector), vector.env_threads, [seed]
    check_num_envs(count)
    if parts > 1:
        count, threads = count // parts, (threads or process.cores()) // parts
        seeds = [np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, i)) for i in range(parts)]
    one = dataclasses.replace(vector, num_envs=count, env_threads=threads)
    built = tuple(build_vector_env(game, one, seed) for seed in seeds)
    return built, describe_games(built[0], game, parts)


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


def describe_games(envs: VectorEnv, game: GameOptions, halves: int = 1) -> str:
    """Return one line that says how the games are presented, of which `envs` are all or one half."""
    side = envs.obs_shape[-1]
    how = f"in {halves * envs.threads} emulator threads" if envs.threads else "one after the other"
    turns = ", one half at a time" if halves > 1 else ""
    shown = f"vectors of {side} numbers" if len(envs.obs_shape) == 1 else f"{side}x{side} frames"
    return describe(game, f"{halves * envs.num_envs} games at once {how}{turns}, {shown}")
