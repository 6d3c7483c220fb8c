"""What a step of the games brings to a device: staged on the host in one piece, and put in place there."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastdqn.types import Frame, VectorStep

HEAD_BYTES, REWARD_BYTES = 8, 4


def needs_staging(device: torch.device) -> bool:
    """Tell whether what is written to `device` is staged first, since the host does not reach its memory."""
    return device.type == "cuda"


class Arrived(NamedTuple):
    """A step of N games on the device."""

    head: Tensor  # () int64, the row of the new frames
    frames: Tensor  # (N, H * W) uint8
    reward: Tensor  # (N,) float32
    before: Tensor  # (4, N) uint8, of the row before: actions, terminated, ended, void
    age: Tensor  # (N,) uint8, of the new frames


class Arrivals:
    """Room for one step of N games, which the host writes and the device reads by operations that need no decision on
    the host: a CUDA graph can hold them.

    Args:
        num_envs: N.
        frame_shape: (H, W).
        device: where steps go.
    """

    def __init__(self, num_envs: int, frame_shape: tuple[int, int], device: torch.device) -> None:
        pin = device.type == "cuda"
        self._device, self._num_envs = device, num_envs
        self._frames = torch.empty(num_envs, frame_shape[0] * frame_shape[1], dtype=torch.uint8, pin_memory=pin)
        self._small = torch.empty(
            HEAD_BYTES + (REWARD_BYTES + 5) * num_envs, dtype=torch.uint8, pin_memory=pin
        )  # in one piece, to be copied at once
        head, _, reward, before, age = self._parts(self._frames, self._small)
        self._head: NDArray[np.int64] = head.numpy()
        self._reward, self._before, self._age = reward.numpy(), before.numpy(), age.numpy()
        self._pixels = self._frames.numpy().reshape(num_envs, *frame_shape)
        self._taken = torch.cuda.Event() if pin else None

    def stage(
        self,
        head: int,
        age: NDArray[np.uint8],
        frames: Frame,
        actions: NDArray[np.int64] | None = None,
        step: VectorStep | None = None,
    ) -> None:
        """Write a step down: row, age (N,) and pixels (N, H, W) of its frames, and what led there, if anything did."""
        if self._taken is not None:
            self._taken.synchronize()  # that of the last step has long been taken
        self._head[...], self._age[:] = head, age
        self._pixels[...] = frames
        if actions is None or step is None:
            self._reward[:], self._before[:] = 0.0, 0
            return
        self._reward[:] = step.reward
        self._before[0], self._before[1] = actions, step.terminated
        self._before[2], self._before[3] = step.terminated | step.truncated, step.reset

    def here(self) -> Arrived:
        """Return the step that is staged, on the device; does not wait for it."""
        frames, small = (part.to(self._device, non_blocking=True) for part in (self._frames, self._small))
        return self._parts(frames, small)

    def taken(self) -> None:
        """Note that all operations which read what is staged have been given to the device."""
        if self._taken is not None:
            self._taken.record()

    def _parts(self, frames: Tensor, small: Tensor) -> Arrived:
        ends = HEAD_BYTES, HEAD_BYTES + REWARD_BYTES * self._num_envs
        rows = small[ends[1] :].view(5, self._num_envs)
        return Arrived(
            small[: ends[0]].view(torch.int64)[0],
            frames,
            small[ends[0] : ends[1]].view(torch.float32),
            rows[:4],
            rows[4],
        )
