"""The torso: bytes become numbers once, laid out as the convolutions want them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from fastdqn.networks.torso import Torso, use_channels_last
from tests.helpers.learners import network, random_batch


def test_pixels_are_scaled_to_one() -> None:
    net = network()
    obs = random_batch(3).obs
    by_hand = net.head(net.torso.convs(obs.double().div(255).float()))
    torch.testing.assert_close(net(obs), by_hand, rtol=1e-5, atol=1e-6)


def test_weights_start_as_pytorchs() -> None:
    net, reference = network(), nn.Conv2d(4, 32, 8, 4)
    ours = net.torso.convs[0].weight
    bound = 1 / np.sqrt(4 * 8 * 8)
    assert ours.abs().max() <= bound
    assert ours.std().item() == pytest.approx(reference.weight.std().item(), rel=0.1)


@pytest.mark.parametrize("scale", [255.0, 64.0])
def test_every_byte_is_rounded_once_to_bf16(scale: float) -> None:
    obs = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16).repeat(1, 1, 3, 3)
    torso = Torso(1, 48, 48, scale)
    exact = obs.float() * (1.0 / scale)
    torch.testing.assert_close(torso.pixels(obs), exact, rtol=0, atol=0)
    with torch.autocast("cpu", torch.bfloat16):
        pixels = torso.pixels(obs)
    assert pixels.dtype == torch.bfloat16
    assert torch.equal(pixels, exact.bfloat16())


@pytest.mark.parametrize("center", [False, True])
def test_pixels_are_laid_out_as_the_convolutions_want_them(center: bool) -> None:
    obs = random_batch(3).obs
    plain = Torso(center_frames=center)
    assert plain.pixels(obs).is_contiguous()
    last = Torso(center_frames=center)
    use_channels_last(last)
    for said in (obs, obs.to(memory_format=torch.channels_last)):
        pixels = last.pixels(said)
        assert pixels.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(pixels, plain.pixels(obs))
