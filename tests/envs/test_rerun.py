"""Games that are played again, up to where they were, in another process; what cannot be repeated begins anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from fastdqn.algorithms.exploration import EpsilonGreedy, Player
from fastdqn.envs import rerun, vector
from fastdqn.envs.build import build_env
from fastdqn.envs.rerun import Rerun
from fastdqn.envs.serial import SerialVector
from fastdqn.envs.vector import AtariVector, VectorEnv
from fastdqn.options.game import GameOptions
from fastdqn.replay.nstep import NStep
from fastdqn.seeds import game_seed
from tests.helpers.checkpoints import through_a_file

SEED = np.random.SeedSequence(5)
BREAKOUT = GameOptions(name="breakout")


def play(env: VectorEnv, rng: np.random.Generator, steps: int) -> list[Any]:
    """Play at random; return all that was observed."""
    observed: list[Any] = []
    for _ in range(steps):
        env.send(rng.integers(env.num_actions, size=env.num_envs))
        step = env.recv()
        observed.append([array.tolist() for array in step[1:5]] + [step.frames.tobytes(), step.episodes])
    return observed


def breakout(**game: Any) -> AtariVector:
    return AtariVector("breakout", GameOptions(**game), 3, SEED, threads=2)


@pytest.mark.parametrize("crop", [False, True])
@pytest.mark.parametrize("steps", [1, pytest.param(1500, marks=pytest.mark.slow)])
def test_emulators_resume_exactly(tmp_path: Path, steps: int, crop: bool) -> None:
    """Some resets later, in the middle of games that began at different times: the same from here on, resets too."""
    there, here = breakout(crop=crop), breakout(crop=crop)
    there.reset()
    play(there, np.random.default_rng(0), steps)
    state = through_a_file(tmp_path, there)
    assert int(state["resets"].sum()) > 2 or steps < 700
    here.reset()
    play(here, np.random.default_rng(9), 50)
    assert not here.load(state).any()
    np.testing.assert_array_equal(here.newest, there.newest)
    more = 400 if steps > 1 else 120
    assert play(here, np.random.default_rng(1), more) == play(there, np.random.default_rng(1), more)
    again = through_a_file(tmp_path / "b", here)  # and once more, from a run that had been resumed
    once_more = breakout(crop=crop)
    once_more.reset()
    assert not once_more.load(again).any()
    assert play(once_more, np.random.default_rng(2), 200) == play(there, np.random.default_rng(2), 200)


def test_a_game_that_has_just_begun_resumes_exactly(tmp_path: Path) -> None:
    """Nothing has been played in it yet, so that its frame is the reset's."""
    there, here = (AtariVector("breakout", GameOptions(), 1, SEED, threads=1) for _ in range(2))
    there.reset()
    rng = np.random.default_rng(0)
    begun = 0
    for _ in range(600):
        if play(there, rng, 1)[0][3] == [True]:
            here.reset()
            begun += 1
            assert not here.load(through_a_file(tmp_path / str(begun), there)).any()
            np.testing.assert_array_equal(here.newest, there.newest)
    assert begun > 1


@pytest.mark.slow
def test_games_that_end_while_they_wait_for_their_turn_resume_exactly(tmp_path: Path) -> None:
    """In Space Invaders no-ops end a game soon, so that one that waits for its turn has been reset meanwhile."""
    there, here = (AtariVector("space_invaders", GameOptions(), 4, SEED, threads=2) for _ in range(2))
    there.reset()
    play(there, np.random.default_rng(3), 1700)
    state = through_a_file(tmp_path, there)
    assert max(state["lengths"]) - min(state["lengths"]) > 100
    here.reset()
    assert not here.load(state).any()
    assert play(here, np.random.default_rng(1), 200) == play(there, np.random.default_rng(1), 200)


def test_what_cannot_be_repeated_begins_anew(tmp_path: Path) -> None:
    """Sticky actions; and a game whose frame is not what it was."""
    there, here = breakout(sticky_actions=0.25), breakout(sticky_actions=0.25)
    there.reset()
    play(there, np.random.default_rng(0), 100)
    here.reset()
    first = here.newest.copy()
    state = through_a_file(tmp_path, there)
    assert state["actions"].shape == (0, 3)  # nobody will play them again
    assert here.load(state).tolist() == [True] * 3
    assert not np.array_equal(here.newest, first)  # others than the very first ones
    observed = play(here, np.random.default_rng(1), 2)
    assert [step[3] for step in observed] == [[True] * 3, [False] * 3]
    assert observed[0][0] == [0.0] * 3

    there, here = breakout(), breakout()
    there.reset()
    play(there, np.random.default_rng(0), 300)
    state = through_a_file(tmp_path, there)
    state["frames"][1] += 1
    here.reset()
    assert here.load(state).tolist() == [False, True, False]
    observed = play(here, np.random.default_rng(1), 100)
    assert [step[3] for step in observed[:2]] == [[False, True, False], [False] * 3]
    again = breakout()
    again.reset()
    assert not again.load(through_a_file(tmp_path / "b", here)).any()
    assert play(again, np.random.default_rng(2), 50) == play(here, np.random.default_rng(2), 50)


@pytest.mark.slow
def test_old_actions_are_forgotten() -> None:
    there = breakout()
    there.reset()
    play(there, np.random.default_rng(0), 3000)
    assert len(there._sent) < 2500


def test_serial_games_resume_exactly(tmp_path: Path) -> None:
    def make() -> SerialVector:
        sticky = GameOptions(name="breakout", sticky_actions=0.25)
        return SerialVector([build_env(sticky, "opencv") for _ in range(2)], SEED)

    there, here = make(), make()
    there.reset()
    play(there, np.random.default_rng(0), 300)
    here.reset()
    here.load(through_a_file(tmp_path, there))
    assert play(here, np.random.default_rng(1), 300) == play(there, np.random.default_rng(1), 300)


@pytest.mark.parametrize(("steps", "anew"), [(20, False), (21, True), (60, True)])
def test_a_game_that_is_too_long_is_not_remembered(
    steps: int, anew: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One without an end would take ever more memory, and as long to resume as it had been played."""
    monkeypatch.setattr(rerun, "LONGEST", 20)
    there, here = (SerialVector([build_env(BREAKOUT, "opencv")], SEED) for _ in range(2))
    there.reset()
    play(there, np.random.default_rng(0), steps)
    (one,) = there.envs
    assert len(one._actions) == (0 if anew else steps)
    state = through_a_file(tmp_path, there)
    here.reset()
    assert here.load(state).tolist() == [anew]
    observed, others = (play(env, np.random.default_rng(1), 30) for env in (here, there))
    assert (observed == others) == (not anew)


def test_after_a_game_that_is_too_long_the_next_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rerun, "LONGEST", 5)
    player = Rerun(build_env(GameOptions(name="breakout", max_frames=48), "classic"), 7)
    actions: list[int] = []
    for over in (True, False):
        player.reset()
        while not player._over and (over or len(actions) < 5):
            player.step(1)
            actions = player.state()["actions"].tolist()
        assert actions == ([] if over else [1] * 5)
        assert len(player.state()["obs"]) == (0 if over else 4)


def test_every_game_has_a_seed_of_its_own_and_lost_lives_have_none() -> None:
    seeds: list[int | None] = []
    env = build_env(BREAKOUT, "classic")
    real = env.unwrapped.reset

    def reset(*, seed: int | None = None, options: Any = None) -> Any:
        seeds.append(seed)
        return real(seed=seed, options=options)

    env.unwrapped.reset = reset  # type: ignore[method-assign]
    player = Rerun(env, 7)
    rng = np.random.default_rng(0)
    player.reset()
    ends = games = 0
    for _ in range(900):
        played = player.step(int(rng.integers(4)))
        games += len(player.pop_finished())
        if played.terminated:
            ends += 1
            player.reset()
    assert games >= 2
    assert ends > games
    assert seeds == [game_seed(7, i) for i in range(games + 1)]
    assert seeds[0] == 7
    assert len(set(seeds)) == len(seeds)


class Unruly(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A game with chance of its own, which no seed governs: from its second life on each plays otherwise."""

    lives = 0

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        Unruly.lives += 1
        self.chance = np.random.default_rng(Unruly.lives)

    def step(self, action: Any) -> Any:
        return self.env.step(int(self.chance.integers(4)))


def test_games_with_chance_of_their_own_begin_anew(tmp_path: Path) -> None:
    def make() -> SerialVector:
        games = [build_env(BREAKOUT, "opencv") for _ in range(2)]
        return SerialVector([Unruly(games[0]), games[1]], SEED)

    there, here = make(), make()
    there.reset()
    play(there, np.random.default_rng(0), 120)
    here.reset()
    assert here.load(through_a_file(tmp_path, there)).tolist() == [True, False]
    observed = play(here, np.random.default_rng(1), 3)
    assert [step[3] for step in observed] == [[True, False], [False, False], [False, False]]


@pytest.mark.parametrize("unruly", [True, False])
def test_a_player_whose_game_cannot_be_repeated_begins_a_new_one(tmp_path: Path, unruly: bool) -> None:
    """And says so; the window of one that can goes on."""

    def make() -> Player:
        env: Any = build_env(BREAKOUT, "opencv")
        policy = EpsilonGreedy(lambda obs: torch.zeros(1, 4), 4, torch.device("cpu"), np.random.default_rng(0))
        return Player(Unruly(env) if unruly else env, policy, NStep(3, 0.9), 5)

    there, here = make(), make()
    for _ in range(60):
        there.step(0.5)
    assert here.load(through_a_file(tmp_path, there)).tolist() == [unruly]
    played = [here.step(0.5) for _ in range(4)]
    if unruly:
        assert [len(step.transitions) for step in played] == [0, 0, 1, 1]  # no window goes over from the old game
        assert not any(step.episodes for step in played)
    else:
        assert len(played[0].transitions) == 1


def test_after_very_many_games_new_ones_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would have to be reset as often as before; the control has played one less."""
    there = breakout()
    there.reset()
    play(there, np.random.default_rng(0), 3)
    there._resets += 1
    for most, anew in ((3, False), (2, True)):
        monkeypatch.setattr(vector, "MOST_RESETS", most)
        here = breakout()
        here.reset()
        monkeypatch.setattr(here, "_play_again", lambda *_: there.newest)
        assert here.load(through_a_file(tmp_path, there)).tolist() == [anew] * 3
        play(here, np.random.default_rng(1), 2)
        assert here.state()["resets"].tolist() == [1 + anew] * 3
