"""The torso: bytes become numbers once, laid out as the convolutions want them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fastdqn.networks import convolution
from fastdqn.networks.convolution import in_blocks
from fastdqn.networks.tiles import tiled
from fastdqn.networks.torso import (
    DATA_EFFICIENT,
    DOPAMINE,
    NARROW,
    NATURE,
    TILES,
    Size,
    Torso,
    describe_unread,
    use_channels_last,
)
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


def test_centred_bytes_are_rounded_once_to_bf16_and_their_mean_before() -> None:
    obs = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16).repeat(1, 1, 3, 3)
    torso = Torso(1, 48, 48, 64.0, center_frames=True)
    whole = torch.arange(48 * 48).view(48, 48) % 256
    for mean in (whole.float(), torch.linspace(0.0, 255.0, 48 * 48).view(48, 48)):
        torso.center_frames(mean)
        exact = (obs.double() - mean.double()) / 64.0
        torch.testing.assert_close(torso.pixels(obs).double(), exact, rtol=1e-6, atol=1e-6)
        with torch.autocast("cpu", torch.bfloat16):
            pixels = torso.pixels(obs)
        assert pixels.dtype == torch.bfloat16
        away = (pixels.double() - exact).abs()
        assert bool((away <= (exact.abs() + mean / 64.0) / 2**8).all())
    torso.center_frames(whole.float())
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(torso.pixels(obs), ((obs.double() - whole) / 64.0).bfloat16())  # bf16 has them all


def test_centred_tiles_are_rounded_as_frames_are_but_not_scaled() -> None:
    obs = random_batch(2).obs
    torso = Torso(frame_scale=64.0, center_frames=True, size=TILES)
    use_channels_last(torso)
    mean = torch.linspace(0.0, 255.0, 84 * 84).view(84, 84)
    torso.center_frames(mean)
    exact = tiled(obs.float() - mean, (4, 3))
    torch.testing.assert_close(torso.pixels(obs), exact)
    with torch.autocast("cpu", torch.bfloat16):
        pixels = torso.pixels(obs)
    assert pixels.dtype == torch.bfloat16
    assert bool(((pixels - exact).abs() <= (exact.abs() + tiled(mean.expand(1, 4, -1, -1), (4, 3))) / 2**8).all())


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


@pytest.mark.parametrize(("size", "shape"), [(DATA_EFFICIENT, (2 * 3, 5 * 5, 5 * 5)), (TILES, (4 * 7, 3 * 3, 4 * 4))])
@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("channels", [1, 4])
def test_tiles_are_the_convolutions(channels: int, center: bool, size: Size, shape: tuple[int, int, int]) -> None:
    """Of frames in either layout: features and gradients to rounding; what is left of the division stays unread."""
    torsos = [Torso(channels, 53, 84, 64.0, center, size) for _ in range(2)]
    plain, fast = torsos
    fast.load_state_dict(plain.state_dict())
    use_channels_last(fast)
    for torso in torsos:
        torso.center_frames(torch.linspace(0.0, 255.0, 53 * 84).view(53, 84))
    obs = torch.randint(256, (5, channels, 53, 84), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    assert fast.pixels(obs).shape == (5, *shape[:2], shape[2] * channels)
    for seen in (obs, obs.to(memory_format=torch.channels_last), obs[:1], obs.repeat(4, 1, 1, 1)):
        found = [torso(seen) for torso in torsos]
        torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)
        assert torch.equal(fast(fast.pixels(seen)), found[1])
        for torso, features in zip(torsos, found, strict=True):
            torso.zero_grad()
            features[:, ::7].sum().backward()
        for one, other in zip(plain.parameters(), fast.parameters(), strict=True):
            assert one.grad is not None
            assert other.grad is not None
            assert (one.grad - other.grad).norm() < 1e-4 * one.grad.norm()
            assert other.grad.stride() == other.stride()


@pytest.mark.parametrize("kind", [torch.uint8, torch.bfloat16, torch.float32])
def test_the_pixels_of_a_block_are_its_channels(kind: torch.dtype) -> None:
    planes = torch.randint(256, (3, 4, 8, 12), generator=torch.Generator().manual_seed(0)).to(kind)
    found = in_blocks(planes, 4)
    assert found.is_contiguous(memory_format=torch.channels_last)
    assert found.shape == (3, 64, 2, 3)
    for row in range(8):
        for column in range(12):
            first = (row % 4 * 4 + column % 4) * 4
            assert torch.equal(found[:, first : first + 4, row // 4, column // 4], planes[:, :, row, column])


@pytest.mark.parametrize(
    ("size", "height", "width"), [(NATURE, 60, 84), (NATURE, 84, 60), (NARROW, 60, 60), (DOPAMINE, 60, 84)]
)
@pytest.mark.parametrize("center", [False, True])
def test_frames_in_blocks_are_convolved_as_frames_are(
    monkeypatch: pytest.MonkeyPatch, center: bool, size: Size, height: int, width: int
) -> None:
    """With AMX; of frames in either layout: features and gradients are as near to float64's as those of bf16 are."""
    exact, usual, fast = (Torso(4, height, width, 64.0, center, size) for _ in range(3))
    for torso in (usual, fast):
        torso.load_state_dict(exact.state_dict())
        use_channels_last(torso)
    for torso in (exact, usual, fast):
        torso.center_frames(torch.linspace(0.0, 255.0, height * width).view(height, width))
    obs = torch.randint(256, (5, 4, height, width), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    for seen in (obs, obs.to(memory_format=torch.channels_last), obs[:1], obs[2:]):
        features = [exact.double()(exact.bordered(seen.double() / 64.0 - (_mean(exact) / 64.0 if center else 0.0)))]
        for torso, amx in ((usual, False), (fast, True)):
            monkeypatch.setattr(convolution, "has_amx", lambda amx=amx: amx)
            with torch.autocast("cpu", torch.bfloat16):
                pixels = torso.pixels(seen)
                features.append(torso(seen))
                assert torch.equal(torso(pixels), features[-1])
        border = 4 if size.padded else 0
        assert pixels.shape == (len(seen), 64, (height + border) // 4, (width + border) // 4)
        assert features[2].dtype == torch.bfloat16
        for torso, made in zip((exact, usual, fast), features, strict=True):
            torso.zero_grad()
            made[:, ::7].double().sum().backward()
        made = [
            [one, *(p.grad for p in torso.parameters())]
            for one, torso in zip(features, (exact, usual, fast), strict=True)
        ]
        for expected, rounded, found in zip(*made, strict=True):
            assert _away(found, expected) <= 1.5 * _away(rounded, expected)


def _mean(torso: Torso) -> Tensor:
    assert torso.mean_frame is not None
    return torso.mean_frame


def _away(found: Tensor | None, expected: Tensor | None) -> float:
    assert found is not None
    assert expected is not None
    return float((found.double() - expected).detach().norm())


@pytest.mark.parametrize(
    ("size", "channels", "height", "width"),
    [(NATURE, 1, 84, 84), (NATURE, 4, 84, 86), (NATURE, 4, 86, 84)],
)
def test_other_frames_are_not_in_blocks(
    monkeypatch: pytest.MonkeyPatch, size: Size, channels: int, height: int, width: int
) -> None:
    monkeypatch.setattr(convolution, "has_amx", lambda: True)
    torso = Torso(channels, height, width, size=size)
    use_channels_last(torso)
    obs = torch.zeros(2, channels, height, width, dtype=torch.uint8)
    with torch.autocast("cpu", torch.bfloat16):
        assert torso.pixels(obs).shape == obs.shape
        torso(obs)


def test_frames_are_in_blocks_only_to_learn_with_amx_in_bf16_and_channels_last(monkeypatch: pytest.MonkeyPatch) -> None:
    obs = torch.zeros(2, 4, 84, 84, dtype=torch.uint8)
    for amx, last, lowered in ((True, True, False), (True, False, True), (False, True, True), (True, True, True)):
        monkeypatch.setattr(convolution, "has_amx", lambda amx=amx: amx)
        torso = Torso()
        if last:
            use_channels_last(torso)
        with torch.autocast("cpu", torch.bfloat16, enabled=lowered):
            assert (torso.pixels(obs).shape[1] == 64) == (amx and last and lowered)
            with torch.no_grad():  # blocks are no gain there
                assert torso.pixels(obs).shape[1] == 4


def test_only_convolutions_that_read_every_pixel_once_are_tiles() -> None:
    tiles = {DATA_EFFICIENT: (9, 25, 100), TILES: (49, 9, 64)}
    for size in (NATURE, DATA_EFFICIENT, DOPAMINE, TILES):
        torso = Torso(size=size)
        use_channels_last(torso)
        obs = random_batch(2).obs
        assert torso.pixels(obs).shape[1:] == tiles.get(size, torso.bordered(obs).shape[1:])


@pytest.mark.parametrize("size", [NATURE, DATA_EFFICIENT, TILES, DOPAMINE], ids=lambda size: size.name)
@pytest.mark.parametrize("shape", [(84, 84), (64, 60), (67, 71)])
def test_a_torso_says_which_pixels_it_reads(size: Size, shape: tuple[int, int]) -> None:
    torso = Torso(1, *shape, size=size)
    pixels = torch.ones(1, 1, *shape, requires_grad=True)
    for layer in torso.convs:
        if isinstance(layer, nn.Conv2d):
            nn.init.uniform_(layer.weight, 0.5, 1.0)  # so that no rectifier hides one
    torso(torso.bordered(pixels)).sum().backward()
    assert pixels.grad is not None
    seen = pixels.grad[0, 0] != 0
    rows, columns = torso.read
    assert seen[:rows, :columns].all()
    assert seen.sum() == rows * columns


def test_only_pixels_that_are_left_out_are_named() -> None:
    assert describe_unread(Torso(4, 84, 84)) == describe_unread(Torso(4, 60, 60)) == ()
    (line,) = describe_unread(Torso(4, 64, 60))
    assert line == "of frames of 64x60 its convolutions read the first 60 rows and 60 columns"
