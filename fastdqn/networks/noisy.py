"""Noisy layers: exploration by weights that are drawn anew (Fortunato et al. 2018)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from fastdqn.foreach import copy_all
from fastdqn.networks.arithmetic import arithmetic_on


class FactorisedNoisyLinear(nn.Module):
    """A linear layer whose weights are noisy, with factorised Gaussian noise (Fortunato et al. 2018, eq. 9-11).

    w = mu + sigma * f(e_out) f(e_in)^T and b = mu_b + sigma_b * f(e_out), where f(x) = sign(x) sqrt(|x|). All rows of a
    batch get the same noise, which `draw_noise` alone changes. Few rows are computed without putting w together: as its
    noise has rank one, y = mu x + mu_b + f(e_out) * (sigma (f(e_in) * x) + sigma_b), two products instead of one. On a
    CPU w is put together in bfloat16, where it is to be that.

    sigma starts at `sigma`/sqrt(in); the paper's is 0.5 (section 3.2). mu is not set before `draw_first_weights` draws
    it, uniformly in +-1/sqrt(in).
    """

    FEW = 24
    """Rows up to which two products cost less than putting w together."""

    noise_in: Tensor
    noise_out: Tensor

    def __init__(self, in_features: int, out_features: int, sigma: float = 0.5) -> None:
        super().__init__()
        start = sigma / math.sqrt(in_features)
        self.bound = 1.0 / math.sqrt(in_features)
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        self.bias = nn.Parameter(torch.empty(out_features))
        self.weight_sigma = nn.Parameter(torch.full((out_features, in_features), start))
        self.bias_sigma = nn.Parameter(torch.full((out_features,), start))
        self.register_buffer("noise_in", torch.zeros(in_features), persistent=False)
        self.register_buffer("noise_out", torch.zeros(out_features), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if len(x) <= self.FEW:
            noisy = functional.linear(x * self.noise_in, self.weight_sigma, self.bias_sigma)
            return torch.addcmul(functional.linear(x, self.weight, self.bias), noisy, self.noise_out.to(noisy.dtype))
        lowered = x.device.type == "cpu" and arithmetic_on(x.device) == torch.bfloat16
        kind = torch.bfloat16 if lowered else self.weight.dtype
        mu, sigma, mu_b, sigma_b = (
            one.to(kind) for one in (self.weight, self.weight_sigma, self.bias, self.bias_sigma)
        )
        noise_in, noise_out = self.noise_in.to(kind), self.noise_out.to(kind)
        weight = torch.addcmul(mu, sigma, torch.outer(noise_out, noise_in))
        return functional.linear(x, weight, torch.addcmul(mu_b, sigma_b, noise_out))


class IndependentNoisyLinear(nn.Module):
    """A linear layer with independent Gaussian noise for each weight (Fortunato et al. 2018, section 3, a).

    sigma starts at `sigma`; the paper's is 0.017. mu is not set before `draw_first_weights` draws it, uniformly in
    +-sqrt(3/in).
    """

    weight_noise: Tensor
    bias_noise: Tensor

    def __init__(self, in_features: int, out_features: int, sigma: float = 0.017) -> None:
        super().__init__()
        self.bound = math.sqrt(3.0 / in_features)
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        self.bias = nn.Parameter(torch.empty(out_features))
        self.weight_sigma = nn.Parameter(torch.full((out_features, in_features), sigma))
        self.bias_sigma = nn.Parameter(torch.full((out_features,), sigma))
        self.register_buffer("weight_noise", torch.zeros(out_features, in_features), persistent=False)
        self.register_buffer("bias_noise", torch.zeros(out_features), persistent=False)

    def draw(self, generator: torch.Generator) -> None:
        """Draw new noise, on the generator's device."""
        for noise in (self.weight_noise, self.bias_noise):
            if generator.device.type == noise.device.type:
                noise.normal_(generator=generator)
            else:
                noise.copy_(torch.randn(noise.shape, generator=generator, device=generator.device))

    def forward(self, x: Tensor) -> Tensor:
        weight = torch.addcmul(self.weight, self.weight_sigma, self.weight_noise)
        return functional.linear(x, weight, torch.addcmul(self.bias, self.bias_sigma, self.bias_noise))


NoisyLinear = FactorisedNoisyLinear | IndependentNoisyLinear


def draw_noise(layers: Sequence[NoisyLinear], generator: torch.Generator) -> None:
    """Draw new noise for `layers` of one device, on the generator's; the factorised noise of all of them at once, in a
    few operations instead of as many for each layer.
    """
    noises: list[Tensor] = []
    for layer in layers:
        if isinstance(layer, FactorisedNoisyLinear):
            noises += [layer.noise_in, layer.noise_out]
        else:
            layer.draw(generator)
    if noises:
        sizes = [len(noise) for noise in noises]
        drawn = torch.randn(sum(sizes), generator=generator, device=generator.device)
        shaped: tuple[Tensor, ...] = torch.split(torch.copysign(drawn.abs().sqrt_(), drawn), sizes)
        copy_all(noises, shaped)


def clear_noise(layers: Sequence[NoisyLinear]) -> None:
    """Let `layers` compute with the means of their weights until noise is drawn again."""
    for layer in layers:
        for noise in layer.buffers():
            noise.zero_()


def noisy_layers(network: nn.Module) -> dict[str, NoisyLinear]:
    """Return the noisy layers of `network` by their names, none for a network without noise."""
    modules: Any = cast(Any, network).named_modules()
    kinds = (FactorisedNoisyLinear, IndependentNoisyLinear)
    return {name: module for name, module in modules if isinstance(module, kinds)}
