"""The newest observations of games that are being played, where an agent acts on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastdqn.replay.ring import FrameReplay
from fastdqn.types import Frame, VectorStep

SPARE = 4
"""Rows of frames beyond those of a stack."""


class NewestStacks(FrameReplay):
    """The newest stacks of N games in a few rows of frames, from which nothing is drawn: what came of an action is not
    stored.

    Args:
        num_envs: N.
        obs_shape: (C, H, W) of a stack.
        device: where stacks are handed out.
        channels_last: as of a frame replay.
        newest: as of a frame replay.
    """

    def __init__(
        self,
        num_envs: int,
        obs_shape: tuple[int, int, int],
        device: torch.device,
        channels_last: bool = False,
        newest: Callable[[], Frame] | None = None,
    ) -> None:
        stack, height, width = obs_shape
        capacity = (stack + SPARE) * num_envs
        super().__init__(capacity, num_envs, (height, width), stack, 1, 1.0, device, 0, channels_last, newest)
        pin = device.type == "cuda"
        self._places = torch.empty((1 + stack) * num_envs, dtype=torch.int64, pin_memory=pin)
        """Slots of the newest frames, (N,), and of all that stacks are made of, (N, C), both for a device."""
        self._offsets = np.arange(num_envs)
        self._earlier = np.arange(stack - 1, -1, -1)

    def reset(self, frames: Frame) -> None:
        """Begin with the games' first frames, (N, H, W) uint8."""
        super().reset(frames)
        if self._arrivals is not None:
            self.stacks().cpu()  # at once: in a run that is resumed the next step may come before anybody asks

    def add(self, actions: NDArray[np.int64], step: VectorStep) -> None:  # noqa: ARG002
        """Show the next frames. On a GPU they are put in place by `stacks`, so that one CUDA graph can do both: whoever
        asks for stacks must have waited for what came of them before the next `add`.
        """
        self._follow(step)
        self._arrive(step.frames)

    def stacks(self) -> Tensor:
        """Return the newest observation of every game, (N, C, H, W) uint8 on the learner's device. On a GPU the host
        says which frames a stack is made of, and no ages are kept there.
        """
        if self._arrivals is None:
            return super().stacks()
        places = self._places.to(self.device, non_blocking=True)
        self._frames.index_copy_(0, places[: self.num_envs], self._arrivals.here().frames)
        stacks = self._frames.index_select(0, places[self.num_envs :])
        return stacks.view(self.num_envs, self._stack, *self._shape).to(self.learner_device)

    def load(self, state: Mapping[str, Any]) -> None:
        """Hold what stacks of the same size held."""
        super().load(state)
        begin = self.begin_of(self._host_head)
        newest = slice(begin, begin + self.num_envs)
        self._age[newest] = torch.from_numpy(self._host_age).to(self.device)  # it may come from a device, see `stacks`
        if self._arrivals is not None:
            self._arrive(self._frames[newest].view(-1, *self._shape).cpu().numpy())

    def _arrive(self, frames: Frame, actions: NDArray[np.int64] | None = None, step: VectorStep | None = None) -> None:
        if self._arrivals is None:
            super()._arrive(frames, actions, step)
            return
        self._arrivals.stage(self._host_head, self._host_age, frames)
        rows = (self._host_head - self._earlier) % self._rows * self.num_envs
        places = self._places.numpy()
        places[: self.num_envs] = rows[-1] + self._offsets
        there = self._earlier <= self._host_age[:, None]  # (N, C)
        places[self.num_envs :] = np.where(there, rows + self._offsets[:, None], self.size).ravel()
