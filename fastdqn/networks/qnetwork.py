"""The network: a torso, and a head that turns features into values for each action."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fastdqn.networks.arithmetic import in_bf16
from fastdqn.networks.aside import aside_now, left_aside
from fastdqn.networks.noisy import FactorisedNoisyLinear, IndependentNoisyLinear
from fastdqn.networks.torso import NATURE, Size, Torso

NOISES = {"factorised": FactorisedNoisyLinear, "independent": IndependentNoisyLinear}
INITS = ("pytorch", "xavier", "dopamine")


class HeadParts(NamedTuple):
    """What a head is made of besides linear layers."""

    dueling: bool = False
    noise: str | None = None  # "factorised" or "independent"
    sigma: float | None = None  # at the start; by default the NoisyNet paper's
    atoms: int | None = None  # Z, of a distribution for each action instead of one value


class Hidden(nn.Linear):
    """A linear layer that can leave the gradients of its weights to be found aside."""

    def forward(self, input: Tensor) -> Tensor:
        if aside_now() is None or not torch.is_grad_enabled() or input.dtype != self.weight.dtype:
            return super().forward(input)
        return _Product.apply(input, self.weight, self.bias, self)  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]


class _Product(torch.autograd.Function):
    """A linear layer, given with its weight and bias."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, input: Tensor, weight: Tensor, bias: Tensor, layer: nn.Module
    ) -> Tensor:
        ctx.save_for_backward(input, weight)
        ctx.layer = layer
        return torch.addmm(bias, input, weight.t())

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        (input, weight), (grad,) = ctx.saved_tensors, grad_outputs
        found = left_aside(ctx.layer, lambda: (grad.t() @ input, grad.sum(0)))
        return grad @ weight if ctx.needs_input_grad[0] else None, *found, None


class LastLayer(nn.Linear):
    """A linear layer with few outputs, whose gradient has the same bits whatever number of threads computes it.

    The weights are laid out by input, for a moment, or for good by `lay_out_by_input`: the gradient is then a product
    with many rows, in which each sum is one thread's.
    """

    def forward(self, input: Tensor) -> Tensor:
        return torch.addmm(self.bias, input, self.weight.t().contiguous())


def lay_out_by_input(network: nn.Module) -> None:
    """Lay the weights of last layers out by input, in place, so that a pass need not; values stay the same."""
    for layer in network.modules():
        if isinstance(layer, LastLayer):
            layer.weight.data = layer.weight.detach().t().contiguous().t()


class Stream(nn.Sequential):
    """Layers of which the last computes in float32 even where the others do not."""

    def forward(self, input: Tensor) -> Tensor:
        *body, last = self
        hidden = input
        for layer in body:
            hidden = layer(hidden)
        with in_bf16(hidden.device, False):  # Pong's values differ by less than bf16 can tell apart
            return last(hidden.to(next(last.parameters()).dtype))


class DuelingHead(nn.Module):
    """Value and advantage in two streams: Q(s, a) = V(s) + A(s, a) - mean_a' A(s, a') (Wang et al. 2016, eq. 9).

    With atoms the same holds for each atom's logit (Hessel et al. 2017, section 3, "The Integrated Agent").

    Deviates: Wang et al. scale the gradient that enters the torso by 1/sqrt(2), which the 2017 post's author does not
    do, and clip the whole gradient's norm to 10, which is `max_norm` of a learner.

    Args:
        stream: makes a stream of layers with so many outputs.
        num_actions: A.
        atoms: Z, or None for one value an action.
    """

    def __init__(self, stream: Callable[[int], Stream], num_actions: int, atoms: int | None) -> None:
        super().__init__()
        self.value = stream(atoms or 1)
        self.advantage = stream(num_actions * (atoms or 1))
        self._shape = (num_actions, atoms or 1)

    def forward(self, features: Tensor) -> Tensor:
        value = self.value(features).unsqueeze(1)  # (B, 1, Z)
        advantage = self.advantage(features).unflatten(1, self._shape)  # (B, A, Z)
        return (value + advantage - advantage.mean(dim=1, keepdim=True)).flatten(1)  # (B, A * Z)


class QNetwork(nn.Module):
    """A torso, a hidden layer, and values for each action; by default Nature DQN's whole network.

    Takes uint8 (B, C, H, W), returns float32 (B, A), or logits (B, A, Z) when its head has atoms. Weights start as
    `init` says (noisy layers as their paper does), drawn from `generator` alone, so that a seed fixes them whatever
    else draws random numbers.

    Raises:
        ValueError: no initial weights, or no noise, have that name.
    """

    def __init__(
        self,
        obs_shape: tuple[int, int, int],
        num_actions: int,
        generator: torch.Generator,
        frame_scale: float = 255.0,
        center_frames: bool = False,
        parts: HeadParts = HeadParts(),  # noqa: B008 - a constant
        size: Size = NATURE,
        init: str = "pytorch",
    ) -> None:
        super().__init__()
        if init not in INITS or parts.noise not in (None, *NOISES):
            raise ValueError(f"there is no init {init!r} with noise {parts.noise!r}: {INITS}, None or {tuple(NOISES)}")
        self.init = init
        channels, height, width = obs_shape
        self.torso = Torso(channels, height, width, frame_scale, center_frames, size)
        features = self.torso.features

        last = LastLayer if parts.noise is None else partial(_linear, parts=parts)
        shares = size.shared and parts.dueling
        self.hidden = nn.Sequential(_linear(features, size.hidden, parts), nn.ReLU()) if shares else nn.Identity()

        def stream(outputs: int) -> Stream:
            if shares:
                return Stream(last(size.hidden, outputs))
            return Stream(_linear(features, size.hidden, parts), nn.ReLU(), last(size.hidden, outputs))

        self.head = (
            DuelingHead(stream, num_actions, parts.atoms) if parts.dueling else stream(num_actions * (parts.atoms or 1))
        )
        self._shape = None if parts.atoms is None else (num_actions, parts.atoms)
        draw_first_weights(self, generator)

    def forward(self, obs: Tensor) -> Tensor:
        values = self.head(self.hidden(self.torso(obs)))
        return values if self._shape is None else values.unflatten(1, self._shape)


def _linear(inputs: int, outputs: int, parts: HeadParts) -> nn.Module:
    """Return a linear layer with the noise that `parts` name."""
    if parts.noise is None:
        return Hidden(inputs, outputs)
    kind = NOISES[parts.noise]
    return kind(inputs, outputs) if parts.sigma is None else kind(inputs, outputs, parts.sigma)


def draw_first_weights(module: nn.Module, generator: torch.Generator) -> None:
    """Redraw every weight uniformly, in the bounds that a QNetwork was made with, or PyTorch's; noisy layers in their
    own.

    - "pytorch": weights and biases in +-1/sqrt(fan_in).
    - "xavier": weights in +-sqrt(6/(fan_in + fan_out)), biases 0 (Glorot & Bengio 2010, eq. 16).
    - "dopamine": weights in +-3^(1/4)/sqrt(fan_in), biases 0 (google/dopamine, dopamine/jax/networks.py:
      RainbowNetwork).
    """
    init = module.init if isinstance(module, QNetwork) else "pytorch"
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            bound = _bound(layer, init)
        elif isinstance(layer, FactorisedNoisyLinear | IndependentNoisyLinear):
            bound = layer.bound
        else:
            continue
        with torch.no_grad():
            layer.weight.uniform_(-bound, bound, generator=generator)
            if layer.bias is None:
                continue
            if init == "pytorch" or not isinstance(layer, nn.Conv2d | nn.Linear):
                layer.bias.uniform_(-bound, bound, generator=generator)
            else:
                layer.bias.zero_()


def _bound(layer: nn.Conv2d | nn.Linear, init: str) -> float:
    """Return how large the initial weights of a layer may be."""
    fan_in = layer.weight[0].numel()
    if init == "xavier":
        return math.sqrt(6.0 / (fan_in + layer.weight[:, 0].numel()))
    return (3.0**0.25 if init == "dopamine" else 1.0) / math.sqrt(fan_in)


def draw_orthogonal_weights(module: nn.Module, generator: torch.Generator, gains: Mapping[nn.Module, float]) -> None:
    """Redraw the weights of convolutions and linear layers so that rows, or columns, are orthogonal (Saxe et al. 2014),
    and let their biases be 0. Noisy layers stay as they are.

    Args:
        module: of them.
        generator: on the CPU.
        gains: norms of the rows of some layers; of all others it is sqrt(2), by which rectified units keep the size of
            a signal.
    """
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.orthogonal_(layer.weight, gains.get(layer, math.sqrt(2.0)), generator=generator)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
