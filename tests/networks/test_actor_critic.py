"""The network of an actor-critic: shapes, what the heads share, and what a seed fixes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fastdqn.networks.actor_critic import actor_critic
from fastdqn.networks.torso import torsos
from tests.helpers.networks import apart

SHAPE = (4, 84, 84)


def network(shape: tuple[int, ...] = SHAPE, seed: int = 0) -> nn.Module:
    return actor_critic(shape, 6, torch.Generator().manual_seed(seed))


def test_it_has_natures_convolutions_and_two_heads_of_512() -> None:
    found = network()
    convolutions = 32 * (4 * 64 + 1) + 64 * (32 * 16 + 1) + 64 * (64 * 9 + 1)
    head = 512 * (3136 + 1)
    expected = convolutions + 2 * head + 6 * 513 + 513
    assert sum(parameter.numel() for parameter in found.parameters()) == expected
    logits, values = found(torch.zeros(3, *SHAPE, dtype=torch.uint8))
    assert (logits.shape, values.shape, logits.dtype) == ((3, 6), (3,), torch.float32)


def test_bytes_are_divided_by_256() -> None:
    found = network()
    obs = torch.randint(0, 256, (2, *SHAPE), dtype=torch.uint8)
    features = found.body.convs(obs.float() / 256.0)
    torch.testing.assert_close(found(obs)[0], found.policy(features))
    torch.testing.assert_close(found(obs)[1], found.value(features)[:, 0])


def test_the_heads_share_the_convolutions_alone() -> None:
    found = network()
    found(torch.zeros(1, *SHAPE, dtype=torch.uint8))[1].sum().backward()
    with_gradient = {name.split(".")[0] for name, parameter in found.named_parameters() if parameter.grad is not None}
    assert with_gradient == {"body", "value"}


def test_in_one_stream_they_share_all_but_the_last_layer() -> None:
    found = actor_critic(SHAPE, 6, torch.Generator().manual_seed(0), one_stream=True)
    convolutions = 32 * (4 * 64 + 1) + 64 * (32 * 16 + 1) + 64 * (64 * 9 + 1)
    expected = convolutions + 512 * (3136 + 1) + 6 * 513 + 513
    assert sum(parameter.numel() for parameter in found.parameters()) == expected
    logits, values = found(torch.zeros(3, *SHAPE, dtype=torch.uint8))
    assert (logits.shape, values.shape, logits.dtype) == ((3, 6), (3,), torch.float32)
    assert sum(parameter.numel() for parameter in found.get_submodule("value").parameters()) == 513


def test_for_vectors_they_share_nothing() -> None:
    found = network((4,))
    logits, values = found(torch.randn(7, 4))
    assert (logits.shape, values.shape) == ((7, 6), (7,))
    logits.sum().backward()
    with_gradient = {name.split(".")[0] for name, parameter in found.named_parameters() if parameter.grad is not None}
    assert with_gradient == {"policy"}


def test_a_seed_fixes_the_weights() -> None:
    torch.manual_seed(0)
    one = network((4,)).state_dict()
    torch.manual_seed(1)
    same, other = network((4,)).state_dict(), network((4,), seed=1).state_dict()
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not any(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(("shape", "numbered"), [(SHAPE, True), ((4,), True), ((4,), False)])
@pytest.mark.parametrize("orthogonal", [True, False])
def test_first_weights_may_be_orthogonal(shape: tuple[int, ...], numbered: bool, orthogonal: bool) -> None:
    """By default they are not, the control. All actions are about as probable then, or vectors near 0."""
    rng = torch.Generator().manual_seed(0)
    found = actor_critic(shape, 6, rng, one_stream=True, numbered=numbered, orthogonal=orthogonal)
    layers = {name: m for name, m in found.named_modules() if isinstance(m, nn.Conv2d | nn.Linear)}
    (policy, *_), (value, *_) = ([n for n in reversed(layers) if n.startswith(head)] for head in ("policy", "value"))
    gains = {**dict.fromkeys(layers, 2.0**0.5), policy: 0.01, value: 1.0}
    assert all((apart(layer, gains[name]) < 1e-4 * gains[name] ** 2) == orthogonal for name, layer in layers.items())
    assert all(bool(layer.bias.any()) != orthogonal for layer in layers.values() if layer.bias is not None)
    same = actor_critic(shape, 6, rng.manual_seed(0), one_stream=True, numbered=numbered, orthogonal=orthogonal)
    assert all(torch.equal(one, other) for one, other in zip(found.parameters(), same.parameters(), strict=True))


def test_a_mean_frame_is_subtracted_before_the_division() -> None:
    rng = torch.Generator().manual_seed(0)
    found = actor_critic(SHAPE, 6, rng, one_stream=True, frame_scale=64.0, center_frames=True)
    mean = torch.rand(84, 84) * 200.0
    (torso,) = torsos(found)
    torso.center_frames(mean)
    obs = torch.randint(0, 256, (2, *SHAPE), dtype=torch.uint8)
    convs, hidden, relu = torso.convs, *list(found.get_submodule("body"))[1:]
    features = relu(hidden(convs((obs.float() - mean) / 64.0)))
    torch.testing.assert_close(found(obs)[0], found.get_submodule("policy")(features))
    assert torch.equal(found.state_dict()["body.0.mean_frame"], mean)
