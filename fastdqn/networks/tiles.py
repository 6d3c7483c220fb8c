"""Tiles: convolutions whose stride is their kernel, each a product of two matrices.

Such a convolution reads every pixel once or never. If the pixels of a batch are put into the order in which the last of
them reads the first one's outputs, each output is, as it lies in memory, a matrix that the next one takes, and no other
pixel is computed.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn


def tiled(obs: Tensor, sides: tuple[int, ...]) -> Tensor:
    """Return the pixels of (B, C, H, W) that convolutions with these kernels read, in their order, of the same type.

    Args:
        obs: of any layout; channels last is quickest.
        sides: of the kernels, K of the first one.

    Returns:
        (B, T, P, K * K * C): T outputs of the last convolution, each of P outputs of the first one.
    """
    count, channels, height, width = obs.shape
    place = _places(count, height, width, sides)
    pixels = obs.permute(0, 2, 3, 1).contiguous().view(-1, channels)
    if channels == 4 and obs.dtype == torch.uint8:  # as one number, which is moved sooner
        found = pixels.view(torch.int32).view(-1).index_select(0, place).view(torch.uint8)
    else:
        found = pixels.index_select(0, place)
    tiles = (height // math.prod(sides)) * (width // math.prod(sides))
    return found.view(count, tiles, -1, sides[0] ** 2 * channels)


def convolved(tiles: Tensor, convs: Sequence[nn.Conv2d], scale: float) -> Tensor:
    """Return the features (B, F) that rectified convolutions make of `scale` times `tiles`, (B, T, P, K * K * C).

    They are in the order of (B, C, H, W). It is the sums of products that are scaled, of which there are fewer.
    """
    hidden = tiles
    for conv in convs:
        weight, bias = conv.weight.permute(0, 2, 3, 1).flatten(1), conv.bias  # (filters, K * K * C)
        assert bias is not None
        rows = hidden.reshape(-1, weight.shape[1])
        if len(rows) < len(weight):  # the bits of few rows depend on the number of threads, unless the weights are rows
            hidden = torch.addmm(bias.unsqueeze(1), weight, rows.t(), alpha=scale).t().relu_()
        else:
            hidden = torch.addmm(bias, rows, weight.t(), alpha=scale).relu_()
        scale = 1.0
    return hidden.view(*tiles.shape[:2], -1).transpose(1, 2).flatten(1)


@functools.lru_cache(maxsize=8)
def _places(count: int, height: int, width: int, sides: tuple[int, ...]) -> Tensor:
    """Return where the pixels of a batch stand among its pixels, (B * T * P * K * K,) int32 or, if need be, int64."""
    side, kernels = math.prod(sides), tuple(reversed(sides))
    rows, columns = height // side, width // side
    kind = torch.int32 if count * height * width < 2**31 else torch.int64
    frame = torch.arange(height * width, dtype=kind).view(height, width)[: rows * side, : columns * side]
    frame = frame.reshape(rows, *kernels, columns, *kernels)
    half = 1 + len(kernels)
    order = [axis for i in range(half) for axis in (i, half + i)]  # tiles, then down to the pixels of a kernel
    first = torch.arange(0, count * height * width, height * width, dtype=kind)
    return (first.unsqueeze(1) + frame.permute(order).flatten()).flatten()
