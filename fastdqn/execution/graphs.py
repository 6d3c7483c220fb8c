"""CUDA graphs: a whole update, or a whole choice of actions, in one launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

ResultT = TypeVar("ResultT")


def graphs_on(device: torch.device) -> bool:
    """Tell whether there are graphs on `device`."""
    return device.type == "cuda"


class Graphed(Generic[ResultT]):
    """Device work without a decision on the host, as one CUDA graph: one launch, and nobody waits.

    The first three calls run on a side stream without a graph, so that cuDNN and cuBLAS have chosen and Adam has made
    its moments; what they do counts like every other call's.

    Args:
        work: what to do, with tensors that stay where they are.
        generators: all random numbers that `work` takes; each replay continues their sequences.
    """

    WARM_UP = 3

    def __init__(self, work: Callable[[], ResultT], *generators: torch.Generator) -> None:
        self._work = work
        self._generators = generators
        self._recorded: tuple[torch.cuda.CUDAGraph, ResultT] | None = None
        self._side = torch.cuda.Stream()
        self._warm = 0

    def __call__(self) -> ResultT:
        """Do the work once. The tensors of its result are overwritten by the next call."""
        if self._recorded is not None:
            graph, result = self._recorded
            graph.replay()
            return result
        if self._warm < self.WARM_UP:
            self._warm += 1
            main = torch.cuda.current_stream()
            self._side.wait_stream(main)
            with torch.cuda.stream(self._side):
                result = self._work()
            main.wait_stream(self._side)
            return result
        graph = torch.cuda.CUDAGraph()
        for generator in self._generators:
            graph.register_generator_state(generator)
        with torch.cuda.graph(graph):
            result = self._work()
        self._recorded = graph, result
        graph.replay()
        return result


class GraphedActions:
    """The actions for N games as a CUDA graph: observations, network and choice in one launch.

    Returning them is the only moment in which the host waits for the device.

    Args:
        act: returns the actions (N,) int64 on the device.
        generators: all random numbers that `act` takes.
    """

    def __init__(self, act: Callable[[], Tensor], *generators: torch.Generator) -> None:
        self._act = act
        self._choose = Graphed(self._fetched, *generators)
        self._pinned = torch.empty(0)
        self._copied = torch.cuda.Event()

    def _fetched(self) -> None:
        actions = self._act()
        if self._pinned.shape != actions.shape:  # in the first call, which is none of a graph
            self._pinned = torch.empty(actions.shape, dtype=torch.int64, pin_memory=True)
        self._pinned.copy_(actions, non_blocking=True)

    def __call__(self) -> NDArray[np.int64]:
        """Return the actions (N,); the array is overwritten by the next call."""
        self._choose()
        self._copied.record()
        self._copied.synchronize()
        return self._pinned.numpy()
