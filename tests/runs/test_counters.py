"""The counters' speeds."""

from __future__ import annotations

import pytest

from fastdqn.runs.counters import Counters


def test_the_speed_shown_is_that_of_seconds_not_of_a_pause() -> None:
    counters = Counters()
    assert counters.recent_speed is None
    for elapsed, env_steps in ((0.0, 0), (5.0, 500), (10.0, 1_000), (12.0, 1_001), (14.0, 1_400)):
        counters.env_steps = env_steps
        newest = counters.record(elapsed)
    assert newest == pytest.approx(199.5)
    assert counters.recent_speed == pytest.approx(100.0)  # 900 in the 9 s since the first record of the last 10 s


def test_the_time_between_two_processes_is_no_speed() -> None:
    """It is imports, and loading of the checkpoint."""
    first, second = Counters(), Counters()
    for elapsed, env_steps in ((1.0, 100), (2.0, 200)):
        first.env_steps, first.updates = env_steps, env_steps
        first.record(elapsed)
    second.load(first.state())
    assert second.record(30.0) is None
    assert second.recent_speed is None
    second.env_steps += 200
    assert second.record(32.0) == second.recent_speed == pytest.approx(100.0)
    assert second.median_speed == pytest.approx(100.0)
    third = Counters()
    third.load(second.state())
    assert third.median_speed == pytest.approx(100.0)  # of three pairs one is a pause


def test_long_between_two_records_the_speed_is_that_since_the_last() -> None:
    counters = Counters()
    for elapsed, env_steps in ((0.0, 0), (0.0, 0), (60.0, 1_200), (120.0, 1_800)):
        counters.env_steps = env_steps
        counters.record(elapsed)
    assert counters.recent_speed == pytest.approx(10.0)


def test_a_record_without_new_env_steps_has_no_speed_and_the_next_one_counts_its_time() -> None:
    """Such as a checkpoint's, or the last one."""
    counters, found = Counters(), []
    for elapsed, env_steps in ((0.0, 0), (1.0, 100), (1.5, 100), (3.0, 100), (5.0, 300)):
        counters.env_steps = env_steps
        found.append(counters.record(elapsed))
    assert found == [None, 100.0, None, None, 50.0]


def test_the_median_is_of_records_with_new_env_steps() -> None:
    """Rollouts of ten seconds, recorded every second."""
    counters = Counters(updates=1)
    for second in range(31):
        counters.env_steps = second // 10 * 2_000
        counters.record(float(second))
    assert counters.median_speed == pytest.approx(200.0)


def test_the_median_speed_leaves_out_what_was_before_the_first_update() -> None:
    counters = Counters()
    records = ((0.0, 0, 0), (1.0, 1_000, 0), (2.0, 2_000, 0), (3.0, 3_000, 1), (4.0, 3_100, 11))
    for elapsed, env_steps, updates in records:
        counters.env_steps, counters.updates = env_steps, updates
        counters.record(elapsed)
    assert counters.median_speed == pytest.approx(100.0)
