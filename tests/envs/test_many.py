"""How many games are played at once, and how."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fastdqn import process
from fastdqn.envs import many
from fastdqn.envs.many import build_centred, build_group, build_vector_env, mean_frame, num_envs_of
from fastdqn.errors import UserError
from fastdqn.options.game import GameOptions, VectorOptions
from tests.helpers.scripts import parse

PONG = GameOptions(name="pong")
SEED = np.random.SeedSequence(5)


def test_how_many_games_and_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def threads_of(vector: VectorOptions) -> Any:
        """Return with how many threads the games would be played."""
        _, _, _, _, threads, _ = build_vector_env(PONG, vector, SEED)  # type: ignore[misc]
        return threads

    monkeypatch.setattr(many, "AtariVector", lambda *args: args)
    for cores, games, threads in ((2, 8, 2), (1, 8, 1), (16, 64, 16), (100, 128, 100)):
        monkeypatch.setattr(process, "cores", lambda cores=cores: cores)
        assert (num_envs_of(VectorOptions()), threads_of(VectorOptions())) == (games, threads)
    assert threads_of(VectorOptions(num_envs=3, env_threads=9)) == 3


@pytest.mark.parametrize(("threads", "shares"), [(4, [2, 2]), (3, [2, 1]), (1, [1, 1]), (16, [4, 4])])
def test_halves_share_the_emulators_threads_out(threads: int, shares: list[int]) -> None:
    vector = VectorOptions(num_envs=8, env_threads=threads)
    assert [build_group(PONG, vector, SEED, number, 2).threads for number in range(2)] == shares


def test_more_games_than_memory_are_refused() -> None:
    with pytest.raises(UserError, match="games at once need"):
        build_vector_env(PONG, VectorOptions(num_envs=10_000_000), SEED)


def test_the_mean_frame_is_that_of_random_play() -> None:
    vector = VectorOptions(num_envs=2, env_threads=1)

    def mean_of(seed: np.random.SeedSequence, game: GameOptions = PONG) -> Any:
        return mean_frame(game, vector, seed)

    mean = mean_of(SEED)
    assert (mean.shape, mean.dtype) == ((84, 84), np.float32)
    assert np.array_equal(mean, mean_of(SEED))
    other = mean_of(np.random.SeedSequence(6))
    assert 0.0 < np.abs(mean - other).mean() < 1.0  # the background is the same
    with pytest.raises(UserError, match=r"^--center-frames is for pictures, and CartPole-v1 shows vectors"):
        mean_of(SEED, parse("20_a2c", "--game", "CartPole-v1").game)
    with pytest.raises(UserError, match=r"^--center-frames is for pictures, and Pendulum-v1 shows vectors"):
        build_centred(parse("41_ppo_ranks", "--game", "Pendulum-v1").game, vector, SEED, center=True, continuous=None)
