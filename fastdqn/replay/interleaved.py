"""Stacks of frames with channels last, as the fastest convolutions on a CPU want them."""

from __future__ import annotations

import cv2
import torch
from torch import Tensor


def interleaved(frames: Tensor, where: Tensor, shape: tuple[int, int]) -> Tensor:
    """Return stacks (B, C, H, W) uint8 with channels last, on the CPU. Bytes are reordered sooner than floats.

    Args:
        frames: (S, H * W) uint8.
        where: which of them stand in each stack, (B, C) int64.
        shape: (H, W).
    """
    count, stack = where.shape
    planes = frames.index_select(0, where.t().flatten()).view(stack, -1, 1).numpy()
    stacks = torch.empty(count, *shape, stack, dtype=torch.uint8)
    cv2.merge(list(planes), stacks.numpy().reshape(-1, 1, stack))
    return stacks.permute(0, 3, 1, 2)
