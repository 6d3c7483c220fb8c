"""The network: its size, its initial weights, its dueling head."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from fastdqn.errors import UserError
from fastdqn.networks.qnetwork import DuelingHead, HeadParts, QNetwork, Stream, draw_first_weights
from fastdqn.networks.torso import DATA_EFFICIENT, DOPAMINE, NARROW, NATURE, TILES, WIDE, Size, Torso, _padding
from tests.helpers.learners import SHAPE, network, random_batch


def test_network_is_natures() -> None:
    net = network()
    assert sum(p.numel() for p in net.parameters()) == 1_687_206  # conv 8,224 + 32,832 + 36,928, 3136x512+512, 512x6+6
    shapes = [tuple(p.shape) for p in net.parameters() if p.dim() > 1]
    assert shapes == [(32, 4, 8, 8), (64, 32, 4, 4), (64, 64, 3, 3), (512, 3136), (6, 512)]
    out = net(torch.zeros(2, 4, 84, 84, dtype=torch.uint8))
    assert (out.shape, out.dtype) == ((2, 6), torch.float32)


def test_same_seed_same_weights_whatever_else_draws() -> None:
    a = network(5)
    torch.rand(100)
    b = network(5)
    assert all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))
    assert not torch.equal(next(a.parameters()), next(network(6).parameters()))


@pytest.mark.parametrize("first", ["pytorch", "xavier", "dopamine"])
def test_first_weights_are_in_their_bounds(first: str) -> None:
    """Beside PyTorch's own for Xavier's, and a bound by hand for Dopamine's; a reset draws the same kind."""
    net = QNetwork(SHAPE, 6, torch.Generator().manual_seed(0), init=first)
    for _ in range(2):
        for layer in net.modules():
            if isinstance(layer, nn.Conv2d | nn.Linear):
                fan_in = layer.weight[0].numel()
                bound = {"pytorch": fan_in**-0.5, "dopamine": (3.0**0.5 / fan_in) ** 0.5}.get(first)
                if bound is None:
                    bound = float(nn.init.xavier_uniform_(torch.empty_like(layer.weight)).max())
                assert float(layer.weight.detach().abs().max()) == pytest.approx(bound, rel=0.01)
                assert layer.bias.any() == (first == "pytorch")
                nn.init.constant_(layer.bias, 7.0)
                nn.init.constant_(layer.weight, 7.0)
        draw_first_weights(net, torch.Generator().manual_seed(1))


def test_first_weights_of_noisy_layers_are_their_papers() -> None:
    noisy, usual = (
        QNetwork(SHAPE, 6, torch.Generator().manual_seed(0), parts=RAINBOW, init=first)
        for first in ("xavier", "pytorch")
    )
    for one, other in zip(noisy.head.parameters(), usual.head.parameters(), strict=True):
        assert float(one.detach().abs().max()) == pytest.approx(float(other.detach().abs().max()), rel=0.1)


def test_too_small_frames_are_one_sentence() -> None:
    with pytest.raises(UserError, match="36x36"):
        QNetwork((4, 20, 20), 6, torch.Generator())


def test_the_narrow_network_takes_small_frames() -> None:
    net = QNetwork((4, 42, 42), 6, torch.Generator().manual_seed(0), size=NARROW)
    assert net(torch.zeros(2, 4, 42, 42, dtype=torch.uint8)).shape == (2, 6)
    assert [tuple(p.shape) for p in net.parameters() if p.dim() > 1] == [
        (16, 4, 8, 8),
        (32, 16, 4, 4),
        (32, 32, 3, 3),
        (256, 32),
        (6, 256),
    ]


def arithmetic(size: Size) -> tuple[list[tuple[int, ...]], int]:
    """Shapes of the weights of a network for frames of 84x84, and the products of one forward pass."""
    net = QNetwork(SHAPE, 6, torch.Generator().manual_seed(0), size=size)
    weights = [p for p in net.parameters() if p.dim() > 1]
    places = (20 * 20, 9 * 9, 7 * 7, 1, 1)  # where each weight is used
    return [tuple(p.shape) for p in weights], sum(p.numel() * n for p, n in zip(weights, places, strict=True))


def test_arithmetic_of_the_networks() -> None:
    _, nature = arithmetic(NATURE)
    shapes, narrow = arithmetic(NARROW)
    assert shapes == [(16, 4, 8, 8), (32, 16, 4, 4), (32, 32, 3, 3), (256, 1568), (6, 256)]
    assert 0.3 < narrow / nature < 0.37
    shapes, wide = arithmetic(WIDE)
    assert shapes == [(64, 4, 8, 8), (128, 64, 4, 4), (128, 128, 3, 3), (1024, 6272), (6, 1024)]
    assert 3.2 < wide / nature < 3.4
    with pytest.raises(UserError, match="the narrow network needs frames of at least 36x36"):
        QNetwork((4, 35, 35), 6, torch.Generator(), size=NARROW)


def test_dueling_subtracts_the_mean_over_actions() -> None:
    """V = 2x, A = (x, 3x, 8x): Q = 2x + A - 4x, whatever else is in the batch."""

    def stream(outputs: int) -> Stream:
        layer = nn.Linear(1, outputs, bias=False)
        with torch.no_grad():
            layer.weight.copy_(torch.tensor([[2.0]] if outputs == 1 else [[1.0], [3.0], [8.0]]))
        return Stream(layer)

    head = DuelingHead(stream, 3, None)
    expected = [[-1.0, 1.0, 6.0], [-10.0, 10.0, 60.0]]
    assert head(torch.tensor([[1.0], [10.0]])).tolist() == expected
    assert head(torch.tensor([[1.0]])).tolist() == expected[:1]


def test_dueling_of_distributions_subtracts_the_mean_of_each_atom() -> None:
    net = QNetwork(SHAPE, 6, torch.Generator().manual_seed(0), parts=HeadParts(dueling=True, atoms=51))
    obs = random_batch(3).obs
    features = net.torso(obs)
    value, advantage = net.head.value(features), net.head.advantage(features).view(3, 6, 51)  # type: ignore[operator, union-attr]
    by_hand = torch.stack(
        [torch.stack([value[b] + advantage[b, a] - advantage[b].sum(dim=0) / 6 for a in range(6)]) for b in range(3)]
    )
    torch.testing.assert_close(net(obs), by_hand)


RAINBOW = HeadParts(dueling=True, noise="factorised", sigma=0.1, atoms=51)


def test_data_efficient_rainbows_network() -> None:
    net = QNetwork(SHAPE, 6, torch.Generator().manual_seed(0), parts=RAINBOW, size=DATA_EFFICIENT)
    weights = [tuple(p.shape) for name, p in net.named_parameters() if p.dim() > 1 and "sigma" not in name]
    assert weights == [(32, 4, 5, 5), (64, 32, 5, 5), (256, 576), (51, 256), (256, 576), (306, 256)]
    assert net(torch.zeros(2, 4, 84, 84, dtype=torch.uint8)).shape == (2, 6, 51)


def test_the_network_of_tiles_leaves_no_pixel_out() -> None:
    net = QNetwork(SHAPE, 6, torch.Generator().manual_seed(0), parts=HeadParts(dueling=True), size=TILES)
    weights = [tuple(p.shape) for p in net.parameters() if p.dim() > 1]
    assert weights == [(32, 4, 4, 4), (64, 32, 3, 3), (256, 64 * 7 * 7), (1, 256), (6, 256)]
    obs = random_batch(1).obs
    before = net.torso(obs)
    for row, column in ((0, 0), (83, 83), (0, 83), (41, 42)):
        changed = obs.clone()
        changed[0, 3, row, column] ^= 255
        assert not torch.equal(net.torso(changed), before)


def test_dopamines_network_is_padded_and_its_streams_share_their_hidden_layer() -> None:
    """Flax's convolutions pad as TensorFlow's "SAME": 84 pixels leave 21, then 11 and 11."""
    assert [_padding(*sides) for sides in ((84, 8, 4), (21, 4, 2), (11, 3, 1))] == [(2, 2), (1, 2), (1, 1)]
    net = QNetwork(SHAPE, 6, torch.Generator().manual_seed(0), parts=RAINBOW, size=DOPAMINE)
    assert net.torso.features == 64 * 11 * 11
    weights = [tuple(p.shape) for name, p in net.named_parameters() if p.dim() > 1 and "sigma" not in name]
    assert weights == [(32, 4, 8, 8), (64, 32, 4, 4), (64, 64, 3, 3), (512, 7744), (51, 512), (306, 512)]
    obs = random_batch(2).obs
    hidden = net.hidden(net.torso(obs))
    value, advantage = net.head.value(hidden).view(2, 1, 51), net.head.advantage(hidden).view(2, 6, 51)
    torch.testing.assert_close(net(obs), value + advantage - advantage.mean(dim=1, keepdim=True))
    plain = QNetwork(SHAPE, 6, torch.Generator().manual_seed(0), size=DOPAMINE)  # without dueling there is one stream
    assert [tuple(p.shape) for p in plain.head.parameters() if p.dim() > 1] == [(512, 7744), (6, 512)]


def test_a_padded_torso_is_its_convolutions_over_zeros() -> None:
    torso, obs = Torso(size=DOPAMINE), random_batch(2).obs
    convs = [layer for layer in torso.convs if isinstance(layer, nn.Conv2d)]
    x = obs.double() / 255
    for conv, (before, behind) in zip(convs, ((2, 2), (1, 2), (1, 1)), strict=True):
        zeros = torch.zeros(*x.shape[:2], x.shape[2] + before + behind, x.shape[3] + before + behind, dtype=x.dtype)
        zeros[:, :, before : before + x.shape[2], before : before + x.shape[3]] = x
        x = nn.functional.conv2d(zeros, conv.weight.double(), conv.bias.double(), conv.stride).clamp(min=0)
    torch.testing.assert_close(torso(obs), x.flatten(1).float(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("wrong", [{"init": "Xavier"}, {"parts": HeadParts(noise="factorized")}])
def test_a_name_that_nothing_has_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="there is no init"):
        QNetwork((4, 36, 36), 3, torch.Generator(), **wrong)
