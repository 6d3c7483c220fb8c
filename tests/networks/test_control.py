"""The networks of soft actor-critic: shapes, bounds, what a seed fixes, and orthogonal initial weights."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fastdqn.networks.control import LOG_STD_MAX, LOG_STD_MIN, GaussianActor, TwinCritic
from tests.helpers.networks import apart

OBS, ACTIONS, HIDDEN = 5, 3, 16


def actor(orthogonal: bool = False, seed: int = 0) -> GaussianActor:
    return GaussianActor(OBS, ACTIONS, torch.Generator().manual_seed(seed), HIDDEN, orthogonal)


def critic(orthogonal: bool = False, seed: int = 0) -> TwinCritic:
    return TwinCritic(OBS, ACTIONS, torch.Generator().manual_seed(seed), HIDDEN, orthogonal)


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    rng = torch.Generator().manual_seed(1)
    return torch.randn(7, OBS, generator=rng), 2.0 * torch.rand(7, ACTIONS, generator=rng) - 1.0


def perceptrons(orthogonal: bool) -> list[list[nn.Linear]]:
    """Return the layers of the actor and of each critic."""
    critics = critic(orthogonal)
    streams = (actor(orthogonal).layers, critics.first, critics.second)
    return [[layer for layer in stream if isinstance(layer, nn.Linear)] for stream in streams]


def test_shapes() -> None:
    obs, action = inputs()
    mean, log_std = actor()(obs)
    first, second = critic()(obs, action)
    assert (mean.shape, log_std.shape) == ((7, ACTIONS), (7, ACTIONS))
    assert (first.shape, second.shape) == ((7,), (7,))
    assert [[tuple(layer.weight.shape) for layer in layers] for layers in perceptrons(False)] == [
        [(HIDDEN, OBS), (HIDDEN, HIDDEN), (2 * ACTIONS, HIDDEN)],
        *(2 * [[(HIDDEN, OBS + ACTIONS), (HIDDEN, HIDDEN), (1, HIDDEN)]]),
    ]


def test_first_weights_are_orthogonal_and_biases_0() -> None:
    for layers in perceptrons(True):
        gains = [2.0**0.5, 2.0**0.5, 1.0]
        assert all(apart(layer, gain) < 1e-5 for layer, gain in zip(layers, gains, strict=True))
        assert not any(bool(layer.bias.any()) for layer in layers)


def test_by_default_they_are_not() -> None:
    """The control."""
    for layers in perceptrons(False):
        assert all(apart(layer, gain) > 0.1 for layer in layers for gain in (2.0**0.5, 1.0))
        assert all(bool(layer.bias.all()) for layer in layers)


@pytest.mark.parametrize("orthogonal", [False, True])
def test_a_seed_fixes_the_weights(orthogonal: bool) -> None:
    for build in (actor, critic):
        torch.manual_seed(0)
        one = build(orthogonal).state_dict()
        torch.manual_seed(1)
        same, other = build(orthogonal).state_dict(), build(orthogonal, seed=1).state_dict()
        assert all(torch.equal(one[name], same[name]) for name in one)
        assert not any(torch.equal(one[name], other[name]) for name in one if name.endswith("weight"))


@pytest.mark.parametrize("orthogonal", [False, True])
def test_critics_share_nothing(orthogonal: bool) -> None:
    found = critic(orthogonal)
    obs, action = inputs()
    first, second = found(obs, action)
    assert not torch.equal(first, second)
    first.sum().backward()
    with_gradient = {name.split(".")[0] for name, one in found.named_parameters() if one.grad is not None}
    assert with_gradient == {"first"}


def test_the_deviation_is_bounded_and_the_mean_is_not() -> None:
    found = actor()
    last = found.layers[-1]
    assert isinstance(last, nn.Linear)
    for bias, bound in ((-50.0, LOG_STD_MIN), (50.0, LOG_STD_MAX)):
        nn.init.constant_(last.bias, bias)
        mean, log_std = found(torch.zeros(1, OBS))
        assert log_std.tolist() == [[bound] * ACTIONS]
        assert float(mean.detach().abs().min()) > 40.0
    nn.init.constant_(last.bias, 0.5)
    assert torch.all((found(torch.zeros(1, OBS))[1] - 0.5).abs() < 0.5)  # between them it is as the layer says


def test_values_depend_on_both_observation_and_action() -> None:
    found = critic()
    obs, action = (one.requires_grad_() for one in inputs())
    for value in found(obs, action):
        grads = torch.autograd.grad(value.sum(), (obs, action))
        assert all(bool((grad != 0).any(dim=1).all()) for grad in grads)
