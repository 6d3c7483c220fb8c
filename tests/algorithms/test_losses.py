"""Losses and targets: numbers by hand, and the categorical target against its paper's algorithm."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from fastdqn.algorithms.losses import (
    categorical_projection,
    categorical_target,
    clipped_td_errors,
    expected_values,
    histograms,
    kl_divergences,
    q_learning_target,
    rescaled,
    restored,
    squared_td_errors,
    taken_values,
    weighted_mean,
)
from fastdqn.algorithms.objectives import CategoricalObjective, HistogramObjective
from fastdqn.types import Batch
from tests.helpers.distributions import ATOMS, algorithm_1
from tests.helpers.learners import random_batch


def test_targets_by_hand() -> None:
    reward, discount = torch.tensor([1.0, -1.0, 0.5]), torch.tensor([0.5, 0.0, 1.0])
    values = torch.tensor([[1.0, 4.0], [9.0, 8.0], [-2.0, -3.0]])
    assert q_learning_target(reward, discount, values, values).tolist() == [3.0, -1.0, -1.5]
    selector = torch.tensor([[5.0, 0.0], [0.0, 5.0], [0.0, 5.0]])  # double: another network chooses
    assert q_learning_target(reward, discount, values, selector).tolist() == [1.5, -1.0, -2.5]


def test_loss_by_hand_and_no_gradient_through_the_target() -> None:
    q = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    target = torch.tensor([0.0, 7.0], requires_grad=True)
    loss = squared_td_errors(taken_values(q, torch.tensor([1, 0])), target).mean()
    assert loss.item() == pytest.approx((4.0 + 16.0) / 2)
    loss.backward()
    assert q.grad is not None
    assert q.grad.tolist() == [[0.0, 2.0], [-4.0, 0.0]]
    assert target.grad is None


def test_the_clipped_loss_by_hand() -> None:
    """Errors of -3, -0.5, 0.5 and 3; the derivative is the error, or its sign."""
    value = torch.tensor([3.0, 0.5, -0.5, -3.0], requires_grad=True)
    target = torch.zeros(4, requires_grad=True)
    loss = clipped_td_errors(value, target)
    assert loss.tolist() == [2.5, 0.125, 0.125, 2.5]
    loss.sum().backward()
    assert value.grad is not None
    assert value.grad.tolist() == [1.0, 0.5, -0.5, -1.0]
    assert target.grad is None


@pytest.mark.parametrize(
    ("reward", "discount", "value", "selector"),
    [
        ((3, 1), (3,), (3, 2), (3, 2)),
        ((3,), (1,), (3, 2), (3, 2)),
        ((3,), (3,), (1, 2), (1, 2)),
        ((3,), (3,), (3, 2), (3, 1)),
    ],
)
def test_wrong_shapes_raise_instead_of_broadcasting(
    reward: tuple[int, ...], discount: tuple[int, ...], value: tuple[int, ...], selector: tuple[int, ...]
) -> None:
    with pytest.raises(ValueError, match="must be"):
        q_learning_target(torch.zeros(reward), torch.zeros(discount), torch.zeros(value), torch.zeros(selector))
    with pytest.raises(ValueError, match="must be"):
        squared_td_errors(torch.zeros(3, 1), torch.zeros(3))
    with pytest.raises(ValueError, match="must be"):
        clipped_td_errors(torch.zeros(3, 1), torch.zeros(3))
    with pytest.raises(ValueError, match="must be"):
        taken_values(torch.zeros(3, 2), torch.zeros(3, 1, dtype=torch.int64))


def test_projection_by_hand() -> None:
    """Atoms 0, 1, 2. A mass that meets an atom stays whole, one between two is shared, one beyond goes to the end."""
    atoms = torch.tensor([0.0, 1.0, 2.0])
    probabilities = torch.tensor([[0.2, 0.3, 0.5]])
    for moved, expected in (
        ([0.0, 1.0, 2.0], [0.2, 0.3, 0.5]),
        ([1.0, 1.0, 1.0], [0.0, 1.0, 0.0]),
        ([0.25, 0.5, 1.75], [0.2 * 0.75 + 0.3 * 0.5, 0.2 * 0.25 + 0.3 * 0.5 + 0.5 * 0.25, 0.5 * 0.75]),
        ([-9.0, -0.01, 99.0], [0.5, 0.0, 0.5]),
    ):
        got = categorical_projection(probabilities, torch.tensor([moved]), atoms)
        torch.testing.assert_close(got, torch.tensor([expected]), atol=1e-6, rtol=0)


def test_categorical_target_equals_the_papers_algorithm() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(200, 6, 51, generator=generator) * 3
    reward = torch.randint(-3, 4, (200,), generator=generator).float() * torch.rand(200, generator=generator).round()
    reward[:4] = torch.tensor([100.0, -100.0, 0.4, -10.0])
    discount = torch.where(torch.rand(200, generator=generator) < 0.3, 0.0, 0.99)
    selector = torch.randn(200, 6, generator=generator)
    got = categorical_target(reward, discount, logits, selector, ATOMS)
    torch.testing.assert_close(got.sum(dim=1), torch.ones(200), atol=1e-5, rtol=0)
    assert (got >= 0).all()
    for i in range(200):
        chosen = logits[i, selector[i].argmax()].double().softmax(dim=0).numpy()
        expected = algorithm_1(float(reward[i]), float(discount[i]), chosen, ATOMS.double().numpy())
        np.testing.assert_allclose(got[i].numpy(), expected, atol=2e-5)
    ended = int(torch.nonzero((discount == 0) & (reward == 0))[0])
    assert got[ended].argmax().item() == 25
    assert got[ended, 25].item() == pytest.approx(1.0, abs=1e-5)
    assert got[0, 50].item() == pytest.approx(1.0, abs=1e-6)
    assert got[1, 0].item() == pytest.approx(1.0, abs=1e-6)


def test_expectation_and_divergence_by_hand() -> None:
    atoms = torch.tensor([-1.0, 0.0, 3.0])
    logits = torch.tensor([[[0.5, 0.25, 0.25], [0.1, 0.8, 0.1]]]).log()
    torch.testing.assert_close(expected_values(logits, atoms), torch.tensor([[0.25, 0.2]]))
    target = torch.tensor([[0.5, 0.5, 0.0]])
    cross_entropy, divergence = kl_divergences(taken_values(logits, torch.tensor([0])), target)
    assert cross_entropy.item() == pytest.approx(-0.5 * math.log(0.5) - 0.5 * math.log(0.25), rel=1e-6)
    assert divergence.item() == pytest.approx(0.5 * math.log(0.5 / 0.25), rel=1e-5)
    right = taken_values(logits, torch.tensor([1]))
    assert kl_divergences(right, right.exp())[1].item() == pytest.approx(0.0, abs=1e-6)


def test_a_priority_is_a_divergence_or_a_cross_entropy() -> None:
    rng = torch.Generator().manual_seed(0)
    batch = random_batch(5)
    before, after = (torch.randn(5, 6, 51, generator=rng) for _ in range(2))
    divergence, cross = (
        CategoricalObjective(ATOMS, by_cross_entropy).errors(before, batch, after, after)
        for by_cross_entropy in (False, True)
    )
    target = categorical_target(batch.reward, batch.discount, after, expected_values(after, ATOMS), ATOMS)
    loss, expected = kl_divergences(taken_values(before, batch.action), target)
    torch.testing.assert_close(divergence.priority, expected)
    torch.testing.assert_close(cross.priority, loss)
    assert (cross.priority > divergence.priority + 0.1).all()
    assert torch.equal(cross.loss, divergence.loss)


def test_histograms_by_hand_and_by_normal_distributions() -> None:
    """Around 0 with a deviation of half an atom: from one to three deviations away on each side, of three."""
    side = (0.9986501 - 0.8413447) / (2 * 0.9986501 - 1)
    found = histograms(torch.zeros(1), torch.tensor([-1.0, 0.0, 1.0]), 0.5)
    torch.testing.assert_close(found, torch.tensor([[side, 1 - 2 * side, side]]), atol=1e-6, rtol=0.0)
    values = torch.tensor([-99.0, -10.0, -9.9, -0.13, 3.3333, 9.0, 10.0, 99.0])
    found = histograms(values, ATOMS, 0.75)
    edges = torch.linspace(-10.2, 10.2, 52, dtype=torch.float64)
    for row, value in zip(found, values.double().clamp(-10.0, 10.0), strict=True):
        cdf = torch.distributions.Normal(value, 0.75 * 0.4).cdf(edges)
        wanted = (cdf[1:] - cdf[:-1]) / (cdf[-1] - cdf[0])
        torch.testing.assert_close(row.double(), wanted, atol=1e-5, rtol=0.0)
    inside = found[3:6] @ ATOMS
    torch.testing.assert_close(inside, values[3:6], atol=2e-3, rtol=0.0)  # the mean is the value


def test_rescaled_returns_are_those_of_the_equation_and_come_back() -> None:
    returns = torch.tensor([-24.0, -3.0, 0.0, 0.21, 8.0, 99.0])
    torch.testing.assert_close(rescaled(returns), torch.tensor([-4.0, -1.0, 0.0, 0.1, 2.0, 9.0]))
    torch.testing.assert_close(restored(rescaled(returns)), returns)
    small = torch.tensor([1e-6, -3e-5, 1e-3])
    torch.testing.assert_close(restored(rescaled(small)), small, rtol=1e-5, atol=0.0)


def test_a_histogram_of_rescaled_returns_tells_small_ones_apart_and_reaches_far() -> None:
    """A network that says exactly the histogram of a return has that return as its value, without any loss."""
    objective = HistogramObjective(torch.linspace(*rescaled(torch.tensor([-40.0, 40.0])).tolist(), 51))
    spacing = objective.returns.diff()
    assert objective.returns[[0, 25, 50]].tolist() == pytest.approx([-40.0, 0.0, 40.0], abs=1e-4)
    assert 0.4 < spacing[25] < 0.5 < 2.4 < spacing[-1]
    for value in (-3.0, -0.1, 0.0, 0.3, 15.0, 30.0):
        wanted = torch.tensor([value])
        mass = histograms(rescaled(wanted), objective.atoms, 0.75)
        logits = mass.clamp(min=1e-12).log().unsqueeze(1)  # (1, 1, Z)
        assert objective.values(logits).item() == pytest.approx(value, abs=0.01 + 0.01 * abs(value))
        batch = Batch(wanted, torch.zeros(1, dtype=torch.int64), wanted, wanted, wanted)
        errors = objective.errors(logits, batch, logits, logits)
        assert errors.priority.item() < 0.01 + 0.01 * abs(value)
        assert errors.loss.item() == pytest.approx(float(-mass.xlogy(mass).sum()), abs=1e-4)  # its own entropy


def test_a_network_that_learns_histograms_has_the_mean_of_returns() -> None:
    """Of two returns of one action the return that the mean of the rescaled ones stands for; errors as priorities."""
    objective = HistogramObjective(ATOMS)
    logits = torch.zeros(1, 2, 51, requires_grad=True)
    returns = torch.tensor([3.0, 8.0])  # rescaled 1 and 2
    none = torch.zeros(2)
    batch = Batch(none, torch.zeros(2, dtype=torch.int64), returns, none, none)
    optimizer = torch.optim.Adam([logits], lr=0.1)
    for _ in range(400):
        optimizer.zero_grad()
        errors = objective.errors(logits.expand(2, -1, -1), batch, logits, logits)
        errors.loss.mean().backward()
        optimizer.step()
    assert objective.values(logits.detach())[0, 0].item() == pytest.approx(5.25, abs=0.05)
    assert errors.priority.tolist() == pytest.approx([2.25, 2.75], abs=0.05)
    assert objective.values(logits.detach())[0, 1].item() == pytest.approx(0.0, abs=1e-5)  # the other action


def test_wrong_shapes_of_distributions_raise() -> None:
    with pytest.raises(ValueError, match="must be"):
        categorical_projection(torch.zeros(2, 51), torch.zeros(51), ATOMS)
    with pytest.raises(ValueError, match="must be"):
        categorical_target(torch.zeros(2, 1), torch.zeros(2), torch.zeros(2, 6, 51), torch.zeros(2, 6), ATOMS)
    with pytest.raises(ValueError, match="must be"):
        kl_divergences(torch.zeros(2, 51), torch.zeros(51))
    with pytest.raises(ValueError, match="must be"):
        histograms(torch.zeros(2, 1), ATOMS, 0.75)
    with pytest.raises(ValueError, match="must be"):
        expected_values(torch.zeros(2, 6, 50), ATOMS)
    with pytest.raises(ValueError, match="must be"):
        weighted_mean(torch.zeros(2, 1), torch.zeros(2))
