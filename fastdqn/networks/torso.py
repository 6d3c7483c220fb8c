"""The torso: from frames to features, by convolutions."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from fastdqn.errors import UserError
from fastdqn.networks.arithmetic import arithmetic_on
from fastdqn.networks.convolution import Convolution, in_blocks
from fastdqn.networks.tiles import convolved, tiled


class Size(NamedTuple):
    """How large a network is."""

    name: str
    convs: tuple[tuple[int, int, int], ...]  # (filters, kernel, stride) of each convolution
    hidden: int  # rectified units between features and values
    least: int  # side of the smallest frame that it takes
    padded: bool = False  # with zeros, so that a convolution leaves 1/stride of each side, rounded up
    shared: bool = False  # whether value and advantage have one hidden layer instead of one each

    def read(self, side: int) -> int:
        """Return how many pixels of a side reach the features, from its beginning: strides that do not fit leave out
        the last ones.
        """
        if self.padded:
            return side
        for _, kernel, stride in self.convs:
            side = (side - kernel) // stride + 1
        for _, kernel, stride in reversed(self.convs):
            side = (side - 1) * stride + kernel
        return side


NATURE = Size("Nature", ((32, 8, 4), (64, 4, 2), (64, 3, 1)), 512, 36)
"""Nature DQN's network (Mnih et al. 2015, Methods, "Model architecture")."""
NARROW = Size("narrow", ((16, 8, 4), (32, 4, 2), (32, 3, 1)), 256, 36)
"""Nature's with half as many filters and hidden units: a third of its arithmetic."""
WIDE = Size("wide", ((64, 8, 4), (128, 4, 2), (128, 3, 1)), 1024, 36)
"""Nature's with twice as many filters and hidden units: a bit more than three times its arithmetic."""
DATA_EFFICIENT = Size("DER", ((32, 5, 5), (64, 5, 5)), 256, 36)
"""Data-efficient Rainbow's (van Hasselt et al. 2019, appendix), a sixth of Nature's arithmetic."""
DOPAMINE = Size("Dopamine", NATURE.convs, 512, 36, padded=True, shared=True)
"""google/dopamine's (NatureDQNNetwork, RainbowNetwork, and FullRainbowNetwork of Agarwal et al. 2021): Nature's with
zeros around, which keep more places."""
TILES = Size("tiles", ((32, 4, 4), (64, 3, 3)), 256, 36, shared=True)
"""Convolutions that read every pixel once, as DER's, but all of 84x84 and with 49 places left; a sixth of Dopamine's
arithmetic, in products of large matrices."""
SIZES = {size.name.lower(): size for size in (NATURE, NARROW, WIDE, DATA_EFFICIENT, DOPAMINE, TILES)}


def _padding(side: int, kernel: int, stride: int) -> tuple[int, int]:
    """Return the zeros before and behind a side so that a convolution leaves 1/stride of it, rounded up; TensorFlow's
    "SAME" puts the odd one behind.
    """
    total = max(0, (-(-side // stride) - 1) * stride + kernel - side)
    return total // 2, total - total // 2


class Torso(nn.Module):
    """Convolutions, each followed by a rectifier; by default Nature DQN's.

    Takes uint8 (B, C, H, W), divides it by `frame_scale`, returns (B, features) in the arithmetic that is on. With
    `center_frames` a mean frame, zero until somebody sets it, is subtracted first; it is part of the state. What
    `pixels` made of frames is taken, too.

    Raises:
        UserError: frames are smaller than these convolutions take.
    """

    mean_frame: Tensor | None  # (H, W) float32

    def __init__(
        self,
        in_channels: int = 4,
        height: int = 84,
        width: int = 84,
        frame_scale: float = 255.0,
        center_frames: bool = False,
        size: Size = NATURE,
    ) -> None:
        super().__init__()
        self.register_buffer("mean_frame", torch.zeros(height, width) if center_frames else None)
        self.layout = torch.preserve_format  # of what enters the convolutions
        self._scale = 1.0 / frame_scale
        apart = not size.padded and all(kernel == stride for _, kernel, stride in size.convs)
        self._sides = tuple(kernel for _, kernel, _ in size.convs) if apart else ()
        if min(height, width) < size.least:
            raise UserError(f"the {size.name} network needs frames of at least {size.least}x{size.least} pixels")
        self.shape = height, width
        self.read = size.read(height), size.read(width)
        """Rows and columns of a frame that reach the features, the first ones."""
        self._border = (0, 0, 0, 0)  # zeros around frames: left, right, top, bottom
        layers: list[nn.Module] = []
        for filters, kernel, stride in size.convs:
            if size.padded:
                border = *_padding(width, kernel, stride), *_padding(height, kernel, stride)
                height, width = height + sum(border[2:]), width + sum(border[:2])
                if layers:
                    layers.append(nn.ZeroPad2d(border))
                else:
                    self._border = border  # of the bytes, which are moved soonest
            layers += [Convolution(in_channels, filters, kernel, stride), nn.ReLU(inplace=True)]
            height, width = (height - kernel) // stride + 1, (width - kernel) // stride + 1
            in_channels = filters
        self.convs = nn.Sequential(*layers[:-1], nn.Flatten(), nn.ReLU())  # flat first: gradients come in that order
        self.features = in_channels * height * width

    def forward(self, obs: Tensor) -> Tensor:
        pixels = obs if obs.is_floating_point() else self.pixels(obs)
        if self._in_tiles(obs):
            return convolved(pixels, [layer for layer in self.convs if isinstance(layer, nn.Conv2d)], self._scale)
        return self.convs(pixels)

    def pixels(self, obs: Tensor) -> Tensor:
        """Return what the convolutions get of uint8 (B, C, H, W), in their layout and in the arithmetic that is on:
        float32, or bfloat16 under autocast; with the zeros around them that they need; with AMX, to learn from, in
        blocks. Tiles, (B, T, P, K * K * C), are not scaled yet.
        """
        kind = arithmetic_on(obs.device)
        if self._in_tiles(obs):
            tiles = tiled(obs, self._sides).to(kind)  # bf16 has every byte
            if self.mean_frame is not None:
                tiles -= tiled(self.mean_frame.to(kind).expand(1, obs.shape[1], -1, -1), self._sides)
            return tiles
        obs = self.bordered(obs)
        side = self._block_side(obs, kind)
        planes = obs if side == 1 else in_blocks(obs, side)
        pixels = planes.to(kind, copy=True, memory_format=self.layout)  # bf16 has every byte
        if self.mean_frame is None:
            return pixels.mul_(self._scale)
        shift = _as_laid_out(self.bordered(self.mean_frame * -self._scale).to(kind), pixels, side)
        return torch.add(shift, pixels, alpha=self._scale, out=pixels)

    def _block_side(self, obs: Tensor, kind: torch.dtype) -> int:
        """Return the side of the blocks in which the first convolution gets frames, 1 for none. Without a gradient, of
        few frames, blocks are no gain.
        """
        first, last = self.convs[0], self.layout == torch.channels_last
        lowered = kind == torch.bfloat16 and obs.device.type == "cpu" and torch.is_grad_enabled()
        if lowered and last and isinstance(first, Convolution) and first.takes_blocks(*obs.shape[2:]):
            return first.stride[0]
        return 1

    def _in_tiles(self, obs: Tensor) -> bool:
        """Tell whether the convolutions are products of matrices: on a CPU, where the layout may be chosen."""
        return bool(self._sides) and self.layout == torch.channels_last and obs.device.type == "cpu"

    def bordered(self, frames: Tensor) -> Tensor:
        """Return `frames`, (..., H, W), with their zeros around them."""
        return functional.pad(frames, self._border) if any(self._border) else frames

    def center_frames(self, mean: Tensor) -> None:
        """Subtract `mean`, (H, W) float32, from all inputs, if it was made to."""
        if self.mean_frame is not None:
            self.mean_frame.copy_(mean)


def torsos(network: nn.Module) -> list[Torso]:
    """Return the parts of `network` that take frames."""
    return [module for module in network.modules() if isinstance(module, Torso)]


def describe_unread(network: nn.Module) -> tuple[str, ...]:
    """Return one line about the pixels that `network` never sees, or none where it sees all."""
    for torso in torsos(network):
        (height, width), (rows, columns) = torso.shape, torso.read
        if torso.read != torso.shape:
            return (f"of frames of {height}x{width} its convolutions read the first {rows} rows and {columns} columns",)
    return ()


def share_weights(network: nn.Module, other: nn.Module) -> None:
    """Let `network` have the weights of `other`, the very same memory, but gradients and noise of its own."""
    for own, shared in zip(network.parameters(), other.parameters(), strict=True):
        own.data = shared.data
    for torso, shared in zip(torsos(network), torsos(other), strict=True):
        torso.mean_frame, torso.layout = shared.mean_frame, shared.layout


def use_channels_last(network: nn.Module) -> None:
    """Lay the convolutions of `network` out with channels last (N, H, W, C), in place; values stay the same.

    What enters them is laid out so when it becomes numbers; on the CPU that is slow unless the bytes are laid out so
    already, which the replay does there at a fraction of the cost.
    """
    network.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue] - an overload is missing
    for torso in torsos(network):
        torso.layout = torch.channels_last


def _as_laid_out(frame: Tensor, pixels: Tensor, side: int) -> Tensor:
    """Return `frame`, (H, W), so that it meets `pixels`, (B, C, H, W) or these in blocks of `side`, without strides:
    one for each channel where channels are last.
    """
    channels = pixels.shape[1] // side**2
    if side > 1:
        return in_blocks(frame.expand(1, channels, -1, -1), side)[0]
    if channels == 1 or not pixels.is_contiguous(memory_format=torch.channels_last):
        return frame
    return frame.unsqueeze(-1).expand(*frame.shape, channels).contiguous().permute(2, 0, 1)
