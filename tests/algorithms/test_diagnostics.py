"""Diagnostics: what a report says, and that it changes nothing of the run."""

from __future__ import annotations

import pytest
import torch

from fastdqn.algorithms.diagnostics import Diagnostics, signal_to_noise
from fastdqn.algorithms.freeze_trial import FreezeTrial
from fastdqn.networks.noisy import noisy_layers
from fastdqn.replay.prioritized import PrioritizedReplay
from tests.helpers.distributions import ATOMS
from tests.helpers.learners import learner_of
from tests.helpers.replays import feed_priorities, filled_replay
from tests.helpers.scripts import ROOT


def scalars_of_a_trial() -> dict[str, float]:
    trial = FreezeTrial(0.87, 0.05, None)
    trial.won = 1
    return trial.report()


def test_reports_of_a_rainbow() -> None:
    learner = learner_of("rainbow")
    replay = PrioritizedReplay(filled_replay())
    feed_priorities(replay)
    diagnostics = Diagnostics(learner, replay, every=100, held_out=300, seed=0)
    assert [s for s in range(0, 350, 50) if diagnostics.due(s)] == [0, 100, 200, 300]
    before = [g.get_state().tolist() for g in (learner.noise, replay.generator)]
    scalars, histograms = diagnostics.report()
    assert scalars.keys() >= {"held_out/mean_q", "priority/min", "priority/median", "priority/max", "priority/beta"}
    assert len([name for name in scalars if name.startswith("signal_to_noise/")]) == 4
    page = (ROOT / "docs" / "runs.md").read_text()  # which lists what programs may read
    assert [name for name in scalars if f"`{name}`" not in page and "signal_to_noise" not in name] == []
    assert [name for name in scalars_of_a_trial() if f"`{name}`" not in page] == []
    mass = histograms["held_out/distribution"].mass
    assert sum(mass) == pytest.approx(1.0, abs=1e-4)
    assert sum(m * z for m, z in zip(mass, ATOMS.tolist(), strict=True)) == pytest.approx(
        scalars["held_out/mean_q"], abs=1e-3
    )
    states = diagnostics._states
    assert diagnostics.report()[0].keys() == scalars.keys()
    assert diagnostics._states is states  # held-out states stay the same
    assert [g.get_state().tolist() for g in (learner.noise, replay.generator)] == before  # nothing of the run's


def test_a_report_says_the_learning_rate_of_now() -> None:
    learner = learner_of("dqn")
    diagnostics = Diagnostics(learner, filled_replay(), every=100, held_out=30, seed=0)
    for rate in (3e-4, 1e-5):
        learner.set_learning_rate(rate)
        assert diagnostics.report()[0]["train/learning_rate"] == pytest.approx(rate)


def test_signal_to_noise_by_hand() -> None:
    learner = learner_of("noisy")
    with torch.no_grad():
        for layer in noisy_layers(learner.network).values():
            layer.weight.fill_(-3.0)
            layer.weight_sigma.fill_(1.5)
    assert list(signal_to_noise(learner).values()) == pytest.approx([2.0, 2.0])
    assert signal_to_noise(learner_of("dqn")) == {}
