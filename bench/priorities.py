"""Times ways to draw in proportion to priorities, and to write them back: one update's worth of each.

    python bench/priorities.py
    python bench/priorities.py --sizes 100000 --device cuda

blocks is what fastdqn uses; flat is a cumulative sum over all leaves; numpy the same with numpy's; tree is a binary sum
tree whose levels are walked for the whole batch at once.
"""

import startup  # noqa: F401 - first: Ctrl-C during the imports below

import dataclasses
import json
import math
import statistics
import sys
import time
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastdqn.cli.parser import parsed
from fastdqn.errors import UserError
from fastdqn.execution.devices import prepare_device
from fastdqn.execution.graphs import Graphed, graphs_on
from fastdqn.replay.memory import replay_device
from fastdqn.replay.priorities import Priorities


@dataclasses.dataclass(frozen=True)
class PriorityOptions:
    sizes: tuple[int, ...] = (100_000, 1_000_000)
    """Numbers of leaves."""
    batch_sizes: tuple[int, ...] = (32, 128)
    """Leaves drawn and written back at once."""
    device: str = "cpu"
    """Where the leaves live: cpu, cuda, cuda:N or auto."""
    threads: int | None = None
    """CPU threads of PyTorch."""
    seconds: float = 1.0
    """How long each is timed."""


class Way(Protocol):
    def find(self, uniform: Tensor) -> Tensor: ...

    def put(self, index: Tensor, values: Tensor) -> None: ...


class Blocks:
    """fastdqn's: sums of blocks, then one block."""

    def __init__(self, leaves: Tensor) -> None:
        self.priorities = Priorities(len(leaves), leaves.device)
        self.priorities.fill(0, leaves)

    def find(self, uniform: Tensor) -> Tensor:
        return self.priorities.find(uniform)[0]

    def put(self, index: Tensor, values: Tensor) -> None:
        self.priorities.put(index, values)


class Flat:
    """A cumulative sum over all leaves for each draw."""

    def __init__(self, leaves: Tensor) -> None:
        self.leaves = leaves.clone()

    def find(self, uniform: Tensor) -> Tensor:
        through = self.leaves.cumsum(0, dtype=torch.float64)
        return torch.searchsorted(through, uniform * through[-1], right=True)

    def put(self, index: Tensor, values: Tensor) -> None:
        self.leaves.index_copy_(0, index, values)


class Numpy:
    """The same with numpy."""

    def __init__(self, leaves: Tensor) -> None:
        self.leaves: NDArray[np.float32] = leaves.cpu().numpy().copy()

    def find(self, uniform: Tensor) -> Tensor:
        through: NDArray[np.float64] = np.cumsum(self.leaves, dtype=np.float64)
        mass = torch.from_numpy(through) if len(through) else uniform
        return torch.searchsorted(mass, uniform * mass[-1], right=True)

    def put(self, index: Tensor, values: Tensor) -> None:
        self.leaves[index.numpy()] = values.numpy()


class Tree:
    """A binary sum tree in numpy, one level at a time for the whole batch."""

    def __init__(self, leaves: Tensor) -> None:
        self.depth = math.ceil(math.log2(len(leaves)))
        self.first = 2**self.depth
        self.nodes = np.zeros(2 * self.first)
        self.nodes[self.first : self.first + len(leaves)] = leaves.cpu().numpy()
        for level in range(self.depth - 1, -1, -1):
            below = self.nodes[2 ** (level + 1) : 2 ** (level + 2)]
            self.nodes[2**level : 2 ** (level + 1)] = below[::2] + below[1::2]

    def find(self, uniform: Tensor) -> Tensor:
        mass: NDArray[np.float64] = uniform.numpy() * self.nodes[1]
        node: NDArray[np.int64] = np.ones(len(uniform), np.int64)
        for _ in range(self.depth):
            left: NDArray[np.float64] = self.nodes[2 * node]
            right: NDArray[np.bool_] = mass >= left
            mass = np.where(right, mass - left, mass)
            node = 2 * node + right
        return torch.from_numpy(node - self.first)

    def put(self, index: Tensor, values: Tensor) -> None:
        node: NDArray[np.int64] = index.numpy() + self.first
        self.nodes[node] = values.numpy()
        for _ in range(self.depth):
            node = np.unique(node // 2)
            self.nodes[node] = self.nodes[2 * node] + self.nodes[2 * node + 1]


def milliseconds(way: Way, batch_size: int, seconds: float, device: torch.device) -> float:
    """Return the median time of one draw and one write-back, on a GPU in a graph, as an update does them."""
    generator = torch.Generator(device).manual_seed(0)

    def once() -> None:
        uniform = torch.rand(batch_size, dtype=torch.float64, generator=generator, device=device)
        index = way.find(uniform)
        way.put(index, uniform.float() + 0.1)

    graphed, together = graphs_on(device), 1
    if graphed:
        once, together = Graphed(once, generator), 50  # the launches go ahead, as in a run
        for _ in range(Graphed.WARM_UP + 1):
            once()
        torch.cuda.synchronize(device)
    pieces: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(pieces) < 5:
        begin = time.perf_counter()
        for _ in range(together):
            once()
        if graphed:
            torch.cuda.synchronize(device)
        pieces.append((time.perf_counter() - begin) / together)
    return 1000.0 * statistics.median(pieces)


def main() -> int:
    try:
        options = parsed(PriorityOptions, sys.argv[1:], PriorityOptions(), __doc__ or "")
        if min(options.sizes) < 2 or min(options.batch_sizes) < 1:
            raise UserError("--sizes must be at least 2 and --batch-sizes at least 1.")
        device = prepare_device(options.device, threads=options.threads)
        if replay_device(device) != device:
            raise UserError(f"With --device {device} a replay and its priorities are on the CPU; leave it out.")
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    ways: list[type[Blocks] | type[Flat] | type[Numpy] | type[Tree]] = [Blocks, Flat]
    ways += [] if graphs_on(device) else [Numpy, Tree]
    for size in options.sizes:
        leaves = torch.rand(size, generator=torch.Generator().manual_seed(0)).to(device)
        for batch_size in options.batch_sizes:
            for way in ways:
                spent = milliseconds(way(leaves), batch_size, options.seconds, device)
                line = {"way": way.__name__.lower(), "size": size, "batch_size": batch_size, "milliseconds": spent}
                print(json.dumps({**line, "milliseconds": round(spent, 4)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
