"""The same operation on many tensors: on a GPU one kernel for all of them, on a CPU one call from Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

_torch: Any = torch  # optimisers of PyTorch are built on these operations, whose names it keeps to itself


def copy_all(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    """Copy each of `sources` into its target, of the same shape and on the same device."""
    _torch._foreach_copy_(targets, sources)


def lerp_all(targets: Sequence[Tensor], ends: Sequence[Tensor], weight: float) -> None:
    """Move each of `targets` by the share `weight` towards its end."""
    _torch._foreach_lerp_(targets, ends, weight)
