"""Convolutions that in bfloat16 on a CPU are not PyTorch's own: other gradients, and frames in blocks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn

from fastdqn.networks.aside import aside_now, left_aside


class Convolution(nn.Conv2d):
    """A convolution without padding, with a bias, one stride and a square kernel, which has gradients of its own in
    bfloat16 on a CPU, and takes frames in blocks.

    A convolution with stride S is one with stride 1 of planes whose channels are all pixels of a block of SxS. AMX
    multiplies by many channels at a time, of which a frame has few.

    With AMX, and channels last, the gradient of the weights is a product of matrices, of the windows that the kernel
    saw and the gradient of what it made of them; as PyTorch computes it, it takes most of a backward pass.

    Without AMX it is PyTorch's own, but for a stride of 1: that one sums in as many parts as there are threads. As a
    convolution of the input with the gradient of the output, over the batch, it is one sum, no slower, and has the same
    bits whatever number of threads computes it. With AMX other gradients depend on the number of threads all the same.
    """

    def __init__(self, in_channels: int, filters: int, kernel: int, stride: int = 1) -> None:
        super().__init__(in_channels, filters, kernel, stride)

    def takes_blocks(self, height: int, width: int) -> bool:
        """Tell whether it learns sooner from frames, (B, C, height, width) in bfloat16 with channels last, in blocks:
        with AMX, where a row of a block of bytes can be moved as one number.
        """
        stride, kernel = self.stride[0], self.kernel_size[0]
        fits = kernel % stride == height % stride == width % stride == 0
        return fits and stride * self.in_channels == 16 and has_amx()

    def forward(self, input: Tensor) -> Tensor:
        """Return (B, filters, ...) of (B, C, H, W), or of these in blocks of its stride."""
        weight, bias = self.weight, self.bias
        if input.shape[1] != self.in_channels:
            return torch.conv2d(input, self._of_blocks(), bias)
        if input.dtype != weight.dtype or input.device.type != "cpu" or bias is None or not torch.is_grad_enabled():
            return super().forward(input)
        lowered = input.dtype == torch.bfloat16
        if lowered and has_amx() and input.is_contiguous(memory_format=torch.channels_last):
            own = _ProductConvolution
        elif lowered and not has_amx() and self.stride == (1, 1):
            own = _SteadyConvolution
        elif aside_now() is not None:
            own = _PlainConvolution
        else:
            return super().forward(input)
        return own.apply(input, weight, bias, self)  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]

    def _of_blocks(self) -> Tensor:
        """Return the weights for blocks, (filters, stride * stride * C, K / stride, K / stride)."""
        side, many = self.stride[0], self.kernel_size[0] // self.stride[0]
        parted = self.weight.permute(0, 2, 3, 1).reshape(self.out_channels, many, side, many, side, self.in_channels)
        return parted.transpose(2, 3).reshape(self.out_channels, many, many, -1).permute(0, 3, 1, 2)


def in_blocks(planes: Tensor, side: int) -> Tensor:
    """Return (B, side * side * C, H / side, W / side) of (B, C, H, W), with channels last: the pixels of a block have
    become its channels. For uint8 `side` times C is 16.
    """
    count, channels, height, width = planes.shape
    rows = planes.permute(0, 2, 3, 1).contiguous().view(count, height, width // side, side * channels)
    if rows.dtype == torch.uint8:  # 16 bytes as one number, which are moved sooner
        rows = rows.view(torch.complex128)
    blocks = rows.view(count, height // side, side, width // side, -1).transpose(2, 3).contiguous()
    return blocks.view(count, height // side, width // side, -1).view(planes.dtype).permute(0, 3, 1, 2)


@functools.cache
def has_amx() -> bool:
    """Tell whether products of bf16 go to AMX units; PyTorch before 2.6 does not say."""
    said = getattr(cast(Any, torch.cpu), "_is_amx_tile_supported", None)
    return said is not None and bool(said())


class _Convolution(torch.autograd.Function):
    """A convolution without padding, with one stride and square kernels, given with its weight and bias."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Tensor, bias: Tensor, layer: Convolution) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.save_for_backward(input, weight)
        ctx.layer = layer
        return torch.conv2d(input, weight, bias, layer.stride)


class _SteadyConvolution(_Convolution):
    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> _Gradients:
        return _backward(ctx, grad_outputs[0].contiguous(memory_format=torch.channels_last), _summed_over_the_batch)


class _ProductConvolution(_Convolution):
    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> _Gradients:
        return _backward(ctx, grad_outputs[0].contiguous(memory_format=torch.channels_last), _product)


class _PlainConvolution(_Convolution):
    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> _Gradients:
        return _backward(ctx, grad_outputs[0], _as_pytorch)


_Gradients = tuple[Tensor | None, Tensor | None, Tensor | None, None]
"""Of input, weight, bias and layer."""


def _backward(
    ctx: Any, grad: Tensor, of_weights: Callable[[Tensor, Tensor, Tensor, int], tuple[Tensor, Tensor]]
) -> _Gradients:
    """Return the gradients; `of_weights` finds those of weight and bias, of input, gradient of the output, weight and
    stride.
    """
    (input, weight), stride = ctx.saved_tensors, ctx.layer.stride[0]
    found = left_aside(ctx.layer, functools.partial(of_weights, input, grad, weight, stride))
    asked = [ctx.needs_input_grad[0], False, False]
    return _gradients(input, grad, weight, stride, asked)[0] if asked[0] else None, *found, None


def _as_pytorch(input: Tensor, grad: Tensor, weight: Tensor, stride: int) -> tuple[Tensor, Tensor]:
    return _gradients(input, grad, weight, stride, [False, True, True])[1:]


def _summed_over_the_batch(input: Tensor, grad: Tensor, weight: Tensor, stride: int) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    return torch.conv2d(_by_channel(input), _by_channel(grad)).transpose(0, 1), grad.sum((0, 2, 3))


def _product(input: Tensor, grad: Tensor, weight: Tensor, stride: int) -> tuple[Tensor, Tensor]:
    (filters, channels, kernel, _), (count, _, height, _) = weight.shape, input.shape
    rows = grad.permute(0, 2, 3, 1).flatten(0, 2)
    pixels = input.permute(0, 2, 3, 1)
    if channels % 8 == 0:  # 16 bytes as one number, which are moved sooner
        pixels = pixels.view(torch.complex128)
    row, column = pixels.stride(1), pixels.stride(2)
    windows = pixels.as_strided(
        (count, *grad.shape[2:], kernel, kernel * column), (height * row, stride * row, stride * column, row, 1)
    )
    windows = windows.contiguous().view(input.dtype)
    found = rows.t() @ windows.reshape(len(rows), -1)
    return found.view(filters, kernel, kernel, channels).permute(0, 3, 1, 2), grad.sum((0, 2, 3))


def _gradients(input: Tensor, grad: Tensor, weight: Tensor, stride: int, asked: list[bool]) -> Any:
    """Return the gradients of a convolution's input, weight and bias that are asked for, as PyTorch computes them."""
    backward: Any = torch.ops.aten.convolution_backward
    return backward(grad, input, weight, [len(weight)], [stride] * 2, [0, 0], [1, 1], False, [0, 0], 1, asked)


def _by_channel(planes: Tensor) -> Tensor:
    """Return (C, B, H, W) of (B, C, H, W), with the second last in memory."""
    return planes.transpose(0, 1).contiguous(memory_format=torch.channels_last)
