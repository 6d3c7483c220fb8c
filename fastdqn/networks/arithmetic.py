"""The arithmetic of a network's body: float32, or bfloat16 under PyTorch's autocast."""

from __future__ import annotations

import contextlib

import torch


def arithmetic_on(device: torch.device) -> torch.dtype:
    """Return the precision in which products of float32 are computed on `device` now."""
    kind = device.type
    return torch.get_autocast_dtype(kind) if _autocast_on(kind) else torch.float32


def in_bf16(device: torch.device, enabled: bool) -> contextlib.AbstractContextManager[object]:
    """Return a context in which products of float32 are computed in bfloat16 on `device`, or else in float32; on mps it
    is float32 that is always on.
    """
    if _autocast_on(device.type) == enabled:
        return contextlib.nullcontext()
    return torch.autocast(device.type, torch.bfloat16, enabled=enabled)


def _autocast_on(kind: str) -> bool:
    return kind != "mps" and torch.is_autocast_enabled(kind)  # PyTorch 2.4 knows no autocast on mps, not even to ask
