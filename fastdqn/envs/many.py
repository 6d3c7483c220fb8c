"""Many games at once, of whatever kind: how many, and how they are played."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fastdqn import process
from fastdqn.envs import games
from fastdqn.envs.build import build_env, describe
from fastdqn.envs.in_flight import InFlight
from fastdqn.envs.serial import SerialVector
from fastdqn.envs.vector import AtariVector, VectorEnv, check_num_envs
from fastdqn.errors import UserError, counted
from fastdqn.options.game import GameOptions, VectorOptions
from fastdqn.seeds import as_int

Halve = Callable[[Callable[[int], VectorEnv]], VectorEnv]
"""From what returns half of the games, number 0 or 1, to all of them."""
MEAN_STEPS = 128
"""Steps of random play, of each game, of whose frames `mean_frame` is the mean."""


def build_games(
    game: GameOptions,
    vector: VectorOptions,
    seed: np.random.SeedSequence,
    continuous: bool | None = False,
    halve: Halve | None = None,
) -> tuple[VectorEnv, str]:
    """Return the games, each with a seed of its own, and one line that says how they are presented. An even number of
    emulators are put together by `halve`, if it is given.

    Raises:
        UserError: there is no such game, or not memory enough for so many.
    """
    envs = build_vector_env(game, vector, seed, continuous, halve)
    return envs, describe_games(envs, game)


def build_vector_env(
    game: GameOptions,
    vector: VectorOptions,
    seed: np.random.SeedSequence,
    continuous: bool | None = False,
    halve: Halve | None = None,
) -> VectorEnv:
    """Return as many games as `vector` says, each with a seed of its own: Atari's in the emulator's threads,
    others one after the other. With `continuous` their actions are numbers from -1 to 1, with None what they have.
    Halves are as of `build_games`.

    Raises:
        UserError: there is no such game, or not memory enough for so many.
    """
    count = num_envs_of(vector)
    check_num_envs(count)
    if halve is not None and count % 2 == 0 and games.is_atari(game.name):
        return halve(partial(build_group, game, vector, seed, among=2))
    return build_group(game, vector, seed, 0, 1, continuous)


def build_group(
    game: GameOptions,
    vector: VectorOptions,
    seed: np.random.SeedSequence,
    number: int,
    among: int,
    continuous: bool | None = False,
) -> VectorEnv:
    """Return group `number` of so many of the games that `vector` says, which `among` divides, with at least one of
    its emulator threads.

    Raises:
        UserError: there is no such game.
    """
    each, threads = num_envs_of(vector) // among, vector.env_threads or process.cores()
    own = seed if number == 0 else np.random.SeedSequence((as_int(seed), 2, number))
    if continuous or not games.is_atari(game.name):
        envs = [build_env(game, "opencv", vector.frame_size, continuous) for _ in range(each)]
        return SerialVector(envs, own)
    share = max(1, threads // among + (number < threads % among))
    return AtariVector(games.rom_of(game.name), game, each, own, min(share, each), vector.frame_size)


def build_centred(
    game: GameOptions,
    vector: VectorOptions,
    seed: np.random.SeedSequence,
    center: bool,
    continuous: bool | None = False,
) -> tuple[VectorEnv, str, NDArray[np.float32] | None]:
    """Return what `build_games` does, and a mean frame to subtract, if there is to be one.

    Raises:
        UserError: there is no such game, or not memory enough for so many, or it shows no frames.
    """
    games, note = build_games(game, vector, seed, continuous)
    if center and len(games.obs_shape) == 1:
        raise _no_pictures(game)
    return games, note, mean_frame(game, vector, seed) if center else None


def mean_frame(game: GameOptions, vector: VectorOptions, seed: np.random.SeedSequence) -> NDArray[np.float32]:
    """Return the mean frame, (H, W), of some steps of random play of games of its own, not those with this seed.

    Raises:
        UserError: they show no frames.
    """
    seed = np.random.SeedSequence((as_int(seed), 1))
    games = build_vector_env(game, vector, seed)
    frames = games.reset()
    if frames.ndim != 3:
        raise _no_pictures(game)
    draws = np.random.default_rng(seed)
    total = np.zeros(frames.shape[1:], np.float64)
    for _ in range(MEAN_STEPS):
        games.send(draws.integers(games.num_actions, size=games.num_envs))
        games.recv()
        total += games.newest.mean(axis=0)
    return (total / MEAN_STEPS).astype(np.float32)


def _no_pictures(game: GameOptions) -> UserError:
    return UserError(f"--center-frames is for pictures, and {game.name} shows vectors.")


def num_envs_of(vector: VectorOptions) -> int:
    """Return how many games to play at once: as asked for, else 4 for each core, from 8 to 128."""
    return vector.num_envs or min(128, max(8, 4 * process.cores()))


def describe_games(envs: VectorEnv, game: GameOptions) -> str:
    """Return one line that says how the games are presented."""
    side = envs.obs_shape[-1]
    how = f" in {counted(envs.threads, 'emulator thread')}" if envs.threads else ", stepped in turn"
    shown = f"vectors of {side} numbers" if len(envs.obs_shape) == 1 else f"{side}x{side} frames"
    games = "one game" if envs.num_envs == 1 else f"{envs.num_envs} games at once{how}"
    if isinstance(envs, InFlight):
        games += ", in halves that can play apart"
    return describe(game, f"{games}, {shown}", 0 if envs.threads else 1)  # ale-py begins at 0
