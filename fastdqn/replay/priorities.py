"""Prioritized experience replay on the device: exact proportional draws, without a tree.

A sum tree exists so that a draw costs log(capacity) scalar steps. On a device, and in PyTorch on a CPU, a few wide
operations beat many narrow ones: the leaves lie in blocks of about sqrt(capacity), each block keeps its sum, and a draw
is a cumulative sum over the blocks and one within the block that was hit. A changed leaf has its block summed anew, so
that nothing drifts however long the run is; capacities need not be powers of two.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

TINY = 1e-30
"""What a leaf is worth at least when it is drawn."""


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
