"""The same operation on many tensors: on a GPU one kernel for all of them, on a CPU one call from Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

_torch: Any = torch  # optimisers of PyTorch are built on these operations, whose names it keeps to itself


def copy_all(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    """Copy each of `sources` into its target, of the same shape and on the same device, without its gradient."""
    with torch.no_grad():
        _torch._foreach_copy_(targets, sources)


def lerp_all(targets: Sequence[Tensor], ends: Sequence[Tensor], weight: float) -> None:
    """Move each of `targets` by the share `weight` towards its end, without its gradient: averages of weights that are
    learnt would otherwise keep the history of all their updates.
    """
    with torch.no_grad():
        _torch._foreach_lerp_(targets, ends, weight)


def norm_of_all(tensors: Sequence[Tensor]) -> Tensor:
    """Return the norm of all of `tensors` as one vector, () of their type."""
    norms: list[Tensor] = list(_torch._foreach_norm(tensors))
    norm: Tensor = _torch.linalg.vector_norm(torch.stack(norms))
    return norm


def multiply_all(tensors: Sequence[Tensor], factor: Tensor) -> None:
    """Multiply each of `tensors` by `factor`, ()."""
    _torch._foreach_mul_(tensors, factor)


def clip(parameters: Sequence[Tensor], max_norm: float) -> None:
    """Clip the gradient of `parameters` to `max_norm`.

    As PyTorch does, but where the norm is at hand without waiting, and small enough, nothing is multiplied by 1.
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if not gradients or gradients[0].device.type != "cpu":
        torch.nn.utils.clip_grad_norm_(parameters, max_norm)
        return
    factor = max_norm / (norm_of_all(gradients) + 1e-6)
    if not factor >= 1.0:  # nor a number
        multiply_all(gradients, factor)


def centered_rmsprop_all(
    parameters: Sequence[Tensor],
    gradients: Sequence[Tensor],
    means: Sequence[Tensor],
    squares: Sequence[Tensor],
    lr: float | Tensor,
    epsilon: float,
    decay: float,
) -> None:
    """Move the `means` of gradients and of their `squares`, and step each of `parameters`, as `CenteredRMSProp` does.

    Args:
        lr: learning rate, a number or () on the device.
    """
    _torch._foreach_lerp_(means, gradients, 1.0 - decay)
    _torch._foreach_mul_(squares, decay)
    _torch._foreach_addcmul_(squares, gradients, gradients, 1.0 - decay)
    roots = _torch._foreach_addcmul(squares, means, means, -1.0)
    _torch._foreach_clamp_min_(roots, 0.0)  # rounding may leave a variance of less
    _torch._foreach_add_(roots, epsilon)
    _torch._foreach_sqrt_(roots)
    steps = _torch._foreach_div(gradients, roots)
    _torch._foreach_mul_(steps, lr)
    _torch._foreach_sub_(parameters, steps)
