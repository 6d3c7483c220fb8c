"""Lowered networks compute what autocast computes, and gradients do not depend on the number of threads."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fastdqn.algorithms.dqn import DQNLearner
from fastdqn.algorithms.form import Form
from fastdqn.networks import convolution
from fastdqn.networks.convolution import Convolution
from fastdqn.networks.lowered import backward
from fastdqn.networks.torso import use_channels_last
from fastdqn.options.dqn import UpdateOptions
from fastdqn.options.parts import VARIANTS
from tests.helpers.learners import FAST, learner_from, network, options_of, random_batch

BF16 = dataclasses.replace(FAST, bf16=True)


def autocast_gradients(learner: DQNLearner, obs: Tensor) -> list[Tensor]:
    """Gradients of the sum of the values, by the float32 weights under autocast."""
    full = learner.network
    for parameter in full.parameters():
        parameter.grad = None
    with torch.autocast("cpu", torch.bfloat16):
        values = full(obs)
    values.sum().backward()
    return [parameter.grad for parameter in full.parameters() if parameter.grad is not None]


@pytest.mark.parametrize("variant", VARIANTS)
def test_values_are_those_of_autocast_bit_for_bit(variant: Any) -> None:
    """After updates, copies and with noise: the weights in bfloat16 are never those of before."""
    learner = learner_from(options_of(variant), form=BF16)
    obs = random_batch(8, seed=9).obs
    for seed in range(3):
        learner.update(random_batch(16, seed=seed))
        if seed == 1:
            learner.sync_target()
        for full, computing in ((learner.network, learner.computing), (learner.target, learner._target)):
            learner.values(obs)
            for mine, other in zip(noises(full), noises(computing), strict=True):
                mine.copy_(other)
            with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
                assert torch.equal(full(obs), computing(obs))


def test_weights_that_somebody_else_wrote_are_taken() -> None:
    learner, other = (learner_from(options_of("dqn"), form=BF16) for _ in range(2))
    other.update(random_batch(16))
    obs = random_batch(8).obs
    assert not torch.equal(learner.values(obs), other.values(obs))
    learner.network.load_state_dict(other.network.state_dict())
    assert torch.equal(learner.values(obs), other.values(obs))


def noises(net: nn.Module) -> list[Tensor]:
    return [buffer for name, buffer in net.named_buffers() if "noise" in name]


def test_an_averaged_target_and_a_loaded_learner_are_lowered_too() -> None:
    options = options_of("dqn")
    options = dataclasses.replace(options, agent=dataclasses.replace(options.agent, target_average=0.1))
    learner, other = learner_from(options, form=BF16), learner_from(options, form=BF16)
    obs = random_batch(8, seed=9).obs
    learner.update(random_batch(16))
    other.load(learner.state())
    for one in (learner, other):
        one.values(obs)
        for full, computing in ((one.network, one.computing), (one.target, one._target)):
            with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
                assert torch.equal(full(obs), computing(obs))


@pytest.mark.parametrize(("variant", "rows"), [("dqn", 16), ("noisy", 16), ("noisy", 32)])
def test_gradients_are_those_of_autocast(variant: Any, rows: int) -> None:
    """Up to one rounding: the weights of the last convolution are summed in another order. Twice, since a gradient is
    left where there was one before; and for few rows and many, which noisy layers compute in two ways.
    """
    learner = learner_from(options_of(variant), form=BF16)
    assert learner._lowered is not None
    for seed in range(2):
        obs = random_batch(rows, seed=seed).obs
        learner.draw_noise()
        for mine, other in zip(noises(learner.network), noises(learner.computing), strict=True):
            mine.copy_(other)
        by_hand = autocast_gradients(learner, obs)
        backward(learner.outputs(obs).sum(), learner.group.parameters, learner._lowered)
        for parameter, expected in zip(learner.group.parameters, by_hand, strict=True):
            assert parameter.grad is not None
            assert parameter.grad.dtype == torch.float32
            assert (parameter.grad - expected).norm() < 3e-3 * expected.norm()


@pytest.mark.parametrize("variant", ["dqn", "distributional"])
@pytest.mark.parametrize("form", [FAST, BF16])
def test_still_values_stay_what_acting_values_were(form: Form, variant: str) -> None:
    """In another process, too."""
    learner = learner_from(options_of(variant), form=form)
    obs = random_batch(16).obs
    learner.update(random_batch(8))
    before = learner.acting_values(obs)
    still = learner.still_values()
    sent = pickle.loads(pickle.dumps(still))
    learner.update(random_batch(8))
    assert not torch.equal(learner.acting_values(obs), before)
    assert torch.equal(still(obs), before)
    assert torch.equal(sent(obs), before)


@pytest.mark.parametrize("amx", [False, True])
@pytest.mark.parametrize(
    ("channels", "kernel", "stride", "height", "width"),
    [
        *((8, 3, 1, 9, 8), (8, 4, 2, 10, 13), (1, 8, 4, 24, 24)),
        *((4, 8, 4, 24, 20), (4, 8, 4, 22, 25), (4, 5, 5, 20, 21), (4, 4, 4, 16, 20)),
    ],
)
def test_a_convolutions_own_gradients_are_those_of_a_plain_one(
    monkeypatch: pytest.MonkeyPatch, amx: bool, channels: int, kernel: int, stride: int, height: int, width: int
) -> None:
    monkeypatch.setattr(convolution, "has_amx", lambda: amx)
    torch.manual_seed(0)
    own = Convolution(channels, 16, kernel, stride).bfloat16().to(memory_format=torch.channels_last)
    plain = nn.Conv2d(channels, 16, kernel, stride).double()
    plain.load_state_dict(own.state_dict())
    x = torch.randn(5, channels, height, width)
    a = x.bfloat16().contiguous(memory_format=torch.channels_last).requires_grad_()
    b = a.detach().double().requires_grad_()
    found, expected = own(a), plain(b)
    wanted = "Product" if amx else "Steady" if stride == 1 else "ConvolutionBackward0"
    assert wanted in found.grad_fn.name()
    weight = torch.randn(expected.shape).bfloat16()
    (found * weight).sum().backward()
    (expected * weight.double()).sum().backward()
    pairs = [(a.grad, b.grad), *((s.grad, p.grad) for s, p in zip(own.parameters(), plain.parameters(), strict=True))]
    for one, other in pairs:
        assert one is not None
        assert other is not None
        assert (one.double() - other).norm() < 5e-3 * other.norm()


def test_the_last_layers_gradient_does_not_depend_on_threads() -> None:
    """In float32; PyTorch's own linear layer differs here with two threads."""
    before = torch.get_num_threads()
    net = network()
    use_channels_last(net)
    hidden = torch.randn(32, 512)
    target = torch.randn(32, 6)
    found: list[Tensor] = []
    try:
        for count in (1, 2, 4):
            torch.set_num_threads(count)
            last = net.head[-1]
            last.weight.grad = None
            (last(hidden) * target).sum().backward()
            assert last.weight.grad is not None
            found.append(last.weight.grad.clone())
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_centred_frames_are_centred_in_bfloat16_too() -> None:
    options = dataclasses.replace(options_of("dqn"), update=UpdateOptions(center_frames=True, frame_scale=64.0))
    learner, obs = learner_from(options, form=BF16), random_batch(4).obs
    learner.center_frames(torch.full((84, 84), 100.0))
    learner.values(obs)
    for full, computing in ((learner.network, learner.computing), (learner.target, learner._target)):
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            assert torch.equal(full(obs), computing(obs))
