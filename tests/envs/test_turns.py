"""Groups of games that take turns."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from fastdqn.envs.many import build_games
from fastdqn.envs.turns import Turns, together
from fastdqn.options.game import GameOptions, VectorOptions
from fastdqn.seeds import as_int
from fastdqn.types import Came, EpisodeEnd, VectorStep

SEED = np.random.SeedSequence(5)
SECOND = np.random.SeedSequence((as_int(SEED), 2, 1))  # of the games of a second group


def games_of(
    groups: int,
    name: str = "pong",
    games: int = 4,
    sticky: float = 0.0,
    max_frames: int | None = None,
    seed: np.random.SeedSequence = SEED,
) -> Turns:
    game = GameOptions(name=name, sticky_actions=sticky, max_frames=max_frames)
    vector = VectorOptions(num_envs=games, env_threads=2, frame_size=42)
    built, _ = build_games(game, vector, seed, groups=groups)
    assert isinstance(built, Turns)
    return built


def came(places: list[int], reset: list[bool], first: int) -> Came:
    count = len(reset)
    step = VectorStep(
        np.full((count, 2, 2), first, np.uint8),
        np.arange(first, first + count, dtype=np.float32),
        np.array([*reset[1:], False]),
        np.array([False, *reset[:-1]]),
        np.array(reset),
        tuple(EpisodeEnd(float(place), 7, False, place) for place in places),
    )
    return Came(np.arange(first, first + count), step)


def test_the_groups_are_put_together_in_their_order() -> None:
    whole = together([came([1], [False, True], 0), came([0, 2], [True, False, True], 2)])
    assert whole.actions.tolist() == [0, 1, 2, 3, 4]
    assert whole.step.reward.tolist() == [0, 1, 2, 3, 4]
    assert whole.step.terminated.tolist() == [True, False, False, True, False]
    assert whole.step.truncated.tolist() == [False, False, False, True, False]
    assert whole.step.reset.tolist() == [False, True, True, False, True]
    assert whole.step.frames[:, 0, 0].tolist() == [0, 0, 2, 2, 2]
    assert [end.place for end in whole.step.episodes] == [1, 2, 4]


def test_two_groups_play_what_each_plays_alone() -> None:
    """Each is received and sent its next actions while the other one plays; games end, lives are lost, and some games
    are cut off.
    """
    rng = np.random.default_rng(0)
    turns = games_of(2, "breakout", max_frames=560)
    alone = [games_of(1, "breakout", 2, max_frames=560, seed=seed).groups[0] for seed in (SEED, SECOND)]
    assert (turns.reset() == np.concatenate([games.reset() for games in alone])).all()
    sent = rng.integers(turns.num_actions, size=(400, 4))
    for number, part in enumerate(turns.parts):
        turns.send_to(number, sent[0][part])
    ends = np.zeros(3, np.int64)
    for row, following in pairwise(sent):
        found: list[Came] = []
        for number, part in enumerate(turns.parts):
            found.append(turns.recv_from(number))
            assert not turns.sent(number)
            turns.send_to(number, following[part])
        expected: list[Came] = []
        for games, part in zip(alone, turns.parts, strict=True):
            games.send(row[part])
            expected.append(Came(row[part], games.recv()))
        for one, other in zip(found, expected, strict=True):
            assert (one.actions == other.actions).all()
            for a, b in zip(one.step[:-1], other.step[:-1], strict=True):
                assert np.array_equal(a, b)
            assert one.step.episodes == other.step.episodes
            ends += [one.step.terminated.sum(), one.step.truncated.sum(), len(one.step.episodes)]
        assert (turns.newest == np.concatenate([came.step.frames for came in expected])).all()
    assert ends.min() >= 2


def test_all_groups_are_sent_to_and_received_at_once() -> None:
    one, other = games_of(2), games_of(2)
    assert (one.reset() == other.reset()).all()
    for actions in np.random.default_rng(2).integers(one.num_actions, size=(40, 4)):
        one.send(actions)
        step = one.recv()
        for number, part in enumerate(other.parts):
            other.send_to(number, actions[part])
        whole = together([other.recv_from(number) for number in range(2)])
        assert (whole.actions == actions).all()
        for a, b in zip(whole.step[:-1], step[:-1], strict=True):
            assert np.array_equal(a, b)


def test_games_of_different_groups_differ() -> None:
    turns = games_of(2, "breakout")
    turns.reset()
    first = [turns.groups[0].newest, turns.groups[1].newest]
    for _ in range(40):
        turns.send(np.arange(4) * 0 + 1)
        turns.recv()
    assert not np.array_equal(turns.groups[0].newest, turns.groups[1].newest) or not np.array_equal(*first)


@pytest.mark.parametrize("sticky", [0.0, 0.25])
def test_a_checkpoint_in_the_middle_of_a_turn_loses_nothing_but_games_that_do_not_repeat(sticky: float) -> None:
    rng = np.random.default_rng(1)
    plan = rng.integers(3, size=(30, 4))
    one, other = games_of(2, sticky=sticky), games_of(2, sticky=sticky)
    first = one.reset()
    other.reset()
    assert one.state()["early"] == [[], []]
    for actions in plan[:-1]:
        one.send(actions)
        one.recv()
    one.send(plan[-1])
    before = one.newest
    state = one.state()
    assert (one.newest == before).all()  # nobody has received what came since
    assert not np.array_equal(np.concatenate([group.newest for group in one.groups]), before)
    lost = other.load(state)
    assert (other.newest == before).all()
    assert lost.tolist() == [sticky > 0.0] * 4
    for number, part in enumerate(one.parts):
        assert other.sent(number)
        expected, found = one.recv_from(number), other.recv_from(number)
        assert (found.actions == plan[-1][part]).all()
        if sticky:
            assert found.step.reset.all()
            assert not found.step.terminated.any()
            assert (found.step.frames == other.groups[number].newest).all()
        else:
            for a, b in zip(expected.step[:-1], found.step[:-1], strict=True):
                assert np.array_equal(a, b)
    assert not np.array_equal(first, other.newest)
    other.send(plan[0])
    assert other.recv().reset.all() == (sticky > 0.0)  # the games that begin anew
