"""Schedules: numbers by hand."""

from __future__ import annotations

import pytest

from fastdqn.schedules import geometric, linear, linear_epsilon, target_sync_due, updates_due


def test_epsilon_by_hand() -> None:
    assert [linear_epsilon(s, 1.0, 0.02, 100_000) for s in (0, 1, 50_000, 98_000, 98_001, 10**9)] == pytest.approx(
        [1.0, 0.99999, 0.5, 0.02, 0.02, 0.02]
    )
    assert linear_epsilon(1, 1.0, 0.1, 0) == 0.1
    assert [linear_epsilon(step, 1.0, 0.1, 0, 1_600) for step in (0, 1_599, 1_600)] == [1.0, 1.0, 0.1]


def test_a_straight_line_by_hand() -> None:
    assert [linear(step, 5e-4, 1e-4, 200) for step in (0, 100, 200, 900)] == pytest.approx([5e-4, 3e-4, 1e-4, 1e-4])


def test_beta_rises_to_one() -> None:
    assert [linear(s, 0.4, 1.0, 100_000) for s in (0, 50_000, 100_000, 10**7)] == pytest.approx([0.4, 0.7, 1.0, 1.0])


def test_target_sync_counts_env_steps_and_misses_none() -> None:
    assert [s for s in range(1, 3001) if target_sync_due(s, 1000)] == [1000, 2000, 3000]
    for n in (1, 2, 3, 4, 5, 6, 7, 1000):
        due = [s for s in range(n, 21_000, n) if target_sync_due(s, 1000, n)]
        assert len(due) == (max(range(n, 21_000, n)) // 1000)
        assert [d // 1000 for d in due] == list(range(1, len(due) + 1))


@pytest.mark.parametrize("num_envs", [1, 3, 8, 50])
@pytest.mark.parametrize("steps", [1, 4, 32])
def test_updates_fall_due_where_one_env_step_at_a_time_has_them(num_envs: int, steps: int) -> None:
    """02 updates at the multiples of N from replay_initial on, and copies the target where one of N is due."""
    plain = [step for step in range(1, 1001) if step % steps == 0 and step >= 90]
    ours: list[int] = []
    played = 0
    while played < 1000:
        now = min(played + num_envs, 1000)
        ours += updates_due(played, now, steps, 90)
        played = now
    assert ours == plain
    syncs = [step for step in ours if target_sync_due(step, 100, steps)]
    assert len(syncs) == (10 if steps < 32 else 9)  # the first update of 32 comes at env step 96, just before 100


def test_over_no_step_at_all_it_is_final_at_once() -> None:
    """As in a run that is shorter than a schedule's unit."""
    assert linear(0, 0.4, 1.0, 0) == linear(5, 0.4, 1.0, 0) == 1.0
    assert geometric(0, 10.0, 3.0, 0) == geometric(5, 10.0, 3.0, 0) == 3.0
