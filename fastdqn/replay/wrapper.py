"""What replays around a ring of frames have in common: everything that they leave to the ring."""

from __future__ import annotations

import torch
from torch import Tensor

from fastdqn.replay.ring import FrameReplay


class ReplayWrapper:
    """A replay whose frames, and all that is read of them alone, are those of a ring.

    Args:
        frames: the ring.
    """

    def __init__(self, frames: FrameReplay) -> None:
        self.frames = frames
        self.device, self.generator = frames.device, frames.generator

    def __len__(self) -> int:
        """Env steps stored, resets included."""
        return len(self.frames)

    def stacks(self) -> Tensor:
        """Return the newest observation of every game, (N, C, H, W) uint8 on the learner's device."""
        return self.frames.stacks()

    def mean_frame(self) -> Tensor:
        """Return the mean of all stored frames, (H, W) float32."""
        return self.frames.mean_frame()

    def observations(self, count: int, generator: torch.Generator) -> Tensor:
        """Return `count` stored observations, (count, C, H, W) uint8, drawn uniformly with `generator`."""
        return self.frames.observations(count, generator)
