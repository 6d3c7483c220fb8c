"""Games whose actions may be in flight when a checkpoint is made, in one group and in several."""

from __future__ import annotations

import numpy as np
import pytest

from fastdqn.envs.in_flight import InFlight, _without, together
from fastdqn.envs.many import build_group
from fastdqn.options.game import GameOptions, VectorOptions
from fastdqn.seeds import as_int
from fastdqn.types import EpisodeEnd, VectorStep

SEED = np.random.SeedSequence(5)
SECOND = np.random.SeedSequence((as_int(SEED), 2, 1))  # of the games of a second group


def games_of(
    groups: int,
    name: str = "pong",
    games: int = 4,
    sticky: float = 0.0,
    max_frames: int | None = None,
    seed: np.random.SeedSequence = SEED,
) -> InFlight:
    game = GameOptions(name=name, sticky_actions=sticky, max_frames=max_frames)
    vector = VectorOptions(num_envs=games, env_threads=2, frame_size=42)
    return InFlight([build_group(game, vector, seed, number, groups) for number in range(groups)])


def step_of(places: list[int], reset: list[bool], first: int) -> VectorStep:
    count = len(reset)
    return VectorStep(
        np.full((count, 2, 2), first, np.uint8),
        np.arange(first, first + count, dtype=np.float32),
        np.array([*reset[1:], False]),
        np.array([False, *reset[:-1]]),
        np.array(reset),
        tuple(EpisodeEnd(float(place), 7, False, place) for place in places),
    )


def test_the_groups_are_put_together_in_their_order() -> None:
    step = together([step_of([1], [False, True], 0), step_of([0, 2], [True, False, True], 2)])
    assert step.reward.tolist() == [0, 1, 2, 3, 4]
    assert step.terminated.tolist() == [True, False, False, True, False]
    assert step.truncated.tolist() == [False, False, False, True, False]
    assert step.reset.tolist() == [False, True, True, False, True]
    assert step.frames[:, 0, 0].tolist() == [0, 0, 2, 2, 2]
    assert [end.place for end in step.episodes] == [1, 2, 4]


def test_two_groups_play_what_each_plays_alone() -> None:
    """Games end, lives are lost, and some games are cut off; what is shown meanwhile is what the actions were for."""
    rng = np.random.default_rng(0)
    both = games_of(2, "breakout", max_frames=560)
    alone = [games_of(1, "breakout", 2, max_frames=560, seed=seed).groups[0] for seed in (SEED, SECOND)]
    shown = both.reset()
    assert (shown == np.concatenate([games.reset() for games in alone])).all()
    assert not both.sent
    ends = np.zeros(3, np.int64)
    for actions in rng.integers(both.num_actions, size=(400, 4)):
        both.send(actions)
        assert both.sent
        assert (both.newest == shown).all()
        found = both.came()
        assert not both.sent
        assert (found.actions == actions).all()
        steps: list[VectorStep] = []
        for games, part in zip(alone, both.parts, strict=True):
            games.send(actions[part])
            steps.append(games.recv())
        for a, b in zip(found.step[:-1], together(steps)[:-1], strict=True):
            assert np.array_equal(a, b)
        assert found.step.episodes == together(steps).episodes
        ends += [found.step.terminated.sum(), found.step.truncated.sum(), len(found.step.episodes)]
        shown = both.newest
        assert (shown == found.step.frames).all()
    assert ends.min() >= 2


def test_games_of_different_groups_differ() -> None:
    games = games_of(2, "breakout")
    games.reset()
    shown = [games.newest]
    for _ in range(40):
        games.send(np.ones(4, np.int64))
        shown.append(games.recv().frames)
    assert any(not np.array_equal(frames[:2], frames[2:]) for frames in shown)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("sticky", [0.0, 0.25])
def test_a_checkpoint_while_actions_are_in_flight_loses_nothing_but_games_that_do_not_repeat(
    groups: int, sticky: float
) -> None:
    rng = np.random.default_rng(1)
    plan = rng.integers(3, size=(30, 4))
    one, other = games_of(groups, sticky=sticky), games_of(groups, sticky=sticky)
    first = one.reset()
    other.reset()
    assert one.state()["early"] == []
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
    assert other.sent
    expected, found = one.came(), other.came()
    assert (found.actions == plan[-1]).all()
    if sticky:
        assert found.step.reset.all()
        assert not found.step.terminated.any()
        assert (found.step.frames == other.newest).all()
    else:
        for a, b in zip(expected.step[:-1], found.step[:-1], strict=True):
            assert np.array_equal(a, b)
    assert not np.array_equal(first, other.newest)
    other.send(plan[0])
    assert other.recv().reset.all() == (sticky > 0.0)  # the games that begin anew


@pytest.mark.parametrize(("saved", "loaded"), [(1, 2), (2, 1)])
def test_games_that_were_in_another_number_of_groups_begin_anew(saved: int, loaded: int) -> None:
    one, other = games_of(saved), games_of(loaded)
    one.reset()
    one.send(np.zeros(4, np.int64))
    first = other.reset()
    assert other.load(one.state()).all()
    assert (other.newest == first).all()
    assert not other.sent


def test_actions_in_flight_on_vectors_resume_as_those_on_pictures() -> None:
    """Observations are (N, D) there; which games are lost is said of each row."""
    step = VectorStep(
        np.arange(8, dtype=np.float32).reshape(2, 4),
        np.ones(2, np.float32),
        *(np.zeros(2, bool) for _ in range(3)),
        (),
    )
    newest = np.full((2, 4), 9.0, np.float32)
    for lost in ([False, False], [True, False]):
        found = _without(step, np.array(lost), newest)
        assert found.frames.tolist() == [[9.0] * 4 if lost[0] else [0, 1, 2, 3], [4, 5, 6, 7]]
        assert found.reset.tolist() == lost
