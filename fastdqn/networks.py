"""Networks: a torso that turns frames into features, and heads that turn features into values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from fastdqn.errors import UserError
from fastdqn.foreach import copy_all


class Size(NamedTuple):
    """How large a network is."""

    name: str
    convs: tuple[tuple[int, int, int], ...]  # (filters, kernel, stride) of each convolution
    hidden: int  # rectified units between features and values
    least: int  # side of the smallest frame that it can see


NATURE = Size("Nature", ((32, 8, 4), (64, 4, 2), (64, 3, 1)), 512, 36)
"""Nature DQN's network (Mnih et al. 2015, Methods, "Model architecture")."""
SLIM = Size("slim", ((16, 8, 4), (64, 4, 2), (64, 3, 1)), 512, 36)
"""Nature's with half as many filters in its first layer: two thirds of its arithmetic, six tenths with two frames."""
NARROW = Size("narrow", ((16, 8, 4), (32, 4, 2), (32, 3, 1)), 256, 36)
"""Nature's with half as many filters and hidden units: a third of its arithmetic."""
SMALL = Size("small", ((16, 4, 2), (32, 4, 2), (32, 3, 2)), 256, 18)
"""A seventh of Nature's arithmetic, meant for frames of 42x42."""
SIZES = {size.name.lower(): size for size in (NATURE, SLIM, NARROW, SMALL)}


class HeadParts(NamedTuple):
    """What a head is made of besides linear layers."""

    dueling: bool = False
    noise: str | None = None  # "factorised" or "independent"
    sigma: float | None = None  # at the start; by default the NoisyNet paper's
    atoms: int | None = None  # Z, of a distribution for each action instead of one value


class Torso(nn.Module):
    """Convolutions, each followed by a rectifier; by default Nature DQN's.

    Takes uint8 (B, C, H, W), divides it by `frame_scale`, returns float32 (B, features). With `center_frames` a mean
    frame, zero until somebody sets it, is subtracted first; with `pixel_floor` each pixel is divided by its own
    standard deviation plus this floor instead. Both are part of the state. What `pixels` made of frames is taken, too.
    """

    mean_frame: Tensor | None  # (H, W) float32
    pixel_gain: Tensor | None  # (H, W) float32

    def __init__(
        self,
        in_channels: int = 4,
        height: int = 84,
        width: int = 84,
        frame_scale: float = 255.0,
        center_frames: bool = False,
        size: Size = NATURE,
        pixel_floor: float | None = None,
    ) -> None:
        super().__init__()
        self.register_buffer("mean_frame", torch.zeros(height, width) if center_frames else None)
        gain = None if pixel_floor is None else torch.full((height, width), 1.0 / frame_scale)
        self.register_buffer("pixel_gain", gain)
        self.layout = torch.preserve_format  # of what the convolutions see
        self._floor = pixel_floor or 0.0
        self._scale = 1.0 / frame_scale
        if min(height, width) < size.least:
            raise UserError(f"the {size.name} network needs frames of at least {size.least}x{size.least} pixels")
        layers: list[nn.Module] = []
        for filters, kernel, stride in size.convs:
            layers += [nn.Conv2d(in_channels, filters, kernel, stride), nn.ReLU()]
            height, width = (height - kernel) // stride + 1, (width - kernel) // stride + 1
            in_channels = filters
        self.convs = nn.Sequential(*layers, nn.Flatten())
        self.features = in_channels * height * width

    def forward(self, obs: Tensor) -> Tensor:
        return self.convs(obs if obs.is_floating_point() else self.pixels(obs))

    def pixels(self, obs: Tensor) -> Tensor:
        """Return what the convolutions see of uint8 (B, C, H, W), in their layout and in the arithmetic that is on:
        float32, or bfloat16 under autocast.
        """
        kind = _arithmetic(obs.device)
        only_scaled = self.mean_frame is None and self.pixel_gain is None
        exact = kind if only_scaled else torch.float32  # bf16 has every byte: either rounds once
        pixels = obs.to(exact, copy=True, memory_format=self.layout)
        if self.mean_frame is not None:
            pixels -= _as_laid_out(self.mean_frame, pixels)
        gain = self._scale if self.pixel_gain is None else _as_laid_out(self.pixel_gain, pixels)
        return pixels.mul_(gain).to(kind)

    def set_frame(self, mean: Tensor, deviation: Tensor) -> None:
        """Subtract `mean` from all inputs and scale them by `deviation`, (H, W) float32, as far as it was made to."""
        if self.mean_frame is not None:
            self.mean_frame.copy_(mean)
        if self.pixel_gain is not None:
            self.pixel_gain.copy_(1.0 / (deviation + self._floor))


class FactorisedNoisyLinear(nn.Module):
    """A linear layer whose weights are noisy, with factorised Gaussian noise (Fortunato et al. 2018, eq. 9-11).

    w = mu + sigma * f(e_out) f(e_in)^T and b = mu_b + sigma_b * f(e_out), where f(x) = sign(x) sqrt(|x|). All rows of a
    batch see the same noise, which changes with `draw` alone. Few rows are computed without putting w together: as its
    noise has rank one, y = mu x + mu_b + f(e_out) * (sigma (f(e_in) * x) + sigma_b), two products instead of one.

    mu starts uniform in +-1/sqrt(in), sigma at `sigma`/sqrt(in); the paper's sigma is 0.5 (section 3.2).
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

    def draw(self, generator: torch.Generator) -> None:
        """Draw new noise; `generator` is on the layer's device."""
        draw_noise((self,), generator)

    def forward(self, x: Tensor) -> Tensor:
        if len(x) <= self.FEW:
            noisy = functional.linear(x * self.noise_in, self.weight_sigma, self.bias_sigma)
            return torch.addcmul(functional.linear(x, self.weight, self.bias), noisy, self.noise_out.to(noisy.dtype))
        weight = torch.addcmul(self.weight, self.weight_sigma, torch.outer(self.noise_out, self.noise_in))
        return functional.linear(x, weight, torch.addcmul(self.bias, self.bias_sigma, self.noise_out))


class IndependentNoisyLinear(nn.Module):
    """A linear layer with independent Gaussian noise for each weight (Fortunato et al. 2018, section 3.1, a).

    mu starts uniform in +-sqrt(3/in), sigma at `sigma`; the paper's is 0.017.
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
        """Draw new noise; `generator` is on the layer's device."""
        self.weight_noise.normal_(generator=generator)
        self.bias_noise.normal_(generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        weight = torch.addcmul(self.weight, self.weight_sigma, self.weight_noise)
        return functional.linear(x, weight, torch.addcmul(self.bias, self.bias_sigma, self.bias_noise))


NoisyLinear = FactorisedNoisyLinear | IndependentNoisyLinear


def draw_noise(layers: Sequence[NoisyLinear], generator: torch.Generator) -> None:
    """Draw new noise for `layers` of one device, which is the generator's; the factorised noise of all of them at once,
    in a few operations instead of as many for each layer.
    """
    noises: list[Tensor] = []
    for layer in layers:
        if isinstance(layer, FactorisedNoisyLinear):
            noises += [layer.noise_in, layer.noise_out]
        else:
            layer.draw(generator)
    if noises:
        sizes = [len(noise) for noise in noises]
        drawn = torch.randn(sum(sizes), generator=generator, device=noises[0].device)
        shaped: tuple[Tensor, ...] = torch.split(torch.copysign(drawn.abs().sqrt(), drawn), sizes)
        copy_all(noises, shaped)


class Stream(nn.Sequential):
    """Layers of which the last computes in float32 even where the others do not."""

    def forward(self, input: Tensor) -> Tensor:
        *body, last = self
        hidden = input
        for layer in body:
            hidden = layer(hidden)
        with torch.autocast(hidden.device.type, enabled=False):  # Pong's values differ by less than bf16 can tell apart
            return last(hidden.to(next(last.parameters()).dtype))


class DuelingHead(nn.Module):
    """Value and advantage in two streams: Q(s, a) = V(s) + A(s, a) - mean_a' A(s, a') (Wang et al. 2016, eq. 9).

    With atoms the same holds for each atom's logit (Hessel et al. 2017, section 3, "The Integrated Agent").

    Deviates: Wang et al. scale the gradient that enters the torso by 1/sqrt(2) and clip its norm to 10; the 2017 post's
    author does neither.

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
    PyTorch's defaults (noisy layers as their paper says), drawn from `generator` alone, so that a seed fixes them
    whatever else draws random numbers.
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
        pixel_floor: float | None = None,
    ) -> None:
        super().__init__()
        channels, height, width = obs_shape
        self.torso = Torso(channels, height, width, frame_scale, center_frames, size, pixel_floor)
        features = self.torso.features

        def stream(outputs: int) -> Stream:
            return Stream(_linear(features, size.hidden, parts), nn.ReLU(), _linear(size.hidden, outputs, parts))

        self.head = (
            DuelingHead(stream, num_actions, parts.atoms) if parts.dueling else stream(num_actions * (parts.atoms or 1))
        )
        self._shape = None if parts.atoms is None else (num_actions, parts.atoms)
        _draw_first_weights(self, generator)

    def forward(self, obs: Tensor) -> Tensor:
        values = self.head(self.torso(obs))
        return values if self._shape is None else values.unflatten(1, self._shape)


def noisy_layers(network: nn.Module) -> dict[str, NoisyLinear]:
    """Return the noisy layers of `network` by their names, none for a network without noise."""
    modules: Any = cast(Any, network).named_modules()
    kinds = (FactorisedNoisyLinear, IndependentNoisyLinear)
    return {name: module for name, module in modules if isinstance(module, kinds)}


def torsos(network: nn.Module) -> list[Torso]:
    """Return the parts of `network` that see frames."""
    return [module for module in network.modules() if isinstance(module, Torso)]


def use_channels_last(network: nn.Module) -> None:
    """Lay the convolutions of `network` out with channels last (N, H, W, C), in place; values stay the same.

    What they see is laid out so when it becomes numbers, which on the CPU costs 1 ms for 32 stacks at 84x84 if the
    bytes are not: there the replay lays the bytes out, at a twentieth of that.
    """
    network.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue] - an overload is missing
    for torso in torsos(network):
        torso.layout = torch.channels_last


def _arithmetic(device: torch.device) -> torch.dtype:
    """Return the precision in which products of float32 are computed on `device` now."""
    kind = device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else torch.float32


def _as_laid_out(frame: Tensor, pixels: Tensor) -> Tensor:
    """Return `frame`, (H, W), so that it meets `pixels`, (B, C, H, W), without strides: one for each channel where
    channels are last.
    """
    channels = pixels.shape[1]
    if channels == 1 or not pixels.is_contiguous(memory_format=torch.channels_last):
        return frame
    return frame.unsqueeze(-1).expand(*frame.shape, channels).contiguous().permute(2, 0, 1)


def _linear(inputs: int, outputs: int, parts: HeadParts) -> nn.Module:
    """Return a linear layer with the noise that `parts` name."""
    if parts.noise is None:
        return nn.Linear(inputs, outputs)
    kind = FactorisedNoisyLinear if parts.noise == "factorised" else IndependentNoisyLinear
    return kind(inputs, outputs) if parts.sigma is None else kind(inputs, outputs, parts.sigma)


def _draw_first_weights(module: nn.Module, generator: torch.Generator) -> None:
    """Redraw every weight uniformly: in +-1/sqrt(fan_in) as PyTorch does, or in a noisy layer's own bound."""
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear | FactorisedNoisyLinear | IndependentNoisyLinear):
            noisy = not isinstance(layer, nn.Conv2d | nn.Linear)
            bound = layer.bound if noisy else 1.0 / math.sqrt(layer.weight[0].numel())
            with torch.no_grad():
                layer.weight.uniform_(-bound, bound, generator=generator)
                if layer.bias is not None:
                    layer.bias.uniform_(-bound, bound, generator=generator)
