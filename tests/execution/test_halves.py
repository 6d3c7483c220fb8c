"""Games in two halves: what each plays by itself, here or in a process of its own."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Iterator
from functools import partial
from typing import Any, cast

import numpy as np
import psutil
import pytest
import torch

from fastdqn import process
from fastdqn.envs.in_flight import InFlight
from fastdqn.envs.many import build_group, build_vector_env
from fastdqn.envs.vector import VectorEnv
from fastdqn.errors import RunError
from fastdqn.execution import halves as halves_module
from fastdqn.execution.halves import Draws, HalfElsewhere, Halves, halves_of, play_rounds
from fastdqn.options.game import GameOptions, VectorOptions
from fastdqn.replay.stacks import GameStacks
from fastdqn.types import Came

SEED = np.random.SeedSequence(5)
GAMES, SIDE, STACK = 4, 42, 4


class Weighed:
    """Values of actions as sums of pixels with weights of chance, which can be pickled."""

    def __init__(self, num_actions: int) -> None:
        rng = np.random.default_rng(1)
        self.weights = torch.from_numpy(rng.normal(size=(num_actions, STACK * SIDE * SIDE)).astype(np.float32))

    def __call__(self, obs: torch.Tensor) -> torch.Tensor:
        return obs.flatten(1).float() @ self.weights.t()


class Failing:
    def __call__(self, obs: torch.Tensor) -> torch.Tensor:
        raise ValueError(f"cannot say anything about {len(obs)} games")


def half_of(name: str, number: int, max_frames: int | None = 400) -> VectorEnv:
    """Return a half of four games, which are short."""
    game = GameOptions(name=name, max_frames=max_frames)
    vector = VectorOptions(num_envs=GAMES, env_threads=2, frame_size=SIDE)
    return build_group(game, vector, SEED, number, 2)


@pytest.fixture(scope="module", params=[False, True], ids=["here", "elsewhere"])
def halves(request: pytest.FixtureRequest) -> Iterator[Halves]:
    """For tests that begin with a reset: emulators take their time to be made."""
    with halves_of(partial(half_of, "breakout"), elsewhere=request.param) as games:
        yield games


@pytest.fixture(scope="module")
def plain() -> Halves:
    """The same games, both halves here."""
    return halves_of(partial(half_of, "breakout"), elsewhere=False)


def draws_of(rounds: int, num_actions: int, rng: np.random.Generator, share: float = 0.2) -> Draws:
    return [(rng.random(GAMES) < share, rng.integers(num_actions, size=GAMES)) for _ in range(rounds)]


def stacks_of(games: VectorEnv) -> GameStacks:
    stacks = GameStacks(GAMES, (SIDE, SIDE), STACK, 1, 0.99)
    stacks.reset(games.reset())
    return stacks


def observed(stacks: GameStacks) -> torch.Tensor:
    return torch.from_numpy(stacks.obs())


def same(found: list[Came], expected: list[Came]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert (one.actions == other.actions).all()
        assert one.step.episodes == other.step.episodes
        for a, b in zip(one.step[:-1], other.step[:-1], strict=True):
            assert np.array_equal(a, b)


@pytest.mark.parametrize("name", ["pong", "breakout", "freeway"])
def test_rounds_are_what_one_plays_step_by_step(name: str) -> None:
    """Stacks, with zeros before a game's first frame, greedy and random actions, and ends of games."""
    game = GameOptions(name=name, max_frames=400)
    vector = VectorOptions(num_envs=GAMES, env_threads=2, frame_size=SIDE)
    one, other = (build_vector_env(game, vector, SEED) for _ in range(2))
    stacks, values = stacks_of(one), Weighed(one.num_actions)
    other.reset()
    draws = draws_of(240, one.num_actions, np.random.default_rng(0))
    played = play_rounds(other, np.zeros((GAMES, SIDE, SIDE, STACK), np.uint8) + first_of(stacks), values, draws)
    expected: list[Came] = []
    for explore, drawn in draws:
        actions = np.where(explore, drawn, values(observed(stacks)).argmax(dim=1).numpy())
        one.send(actions)
        step = one.recv()
        stacks.add(actions, step)
        expected.append(Came(actions, step))
    same(played, expected)
    assert sum(len(came.step.episodes) for came in played) >= GAMES
    assert len({int(action) for came in played for action in came.actions}) > 1


def first_of(stacks: GameStacks) -> np.ndarray:
    return np.ascontiguousarray(stacks.obs().transpose(0, 2, 3, 1))


def test_halves_play_what_the_same_games_play_together(halves: Halves, plain: Halves) -> None:
    """First in step, then by themselves, then in step again."""
    stacks, values = stacks_of(plain), Weighed(plain.num_actions)
    assert (halves.reset() == plain.newest).all()
    rng = np.random.default_rng(3)

    def in_step(draws: Draws) -> list[Came]:
        found: list[Came] = []
        for explore, drawn in draws:
            greedy = torch.cat([values(part) for part in observed(stacks).chunk(2)]).argmax(dim=1).numpy()
            actions = np.where(explore, drawn, greedy)
            plain.send(actions)
            step = plain.recv()
            stacks.add(actions, step)
            found.append(Came(actions, step))
        return found

    halves.act_by(values)
    for alone in (False, True, True, False):
        draws = draws_of(70, plain.num_actions, rng)
        before = observed(stacks)
        expected = in_step(draws)
        if alone:
            found = halves.play(before, draws)
        else:
            found = []
            for came in expected:
                halves.send(came.actions)
                found.append(Came(came.actions, halves.recv()))
        same(found, expected)
        assert (halves.newest == plain.newest).all()
    assert (halves.num_envs, halves.threads, halves.obs_shape) == (GAMES, 2, (STACK, SIDE, SIDE))


def test_they_continue_where_they_were_here_or_elsewhere(halves: Halves, plain: Halves) -> None:
    rng = np.random.default_rng(4)
    stacks = stacks_of(halves)
    halves.act_by(Weighed(halves.num_actions))
    for came in halves.play(observed(stacks), draws_of(60, halves.num_actions, rng)):
        stacks.add(*came)
    state: Any = halves.state()
    plain.reset()
    assert not plain.load(state).any()
    assert (plain.newest == halves.newest).all()
    plain.act_by(Weighed(plain.num_actions))
    draws = draws_of(60, plain.num_actions, rng)
    expected = plain.play(observed(stacks), draws)
    same(halves.play(observed(stacks), draws), expected)
    halves.load(state)
    same(halves.play(observed(stacks), draws), expected)


def test_games_that_were_not_in_halves_begin_anew_and_the_other_way_round(halves: Halves) -> None:
    options = VectorOptions(num_envs=GAMES, frame_size=SIDE)
    whole = InFlight((build_vector_env(GameOptions(name="breakout"), options, SEED),))
    still = np.zeros(GAMES, np.int64)
    for games in (halves, whole):
        games.reset()
        games.send(still)
        games.recv()
    states: list[Any] = [halves.state(), whole.state()]
    for games, state in zip((whole, halves), states, strict=True):
        first = games.reset()
        assert games.load(state).all()
        assert (games.newest == first).all()
        for resets in (GAMES, 0):
            games.send(still)
            step = games.recv()
            assert (step.reset.sum(), step.episodes) == (resets, ())


def process_of(halves: Halves) -> psutil.Process:
    other = halves.groups[1]
    assert isinstance(other, HalfElsewhere)
    return psutil.Process(other._child.pid)


def test_a_process_that_is_killed_is_one_sentence() -> None:
    with halves_of(partial(half_of, "pong"), elsewhere=True) as games:
        games.reset()
        there = process_of(games)
        os.kill(there.pid, signal.SIGKILL)
        with pytest.raises(RunError, match=r"^The games process was killed by SIGKILL\.$"):
            for _ in range(3):
                games.send(np.zeros(GAMES, np.int64))
                games.recv()


def test_what_fails_there_is_said_here() -> None:
    with halves_of(partial(half_of, "pong"), elsewhere=True) as games:
        stacks = stacks_of(games)
        games._values = Weighed(games.num_actions)
        other = games.groups[1]
        assert isinstance(other, HalfElsewhere)
        other.act_by(Failing())
        with pytest.raises(RunError, match=r"cannot say anything about 2 games(.|\n)*The games process failed"):
            games.play(observed(stacks), draws_of(2, games.num_actions, np.random.default_rng(0)))


def test_one_that_is_stopped_is_one_sentence_however_much_it_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(halves_module, "HUNG", 1.5)
    with halves_of(partial(half_of, "pong"), elsewhere=True) as games:
        games.reset()
        there = process_of(games)
        there.suspend()
        games.act_by(cast(Any, bytes(1 << 22)))
        games.send(np.zeros(GAMES, np.int64))
        with pytest.raises(RunError, match=r"^The games process has sent nothing for 1.5 seconds and counts as hung"):
            games.recv()
        there.resume()


def test_a_signal_while_games_are_played_again_is_no_fault_of_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run ends before it goes on, and nothing is lost."""
    monkeypatch.setattr(halves_module, "PATIENCE", 0.0)
    with halves_of(partial(half_of, "pong"), elsewhere=True) as games:
        games.reset()
        state = games.state()
        process_of(games).suspend()
        monkeypatch.setattr(process, "_first", signal.SIGINT)
        assert not games.load(state).any()
        process_of(games).resume()
        again = games.state()["groups"][1]  # what it was to continue from, not what it answers by now
        assert again.keys() == state["groups"][1].keys()
        assert all(torch.equal(again[name], value) for name, value in state["groups"][1].items())


def test_what_fails_before_anybody_plays_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the program's end it is ended as `close` does it, and not twice."""
    at_the_end: list[Any] = []
    monkeypatch.setattr(halves_module.atexit, "register", at_the_end.append)
    monkeypatch.setattr(halves_module.atexit, "unregister", at_the_end.remove)
    games = halves_of(partial(half_of, "pong"), elsewhere=True)
    there = process_of(games)
    (end,) = at_the_end
    end()
    assert not psutil.pid_exists(there.pid)
    assert not at_the_end


def test_no_room_for_what_is_shared_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(halves_module, "ChildProcess", full)
    with pytest.raises(RunError, match=r"^Memory cannot be shared between processes .*; /dev/shm may be full\.$"):
        halves_of(partial(half_of, "pong"), elsewhere=True)


def test_its_process_ends_with_it() -> None:
    with halves_of(partial(half_of, "pong"), elsewhere=True) as games:
        there = process_of(games)
        assert there.is_running()
    assert not there.is_running() or there.status() == psutil.STATUS_ZOMBIE


def test_what_halves_have_played_by_themselves_is_the_newest(plain: Halves) -> None:
    """In a state, too."""
    stacks = stacks_of(plain)
    plain.act_by(Weighed(plain.num_actions))
    for _ in range(2):
        before = plain.newest
        (*_, last) = plain.play(observed(stacks), draws_of(30, plain.num_actions, np.random.default_rng(0)))
        assert (plain.newest == last.step.frames).all() > (plain.newest == before).all()
        state: Any = plain.state()
        shown = np.concatenate([said["frames"].numpy() for said in state["groups"]])
        assert (shown == last.step.frames).all()
        assert (state["sent"], state["early"], state["shown"]) == ([], [], [])


def test_each_half_is_played_in_one_thread_of_pytorchs(plain: Halves) -> None:
    """And afterwards there are as many as before."""
    seen: list[int] = []

    def values(obs: torch.Tensor) -> torch.Tensor:
        seen.append(torch.get_num_threads())
        return torch.zeros(len(obs), plain.num_actions)

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        plain.act_by(values)
        plain.play(observed(stacks_of(plain)), draws_of(3, plain.num_actions, np.random.default_rng(0)))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert seen == [1] * 6
