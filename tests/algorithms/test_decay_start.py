"""A learning rate that waits until the agent wins."""

from __future__ import annotations

from functools import partial

from fastdqn.algorithms.decay_start import DecayStart
from fastdqn.algorithms.freeze_trial import FreezeTrial
from tests.helpers.points import points as points_of

points = partial(points_of, worth=2.0)


def test_it_begins_with_the_share_of_the_last_hundred_points_and_counts_env_steps_from_there() -> None:
    decay = DecayStart(0.75)
    decay.observe([points(0, 24)])
    decay.observe([points(75, 0)])  # ninety-nine points
    decay.observe([points(0, 3)])  # 75 of a hundred and two, of which the first two, lost, are forgotten: 0.75
    assert decay.elapsed(1000) == 0  # the step with which it begins counts for nothing, like all before it
    decay.observe([points(0, 30), points(1, 0)])
    assert decay.elapsed(2000) == 35  # it goes on, whatever is lost
    decay = DecayStart(0.75)
    for step in (points(0, 26), points(73, 0), points(0, 1), points(1, 0)):  # 74 of the last hundred
        decay.observe([step])
    assert decay.elapsed(3000) == 0
    decay.observe([points(0, 0)])
    assert decay.elapsed(4000) == 0
    decay.observe([points(1, 0)])
    decay.observe([points(0, 0)])
    assert decay.elapsed(5000) == 2


def test_whole_percents_are_as_many_points() -> None:
    """Also where a hundredth times a hundred is a little more, as of 0.55."""
    for share in range(1, 100):
        decay = DecayStart(share / 100.0)
        decay.observe([points(share - 1, 101 - share)])
        decay.observe([points(0, 0)])
        assert decay.elapsed(9) == 0
        decay = DecayStart(share / 100.0)
        decay.observe([points(share, 100 - share)])
        decay.observe([points(0, 0)])
        assert decay.elapsed(9) > 0, share


def test_without_a_share_it_has_begun_with_the_first_env_step() -> None:
    decay = DecayStart(None)
    decay.observe([points(0, 100)])
    assert decay.elapsed(1234) == 1234


def test_games_of_a_frozen_agent_say_nothing() -> None:
    trial = FreezeTrial(0.9, 0.0, 0.49)
    trial.observe([points(24, 0)])
    assert not trial.frozen  # nothing was ever lost
    trial.observe([points(24, 1)])
    assert trial.frozen
    trial.observe([points(90, 0)])
    trial.observe([points(0, 30)])
    assert not trial.frozen
    trial.observe([points(0, 40)])
    trial.observe([points(0, 10)])
    trial.observe([points(0, 0)])
    assert trial.decay.elapsed(1) == 0  # 48 of 99
    trial.observe([points(2, 0)])
    trial.observe([points(1, 0)])
    assert trial.decay.elapsed(1) == 3


def test_it_continues_where_it_was() -> None:
    first, second = DecayStart(0.75), DecayStart(0.75)
    first.observe([points(74, 25)])
    second.load(first.state())
    for decay in (first, second):
        decay.observe([points(1, 0)])
        decay.observe([points(1, 0)])
    assert first.elapsed(0) == second.elapsed(0) == 3
    third = DecayStart(0.75)
    third.load(first.state())
    third.observe([points(0, 2)])
    assert third.elapsed(0) == 7
