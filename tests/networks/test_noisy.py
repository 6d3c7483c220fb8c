"""Noisy layers: numbers and variances of their papers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.nn import functional

from fastdqn.networks.noisy import FactorisedNoisyLinear, IndependentNoisyLinear, clear_noise, draw_noise, noisy_layers
from fastdqn.networks.qnetwork import HeadParts, QNetwork
from tests.helpers.learners import SHAPE


def test_factorised_noise_is_the_papers() -> None:
    """w = mu + sigma * f(e_out) f(e_in)^T, b = mu_b + sigma_b f(e_out), put together the plain way."""
    layer = FactorisedNoisyLinear(5, 3, 0.4)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        layer.weight.normal_(generator=generator)
        layer.weight_sigma.normal_(generator=generator)
        layer.bias.normal_(generator=generator)
        layer.bias_sigma.normal_(generator=generator)
    state = generator.get_state()
    draw_noise([layer], generator)
    generator.set_state(state)
    e_in, e_out = (torch.randn(n, generator=generator) for n in (5, 3))
    f_in, f_out = (e.sign() * e.abs().sqrt() for e in (e_in, e_out))
    torch.testing.assert_close(layer.noise_in, f_in)
    torch.testing.assert_close(layer.noise_out, f_out)
    weight = layer.weight + layer.weight_sigma * torch.outer(f_out, f_in)
    for rows in (7, 100):  # two ways to compute the same
        x = torch.randn(rows, 5, generator=generator)
        torch.testing.assert_close(layer(x), functional.linear(x, weight, layer.bias + layer.bias_sigma * f_out))


def test_the_noise_of_all_layers_is_one_draw() -> None:
    """Layer by layer, first of its inputs and then of its outputs; those with independent noise draw their own."""
    layers = (FactorisedNoisyLinear(20, 7), IndependentNoisyLinear(4, 3), FactorisedNoisyLinear(7, 30))
    generator = torch.Generator().manual_seed(2)
    draw_noise(layers, generator)
    other = torch.Generator().manual_seed(2)
    independent = layers[1].weight_noise.clone()
    layers[1].draw(other)
    assert torch.equal(independent, layers[1].weight_noise)
    e = torch.randn(20 + 7 + 7 + 30, generator=other)
    got = torch.cat([noise for layer in (layers[0], layers[2]) for noise in (layer.noise_in, layer.noise_out)])
    torch.testing.assert_close(got, e.sign() * e.abs().sqrt())
    before = [layer.noise_in.clone() for layer in (layers[0], layers[2])]
    draw_noise(layers, generator)
    assert all((old != layer.noise_in).all() for old, layer in zip(before, (layers[0], layers[2]), strict=True))
    draw_noise((), generator)  # a network without noise


def test_noise_starts_as_the_papers_say() -> None:
    """sigma 0.5/sqrt(in) and mu within 1/sqrt(in); independent: sigma 0.017 and mu within sqrt(3/in)."""
    for kind, sigma, bound in (
        ("factorised", 0.5 / math.sqrt(3136), 1 / 56),
        ("independent", 0.017, math.sqrt(3) / 56),
    ):
        net = QNetwork(SHAPE, 6, torch.Generator().manual_seed(0), parts=HeadParts(noise=kind))
        first = next(iter(noisy_layers(net).values()))
        assert first.weight_sigma.unique().tolist() == pytest.approx([sigma])
        assert first.bias_sigma.unique().tolist() == pytest.approx([sigma])
        assert 0.99 * bound < first.weight.abs().max().item() <= bound
    net = QNetwork(SHAPE, 6, torch.Generator(), parts=HeadParts(noise="factorised", sigma=0.1))
    assert [layer.weight_sigma[0, 0].item() for layer in noisy_layers(net).values()] == pytest.approx(
        [0.1 / 56, 0.1 / math.sqrt(512)]
    )


@pytest.mark.parametrize("kind", [FactorisedNoisyLinear, IndependentNoisyLinear])
def test_variance_of_the_output(kind: Any) -> None:
    """With x = 1: factorised noise has E f(e)^2 = E|e| = sqrt(2/pi) for each factor, and the bias shares e_out."""
    layer, draws, inputs = kind(16, 2, 0.3), 8_000, 16
    with torch.no_grad():
        layer.weight.zero_()
        layer.bias.zero_()
    generator = torch.Generator().manual_seed(0)
    out = []
    with torch.no_grad():
        for _ in range(draws):
            draw_noise([layer], generator)
            out.append(layer(torch.ones(1, inputs)))
    values = torch.cat(out)
    sigma = layer.weight_sigma[0, 0].item()
    m = math.sqrt(2 / math.pi)
    expected = sigma**2 * (inputs * m * m + m) if kind is FactorisedNoisyLinear else sigma**2 * (inputs + 1)
    assert values.mean(dim=0).abs().max().item() < 5 * math.sqrt(expected / draws)
    assert values.var(dim=0).tolist() == pytest.approx([expected] * 2, rel=0.12)


@pytest.mark.parametrize("kind", [FactorisedNoisyLinear, IndependentNoisyLinear])
@pytest.mark.parametrize("rows", [3, 100])
def test_without_noise_the_means_compute(kind: Any, rows: int) -> None:
    layer, x = kind(5, 4, 0.4), torch.randn(rows, 5)
    with torch.no_grad():
        layer.weight.normal_()
        layer.bias.normal_()
    draw_noise([layer], torch.Generator().manual_seed(1))
    means = functional.linear(x, layer.weight, layer.bias)
    assert (layer(x) - means).abs().max() > 0.01
    clear_noise([layer])
    torch.testing.assert_close(layer(x), means)
