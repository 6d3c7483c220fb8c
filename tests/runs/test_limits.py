"""When a run is over: solved, or at one of its limits."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastdqn import process
from fastdqn.runs.limits import Limits, StopTest
from tests.helpers.runs import make_run


def test_solved_is_the_mean_of_the_last_100_games_above_the_bound() -> None:
    stop = StopTest(Limits(18.0, None, None))
    for _ in range(99):
        stop.add(21.0)
    assert stop.reason(1) is None  # 99 games are not enough
    stop.add(21.0)
    assert stop.reason(1) == "solved"
    stop = StopTest(Limits(18.0, None, None))
    for score in [-21.0] * 50 + [18.0] * 100:
        stop.add(score)
    assert stop.mean_score == 18.0
    assert stop.reason(1) is None  # above, not equal
    stop.add(19.0)
    assert stop.reason(1) == "solved"
    assert stop.episodes == 151


def test_games_count_in_the_order_in_which_they_began() -> None:
    stop = StopTest(Limits(None, None, None))
    stop.play(3)
    assert stop.add(5.0, 1) == 2  # the second to begin is the first to end, and waits for the first
    assert (stop.episodes, stop.mean_score) == (1, None)
    assert stop.add(7.0, 1) == 4
    assert stop.add(1.0, 0) == 1
    assert (stop.episodes, stop.mean_score) == (3, 3.0)  # 1 and 5; 7 began after the third, which is still played
    assert stop.add(3.0, 2) == 3
    assert stop.mean_score == 4.0
    assert [stop.add(9.0, 0), stop.add(9.0, 0), stop.add(9.0, 0)] == [6, 8, 9]
    assert stop.mean_score == 4.0  # the fifth is still played at place 1
    other = StopTest(Limits(None, None, None))
    other.load(stop.state())
    for one in (stop, other):
        assert one.add(0.0, 1) == 5
        assert one.mean_score == pytest.approx((16.0 + 9.0) / 6)  # the seventh is played at place 2


def test_a_game_that_is_gone_is_not_waited_for() -> None:
    stop = StopTest(Limits(None, None, None))
    stop.play(2)
    stop.add(4.0, 1)
    stop.discard(np.array([True, False]))
    assert stop.mean_score == 4.0
    assert stop.add(8.0, 0) == 4  # it began after the third, at place 1
    assert stop.mean_score == 4.0


def test_games_of_other_ranks_stay_what_they_are_where_ones_own_begin_anew() -> None:
    stop = StopTest(Limits(None, None, None))
    stop.play(4)  # two of each of two ranks
    stop.add(4.0, 3)
    stop.discard(np.array([True, True]))
    stop.play(4)
    assert [stop.add(8.0, place) for place in (0, 1, 2)] == [6, 7, 3]
    stop.begin_anew([1], 1, 2)
    assert stop.add(8.0, 3) == 11
    new = StopTest(Limits(None, None, None))
    new.discard(np.ones(4, bool))
    new.begin_anew(range(4), 1, 2)  # resumed from before the first step: none of the other's were going on
    new.play(8)
    assert new.add(1.0, 7) == 8


@pytest.mark.parametrize("games", [1, 16, 128])
def test_short_games_are_not_favoured(games: int) -> None:
    """Games of 10 and of 100 env steps, half of each, score their length; counted as they end, the first hundred of 128
    at once would be short ones."""
    rng = np.random.default_rng(games)
    means = {"began": 0.0, "ended": 0.0}
    for _ in range(50):
        stop, ended = StopTest(Limits(None, None, None)), list[float]()
        stop.play(games)
        length = rng.choice([10, 100], games)
        left = length.copy()
        while len(stop.state()["scores"]) < 100:
            left -= 1
            for place in np.flatnonzero(left == 0).tolist():
                stop.add(float(length[place]), place)
                ended.append(float(length[place]))
                left[place] = length[place] = rng.choice([10, 100])
        means["began"] += (stop.mean_score or 0.0) / 50
        means["ended"] += sum(ended[:100]) / 100 / 50
    assert means["began"] == pytest.approx(55.0, abs=3.0)
    assert means["ended"] < 30.0 or games < 128


@pytest.mark.parametrize("endless", [True, False])
def test_what_waits_is_not_looked_through_at_each_end(endless: bool) -> None:
    """Against scores that are sorted by hand, with games that leave, are gone and are resumed; and where one of the
    games never ends, so that all others wait, another end takes no longer.
    """
    rng, stop = np.random.default_rng(3), StopTest(Limits(None, None, None))
    stop.play(6)
    playing, begun, scores = list(range(6)), 6, {}
    for turn in range(2_000):
        place = int(rng.integers(1 if endless else 0, 6))
        if turn % 50 == 49:
            gone = np.arange(6) == place
            stop.discard(gone)
        else:
            score = float(rng.integers(-21, 22))
            assert stop.add(score, place) == playing[place] + 1
            scores[playing[place]] = score
        playing[place], begun = begun, begun + 1
        if turn % 300 == 299:
            again = StopTest(Limits(None, None, None))
            again.load(stop.state())
            stop = again
        counted = [scores[number] for number in sorted(scores) if number < min(playing)][-100:]
        assert list(stop._scores) == counted
    if endless:
        assert stop.mean_score is None
        assert len(stop._waiting) == len(scores)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(stop, "_waiting", CountingDict(stop._waiting))
            stop.add(1.0, 3)
            assert CountingDict.looks <= 1


class Plain(StopTest):
    """Looks for the oldest game whenever one ends."""

    def _begin(self, place: int) -> None:
        self._playing[place] = self._begun
        self._begun += 1
        self._count_waiting()

    def _count_waiting(self) -> None:
        oldest = min(*self._playing, self._begun) if self._waiting else self._looked
        for number in range(self._looked, oldest):
            if number in self._waiting:
                self._scores.append(self._waiting.pop(number))
        self._looked = max(self._looked, oldest)


@pytest.mark.parametrize("seed", range(12))
def test_scores_count_as_if_the_oldest_game_were_looked_for_at_each_end(seed: int) -> None:
    """Whatever becomes of the games: they end, are gone, are left, and are resumed, with as many places or with others;
    of two ranks."""
    rng = np.random.default_rng(seed)
    pair: list[StopTest] = [StopTest(Limits(None, None, None)), Plain(Limits(None, None, None))]
    places = int(rng.choice([2, 6, 16]))
    slow = int(rng.integers(places))
    for turn in range(1_500):
        kind, place = rng.random(), int(rng.integers(places))
        if kind < 0.002:
            places, slow = 2 * int(rng.integers(1, 9)), 0
        gone = rng.random(places) < 0.2
        first = int(rng.integers(places + 1))
        said: list[Any] = []
        for one in pair:
            one.play(places)
            if kind < 0.01:
                new = type(one)(one.limits)
                new.load(one.state())
                pair[pair.index(one)] = one = new
            elif kind < 0.02:
                one.discard(gone)
            elif kind < 0.03:
                one.begin_anew(np.flatnonzero(gone[: places // 2]).tolist(), 1, 2)
            elif kind < 0.04:
                one.leave(range(first, places))
            elif place != slow or turn % 97 == 0:
                said.append(one.add(float(turn), place))
            said.append((one.state(), one.mean_score, one.whole))
        half = len(said) // 2
        assert said[:half] == said[half:]


def test_the_oldest_game_is_looked_for_only_when_it_has_ended() -> None:
    stop, looks = StopTest(Limits(None, None, None)), list[int]()
    stop.play(200)

    class Playing(list[int]):
        def __iter__(self) -> Any:
            looks.append(1)
            return super().__iter__()

    stop._playing = Playing(stop._playing)
    for place in range(1, 200):
        stop.add(1.0, place)
    assert (len(looks), stop.mean_score) == (0, None)
    stop.add(1.0, 0)
    assert (len(looks), stop.mean_score) == (1, 1.0)


class CountingDict(dict[int, float]):
    """Counts how often it is looked through, or into."""

    looks = 0

    def __iter__(self) -> Any:
        CountingDict.looks += 1_000
        return super().__iter__()

    def __contains__(self, key: object) -> bool:
        CountingDict.looks += 1
        return super().__contains__(key)


def test_games_of_places_that_are_left_are_not_waited_for() -> None:
    stop = StopTest(Limits(None, None, None))
    stop.play(4)
    for place, score in ((2, 5.0), (3, 7.0), (3, 9.0)):
        stop.add(score, place)
    assert stop.mean_score is None  # two older ones are still played
    stop.leave(range(2))
    assert stop.mean_score == pytest.approx(6.0)  # that of place 2 is older than the second of place 3
    stop.add(1.0, 2)
    assert stop.mean_score == pytest.approx(22.0 / 4)
    resumed = StopTest(Limits(None, None, None))
    resumed.load(stop.state())
    resumed.add(3.0, 0)  # somebody plays there again
    resumed.leave(range(1, 4))
    resumed.leave(range(1))
    assert resumed.mean_score == pytest.approx(25.0 / 5)


def test_limits() -> None:
    assert StopTest(Limits(None, 10, None)).reason(9) is None
    assert StopTest(Limits(None, 10, None)).reason(10) == "max-env-steps"
    assert StopTest(Limits(None, None, time.monotonic() - 1)).reason(1) == "max-minutes"
    assert StopTest(Limits(None, None, time.monotonic() + 60)).reason(1) is None
    never = StopTest(Limits(None, None, None))
    for _ in range(200):
        never.add(1e9)
    assert never.reason(10**12) is None
    assert StopTest(Limits(None, None, None)).mean_score is None


def test_minutes_count_from_the_start_of_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "elapsed", lambda: 30.0)
    before = time.monotonic()
    with make_run(tmp_path, max_minutes=2.0) as run:
        deadline = run.stop.limits.deadline
        assert deadline is not None
        assert before <= deadline - 90.0 <= time.monotonic()


def test_elapsed_counts_the_whole_process() -> None:
    assert process.elapsed() > 0.5  # pytest and torch were imported in it
