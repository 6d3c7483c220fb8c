"""Freeze trials: an agent that wins is left as it is."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fastdqn.algorithms.freeze_trial import FreezeTrial, evidence
from tests.helpers.points import points


def test_env_steps_of_frozen_agents_are_counted() -> None:
    trial = FreezeTrial(0.9)
    trial.observe([points(48, 1)])
    assert (trial.frozen, trial.frozen_env_steps) == (True, 0)
    trial.observe([points(2, 0)])
    assert trial.frozen_env_steps == 4
    trial.observe([points(0, 12)])
    assert (trial.frozen, trial.frozen_env_steps) == (False, 18)
    trial.observe([points(2, 0)])
    assert trial.frozen_env_steps == 18


def test_evidence_by_hand() -> None:
    """At 0.9 the good policy loses 6% and the bad one 15%; one that loses 10% says nearly nothing for either."""
    gain, loss = evidence(0.9)
    assert gain == pytest.approx(math.log(0.94 / 0.85))
    assert loss == pytest.approx(math.log(0.06 / 0.15))
    assert abs(0.9 * gain + 0.1 * loss) < 0.005
    assert 0.95 * gain + 0.05 * loss > 0.02
    assert 0.8 * gain + 0.2 * loss < -0.1


def test_an_agent_is_frozen_once_it_has_won_enough_of_its_last_points() -> None:
    trial = FreezeTrial(0.9)  # 18 of the last 24 are three quarters
    trial.observe([points(22, 1)])
    assert not trial.frozen  # too few yet
    trial = FreezeTrial(0.9)
    trial.observe([points(0, 7)])
    trial.observe([points(17, 0)])
    assert not trial.frozen
    assert trial.observe([points(1, 0)])  # the first of those lost no longer counts
    assert trial.frozen


def test_a_frozen_agent_learns_again_when_it_loses() -> None:
    """2.5 / 0.916 is between 2 and 3: three lost points in a row are too many, and each one won is worth 0.1."""
    trial = FreezeTrial(0.9)
    trial.observe([points(48, 1)])
    assert (trial.frozen, trial.won, trial.lost) == (True, 0, 0)
    assert trial.report() == {"freeze/trials": 1.0, "freeze/frozen": 1.0, "freeze/env_steps": 0.0}
    trial.observe([points(0, 2)])
    said = {"freeze/trials": 1.0, "freeze/frozen": 1.0, "freeze/env_steps": 4.0}
    assert trial.report() == {**said, "freeze/points": 2.0, "freeze/share": 0.0}
    trial.observe([points(0, 1)])
    assert not trial.frozen
    trial.observe([points(23, 0)])
    assert not trial.frozen  # what was won before does not count again
    trial.observe([points(1, 0)])
    assert trial.frozen
    trial.observe([points(80, 0)])  # 80 x 0.1007
    trial.observe([points(0, 11)])  # 11 x 0.9163, and -2.03 remains
    assert trial.frozen
    trial.observe([points(0, 1)])
    assert not trial.frozen


@pytest.mark.parametrize(("wins", "frozen"), [(0.95, True), (0.8, False)])
def test_good_policies_stay_and_bad_ones_go(wins: float, frozen: bool) -> None:
    """Of 100 policies, over 2,000 points each."""
    rng, stay = np.random.default_rng(5), 0
    for _ in range(100):
        trial = FreezeTrial(0.9)
        trial.observe([points(48, 1)])
        for won in rng.random(2000) < wins:
            trial.observe([points(int(won), int(not won))])
            if not trial.frozen:
                break
        stay += trial.frozen
    assert stay > 80 if frozen else stay < 3


def test_without_a_share_nothing_is_frozen() -> None:
    trial = FreezeTrial(None)
    for _ in range(10):
        trial.observe([points(100, 1)])
    assert not trial.frozen


def test_where_no_point_can_be_lost_nothing_is_frozen() -> None:
    trial = FreezeTrial(0.9)
    assert not any(trial.observe([points(48, 0)]) for _ in range(10))
    assert trial.observe([points(0, 1)])


@pytest.mark.parametrize("before", [20, 30])
def test_a_trial_resumes_where_it_was(before: int) -> None:
    one, other = FreezeTrial(0.9), FreezeTrial(0.9)
    for i in range(before):
        one.observe([points(int(i % 7 != 3), int(i % 7 == 3))])
    assert one.frozen == (before == 30)
    other.load(one.state())
    for won in [True] * 30 + [False] * 4:
        one.observe([points(int(won), int(not won))])
        other.observe([points(int(won), int(not won))])
        assert one.state() == other.state()
