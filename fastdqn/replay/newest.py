"""The newest observations of games that are being played, where an agent acts on them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

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

    def add(self, actions: NDArray[np.int64], step: VectorStep) -> None:  # noqa: ARG002
        """Show the next frames."""
        self._staging_ends(self._follow(step))
