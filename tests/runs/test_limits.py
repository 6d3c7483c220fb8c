"""When a run is over: solved, or at one of its limits."""

from __future__ import annotations

import time

from fastdqn import process
from fastdqn.runs.limits import Limits, StopTest


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


def test_limits() -> None:
    assert StopTest(Limits(None, 10, None)).reason(9) is None
    assert StopTest(Limits(None, 10, None)).reason(10) == "max-env-steps"
    assert StopTest(Limits(None, None, time.time() - 1)).reason(1) == "max-minutes"
    assert StopTest(Limits(None, None, time.time() + 60)).reason(1) is None
    never = StopTest(Limits(None, None, None))
    for _ in range(200):
        never.add(1e9)
    assert never.reason(10**12) is None
    assert StopTest(Limits(None, None, None)).mean_score is None


def test_minutes_count_from_the_start_of_the_process() -> None:
    assert Limits.of(None, None, 2.0, 1000.0) == Limits(None, None, 1120.0)


def test_elapsed_counts_the_whole_process() -> None:
    assert process.elapsed() > 0.5  # pytest and torch were imported in it
