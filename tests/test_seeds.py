"""Seeds: one root, and children that do not collide."""

from __future__ import annotations

import numpy as np

from fastdqn.envs.many import build_vector_env
from fastdqn.options.game import GameOptions, VectorOptions
from fastdqn.seeds import as_int, player_seeds, seeds_of


def test_seeds_are_distinct_small_and_stable() -> None:
    seeds = seeds_of(3)
    numbers = [as_int(child) for child in seeds]
    assert len(set(numbers)) == len(numbers)
    assert all(type(n) is int and 0 <= n < 2**31 for n in numbers)
    assert numbers == [as_int(child) for child in seeds_of(3)]
    assert not set(numbers) & {as_int(child) for child in seeds_of(4)}


def test_players_have_seeds_of_their_own_whenever_they_begin() -> None:
    """Those of player 0 are the run's."""
    drawn = [as_int(child) for again in (0, 40) for player in range(4) for child in player_seeds(7, player, again)]
    assert len(set(drawn)) == len(drawn)
    for again in (0, 40):
        own = [as_int(child) for child in seeds_of(7, again)]
        assert [as_int(child) for child in player_seeds(7, 0, again)] == own


def test_players_play_other_games() -> None:
    """Breakout after some steps of the same actions: the number of no-ops at the start is drawn."""
    shown: list[bytes] = []
    for player in range(3):
        seeds = player_seeds(7, player)
        games = build_vector_env(GameOptions("breakout"), VectorOptions(2, env_threads=1, frame_size=42), seeds.env)
        games.reset()
        for _ in range(8):
            games.send(np.ones(2, np.int64))
            games.recv()
        shown.append(games.newest.tobytes())
    assert len(set(shown)) == 3
