"""Centred RMSProp: against the formula in float64, in a learner of every form, from a checkpoint."""

from __future__ import annotations

import copy
import subprocess
import sys

import pytest
import torch

from fastdqn.algorithms.dqn import DQNLearner
from fastdqn.algorithms.form import PLAIN, Form
from fastdqn.algorithms.rmsprop import CenteredRMSProp
from fastdqn.execution.graphs import Graphed
from fastdqn.options.groups import Groups, groups_of
from tests.helpers.graphs import graphs_without_cuda
from tests.helpers.learners import CAPTURABLE, CPU, FAST, KeepsGradients, learner_from, random_batch
from tests.helpers.scripts import parse

EPSILON = 0.01 / 32**2


def nature() -> Groups:
    return groups_of(parse("09_cuda_graph", "--agent", "nature"))


def weights_of(learner: DQNLearner) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in learner.network.parameters()]


@pytest.mark.parametrize("as_tensor", [False, True])
def test_steps_are_the_papers_formula(as_tensor: bool) -> None:
    """Mnih et al. 2015, and the code that came with it: the epsilon is under the root."""
    generator = torch.Generator().manual_seed(0)
    parameters = [torch.randn(3, 5, generator=generator), torch.randn(7, generator=generator)]
    expected = [parameter.double() for parameter in parameters]
    means, squares = ([torch.zeros_like(weight) for weight in expected] for _ in range(2))
    optimizer = CenteredRMSProp(parameters, torch.tensor(0.00025) if as_tensor else 0.00025, EPSILON)
    for scale in (1.0, 0.01, 30.0, 0.0, 1e-4):
        for i, parameter in enumerate(parameters):
            parameter.grad = scale * torch.randn(parameter.shape, generator=generator)
            gradient = parameter.grad.double()
            means[i] = 0.95 * means[i] + 0.05 * gradient
            squares[i] = 0.95 * squares[i] + 0.05 * gradient**2
            expected[i] = expected[i] - 0.00025 * gradient / (squares[i] - means[i] ** 2 + EPSILON).sqrt()
        optimizer.step()
    for parameter, by_hand in zip(parameters, expected, strict=True):
        torch.testing.assert_close(parameter.double(), by_hand, rtol=1e-5, atol=1e-7)


def test_a_gradient_that_never_varies_makes_no_step_without_a_size() -> None:
    """Its variance is 0, or by rounding a little less."""
    weight = torch.zeros(1000)
    optimizer = CenteredRMSProp([weight], 1e-3, 1e-12, decay=0.0)
    for _ in range(3):
        weight.grad = torch.linspace(1.0, 3e3, 1000)
        optimizer.step()
    assert torch.isfinite(weight).all()


@pytest.mark.parametrize("form", [PLAIN, FAST, CAPTURABLE])
def test_natures_learner_is_the_formula(form: Form) -> None:
    """A whole update: clipped errors, averaged over the batch, and the step by hand."""
    learner = learner_from(nature(), CPU, form)
    kept = KeepsGradients()
    learner.descent = kept
    batch = random_batch(16)
    before = weights_of(learner)
    with torch.no_grad():
        best = learner.target(batch.next_obs).max(dim=1).values
        error = batch.reward + batch.discount * best - learner.network(batch.obs)[torch.arange(16), batch.action]
    loss = learner.update(batch).scalars["loss"]
    assert (error.abs() > 1).any()
    by_hand = torch.where(error.abs() < 1, error**2 / 2, error.abs() - 0.5).mean()
    assert loss.item() == pytest.approx(by_hand.item(), rel=1e-4)
    for old, new, gradient in zip(before, weights_of(learner), kept.gradients, strict=True):
        variance = 0.05 * gradient**2 - (0.05 * gradient) ** 2
        torch.testing.assert_close(new, old - 0.00025 * gradient / (variance + EPSILON).sqrt(), rtol=1e-4, atol=1e-6)


def test_a_learner_continues_from_its_state() -> None:
    whole, other = (learner_from(nature(), CPU, FAST) for _ in range(2))
    batches = [random_batch(8, seed=seed) for seed in range(4)]
    for batch in batches[:2]:
        whole.update(batch)
    other.load(copy.deepcopy(whole.state()))
    for batch in batches[2:]:
        whole.update(batch)
        other.update(batch)
    for a, b in zip(weights_of(whole), weights_of(other), strict=True):
        assert torch.equal(a, b)


def test_a_graph_learns_what_the_plain_form_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its learning rate may change between two replays."""
    graphs_without_cuda(monkeypatch)
    plain, graphed = (learner_from(nature(), CPU, form) for form in (FAST, CAPTURABLE))
    batch = random_batch(4)
    replayed = Graphed(lambda: graphed.update(batch))
    for rate in (3e-4, 2e-4, 2e-4, 2e-4, 1e-4, 1e-3):
        plain.set_learning_rate(rate)
        graphed.set_learning_rate(rate)
        plain.update(batch)
        replayed()
    for a, b in zip(weights_of(plain), weights_of(graphed), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)


def test_it_does_not_import_the_compiler() -> None:
    code = """
import sys, torch
from fastdqn.algorithms.descent import build_rmsprop
weight = torch.zeros(3)
optimizer = build_rmsprop([weight], 1e-3, 1e-5, False)
weight.grad = torch.ones(3)
optimizer.step()
optimizer.load_state_dict(optimizer.state_dict())
assert (weight < 0).all()
assert "torch._dynamo" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.cuda
def test_a_graph_on_cuda_learns_what_the_plain_form_learns() -> None:
    plain, graphed = (learner_from(nature(), torch.device("cuda"), form) for form in (FAST, CAPTURABLE))
    batch = type(random_batch(4))._make(None if t is None else t.cuda() for t in random_batch(4))
    replayed = Graphed(lambda: graphed.update(batch))
    for rate in (3e-4, 2e-4, 2e-4, 2e-4, 1e-4, 1e-3):
        plain.set_learning_rate(rate)
        graphed.set_learning_rate(rate)
        plain.update(batch)
        replayed()
    torch.cuda.synchronize()
    for a, b in zip(weights_of(plain), weights_of(graphed), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)
