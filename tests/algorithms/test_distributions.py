"""Distributions of actions: numbers by hand, PyTorch's own as a reference, and where clipping is not."""

from __future__ import annotations

import math

import pytest
import torch

from fastdqn.algorithms.distributions import Categorical, DiagonalGaussian


def gaussian(*said: float) -> DiagonalGaussian:
    return DiagonalGaussian(torch.tensor([said], dtype=torch.float64))


def test_a_normal_distribution_by_hand() -> None:
    """Means 1 and -2, deviations 1 and 2: at the means the density is that of two bells, at 3 and 0 a 2nd and a 1st
    deviation away.
    """
    one = gaussian(1.0, -2.0, 0.0, math.log(2.0))
    peak = -math.log(2.0 * math.pi) - math.log(2.0)
    at = {(1.0, -2.0): peak, (3.0, 0.0): peak - 2.0 - 0.5}
    for action, expected in at.items():
        said = one.log_probability(torch.tensor([action], dtype=torch.float64))
        assert said.shape == (1,)
        assert said.item() == pytest.approx(expected, abs=1e-12)
    assert one.entropy().item() == pytest.approx(1.0 + math.log(2.0 * math.pi) + math.log(2.0), abs=1e-12)


def test_pytorchs_own_say_the_same() -> None:
    rng = torch.Generator().manual_seed(0)
    said = torch.randn(5, 6, generator=rng, dtype=torch.float64)
    action = torch.randn(5, 3, generator=rng, dtype=torch.float64)
    normal, ours = torch.distributions.Normal(said[:, :3], said[:, 3:].exp()), DiagonalGaussian(said)
    torch.testing.assert_close(ours.log_probability(action), normal.log_prob(action).sum(1))
    torch.testing.assert_close(ours.entropy(), normal.entropy().sum(1))
    several, of_several, chosen = Categorical(said), torch.distributions.Categorical(logits=said), torch.arange(5)
    torch.testing.assert_close(several.log_probability(chosen), of_several.log_prob(chosen))
    torch.testing.assert_close(several.entropy(), of_several.entropy())


def test_draws_have_the_mean_and_the_deviation_and_are_not_clipped() -> None:
    many = DiagonalGaussian(torch.tensor([[0.5, 0.0]]).repeat(20_000, 1))
    drawn = many.draw(torch.Generator().manual_seed(0))
    assert drawn.shape == (20_000, 1)
    assert drawn.mean().item() == pytest.approx(0.5, abs=4 / math.sqrt(20_000))
    assert drawn.std().item() == pytest.approx(1.0, abs=0.03)
    assert drawn.max().item() > 3.0
    counts = Categorical(torch.tensor([[0.0, math.log(3.0)]]).repeat(20_000, 1)).draw(torch.Generator().manual_seed(0))
    assert counts.float().mean().item() == pytest.approx(0.75, abs=0.015)
