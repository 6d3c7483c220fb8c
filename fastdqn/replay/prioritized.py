"""Prioritized experience replay on the device: exact proportional draws, without a tree.

A sum tree exists so that a draw costs log(capacity) scalar steps. On a device, and in PyTorch on a CPU, a few wide
operations beat many narrow ones: the leaves lie in blocks of about sqrt(capacity), each block keeps its sum, and a draw
is a cumulative sum over the blocks and one within the block that was hit. A changed leaf has its block summed anew, so
that nothing drifts however long the run is; capacities need not be powers of two.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from fastdqn.replay.frames import FrameReplay
from fastdqn.types import Batch, Frame, VectorStep

TINY = 1e-30
"""What a leaf is worth at least when it is drawn."""


class WeightedBatch(NamedTuple):
    """B transitions, how much each counts, and where each is kept."""

    batch: Batch
    weight: Tensor  # (B,) float32, importance weights of which the largest is 1
    slot: Tensor  # (B,) int64


class Priorities:
    """`size` leaves >= 0 on a device, drawn from in proportion.

    Args:
        size: number of leaves; all are 0 at first.
        device: where they live.
    """

    def __init__(self, size: int, device: torch.device) -> None:
        self.size = size
        self._block = 2 ** math.ceil(math.log2(size) / 2)
        blocks = -(-size // self._block)
        self._leaves = torch.zeros(blocks, self._block, dtype=torch.float32, device=device)
        self._flat = self._leaves.view(-1)
        self._sums = torch.zeros(blocks, dtype=torch.float64, device=device)
        self._tops = torch.zeros(blocks, dtype=torch.float32, device=device)
        self._none = torch.zeros((), dtype=torch.float64, device=device)

    def leaves(self) -> Tensor:
        """Return all leaves, (size,) float32."""
        return self._flat[: self.size]

    def total(self) -> Tensor:
        """Return the sum of all leaves, () float64."""
        return self._sums.sum()

    def largest(self) -> Tensor:
        """Return the largest leaf, () float32."""
        return self._tops.max()

    def clear(self) -> None:
        """Make all leaves 0."""
        for part in (self._leaves, self._sums, self._tops):
            part.zero_()

    def fill(self, begin: int, values: Tensor) -> None:
        """Set the leaves from `begin` on to `values`, (K,) float32."""
        end = begin + len(values)
        self._flat[begin:end] = values
        first, last = begin // self._block, -(-end // self._block)
        self._sums[first:last] = self._leaves[first:last].sum(dim=1, dtype=torch.float64)
        self._tops[first:last] = self._leaves[first:last].amax(dim=1)

    def put(self, index: Tensor, values: Tensor) -> None:
        """Set the leaves at `index`, (B,) int64, to `values`, (B,) float32."""
        self._flat.index_copy_(0, index, values)
        block = index // self._block
        touched = self._leaves.index_select(0, block)  # (B, leaves of a block)
        self._sums.index_copy_(0, block, touched.sum(dim=1, dtype=torch.float64))
        self._tops.index_copy_(0, block, touched.amax(dim=1))

    def state(self) -> dict[str, Any]:
        """Return copies of the leaves and their sums."""
        return {name: tensor.cpu().clone() for name, tensor in self._tensors().items()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Have the leaves of as many others."""
        for name, tensor in self._tensors().items():
            tensor.copy_(state[name])

    def _tensors(self) -> dict[str, Tensor]:
        return {"leaves": self._leaves, "sums": self._sums, "tops": self._tops}

    def find(self, uniform: Tensor) -> tuple[Tensor, Tensor]:
        """Return the index (B,) int64 and the value (B,) float32 of the leaves at these shares of the total.

        The leaf i is meant where the sum of those before it is at most uniform * total and with it is more, which is
        never a leaf of 0. (A CUDA device adds up in no fixed order; should its sums not rise evenly, a value of 0 is
        returned as TINY.)

        Args:
            uniform: (B,) float64 in [0, 1).
        """
        through = self._sums.cumsum(0)  # (blocks,)
        mass = torch.minimum(uniform * through[-1], torch.nextafter(through[-1], self._none))
        block = torch.searchsorted(through, mass, right=True)
        inside = self._leaves.index_select(0, block).cumsum(1, dtype=torch.float64)  # (B, leaves of a block)
        rest = mass - functional.pad(through, (1, 0)).index_select(0, block)
        rest = torch.minimum(rest, torch.nextafter(inside[:, -1], self._none))  # two sums may round differently
        leaf = torch.searchsorted(inside, rest.unsqueeze(1), right=True).squeeze(1)
        index = block * self._block + leaf
        return index, self._flat.index_select(0, index).clamp(min=TINY)


class PrioritizedReplay:
    """A frame replay whose transitions are drawn in proportion to priority^exponent (Schaul et al. 2016, section 3.3).

    Each batch takes one draw from each of B equal parts of the total (appendix B.2.1). New transitions get the largest
    priority there is now, so that each is seen soon. The importance weights are (P(i) / min P)^-beta, those of the
    paper's algorithm 1 with the maximum over the batch instead of all weights.

    Args:
        frames: the storage; its uniform draws are not used.
        exponent: alpha; 0 draws uniformly.
        floor: added to every priority, so that none is ever 0.
    """

    def __init__(self, frames: FrameReplay, exponent: float = 0.6, floor: float = 1e-6) -> None:
        self.frames = frames
        self.device, self.generator = frames.device, frames.generator
        self.priorities = Priorities(frames.size, frames.device)
        self._exponent = exponent
        self._floor = floor
        self._beta = torch.zeros((), device=frames.device)
        self._one = torch.ones((), device=frames.device)
        self._zeros = torch.zeros(frames.num_envs, device=frames.device)

    def __len__(self) -> int:
        """Env steps stored, resets included."""
        return len(self.frames)

    def reset(self, frames: Frame) -> None:
        """Begin with the games' first frames, (N, H, W) uint8."""
        self.frames.reset(frames)
        self.priorities.clear()

    def add(self, actions: NDArray[np.int64], step: VectorStep) -> None:
        """Store a step of the games; the transitions that it completes get the largest priority."""
        self.frames.add(actions, step)
        gone, complete = self.frames.starts()
        if gone >= 0:
            self.priorities.fill(self.frames.row(gone)[0], self._zeros)
        if complete >= 0:
            begin, real = self.frames.row(complete)
            top = self.priorities.largest()
            self.priorities.fill(begin, real * torch.where(top > 0, top, self._one))

    def state(self) -> dict[str, Any]:
        """Return everything that is stored, as the frames' replay does, and the priorities."""
        return {"frames": self.frames.state(), "priorities": self.priorities.state(), "beta": float(self._beta)}

    def load(self, state: Mapping[str, Any]) -> None:
        """Hold what a replay of the same size held."""
        self.frames.load(state["frames"])
        self.priorities.load(state["priorities"])
        self.set_beta(state["beta"])

    def cut(self, games: NDArray[np.bool_]) -> None:
        """Let the newest transition of these games, (N,), be the last before a truncation."""
        self.frames.cut(games)

    def set_beta(self, beta: float) -> None:
        """Set the exponent of the importance weights, for graphed draws too; does not wait for the device."""
        self._beta.fill_(beta)

    def sample(self, batch_size: int) -> WeightedBatch:
        """Return B transitions drawn by priority.

        Raises:
            IndexError: there are none yet.
        """
        if self.frames.starts()[1] < 0:
            raise IndexError("the replay holds no whole window yet")
        uniform = torch.rand(batch_size, dtype=torch.float64, generator=self.generator, device=self.device)
        return self.draw(uniform)

    def draw(self, uniform: Tensor) -> WeightedBatch:
        """Return the transitions that B numbers in [0, 1), (B,) float64, stand for, one in each B-th of the total."""
        count = len(uniform)
        strata = torch.arange(count, dtype=torch.float64, device=self.device)
        slot, leaf = self.priorities.find((strata + uniform) / count)
        weight = (leaf / leaf.min()) ** -self._beta
        return WeightedBatch(self.frames.transitions(*self.frames.time_and_game(slot)), weight, slot)

    def write_back(self, slot: Tensor, priority: Tensor) -> None:
        """Give the transitions at `slot` (B,) their new priorities (B,) >= 0; one that is no number counts as 0.

        A run whose loss is no number any more goes on until somebody looks at the loss.
        """
        known = torch.nan_to_num(priority, nan=0.0)
        self.priorities.put(slot, (known + self._floor) ** self._exponent)

    def stacks(self) -> Tensor:
        """Return the newest observation of every game, (N, C, H, W) uint8 on the device."""
        return self.frames.stacks()

    def pixels(self) -> tuple[Tensor, Tensor]:
        """Return each pixel's mean and standard deviation over all stored frames, (H, W) float32 each."""
        return self.frames.pixels()

    def spread(self) -> dict[str, float]:
        """Return how far apart the priorities are: their smallest, median and largest; waits for the device."""
        leaves = self.priorities.leaves()
        drawable = leaves[leaves > 0]
        if len(drawable) == 0 or self._exponent == 0:
            return {}
        low, middle, high = (
            float(v) ** (1.0 / self._exponent) for v in (drawable.min(), drawable.median(), drawable.max())
        )
        return {
            "priority/min": low,
            "priority/median": middle,
            "priority/max": high,
            "priority/beta": float(self._beta),
        }


DeviceReplay = FrameReplay | PrioritizedReplay
"""Frames on the device, drawn from uniformly or by priority."""
