"""Threads that work side by side on a CPU, where two small pieces of work in a thread each beat one in two threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from fastdqn.seam import Descent, Group
from fastdqn.states import NothingUnfinished, set_generator
from fastdqn.types import Batch, Metrics

ResultT = TypeVar("ResultT")


class SideBySide:
    """Does pieces of work at the same time, the first in the caller's thread and each other one in a thread of its own.

    PyTorch shares one operation among threads and waits for all of them after each; pieces that need nothing of each
    other wait once.

    Args:
        count: most pieces at a time.
        torch_threads: threads in which PyTorch shares an operation of one piece, and from now on all that the caller
            does: threads that have just shared one keep their cores busy, waiting for the next. With one piece at a
            time nothing is changed.
    """

    def __init__(self, count: int, torch_threads: int = 1) -> None:
        self.count = count
        self._pool = None
        if count > 1:  # the number of threads is each thread's own
            torch.set_num_threads(torch_threads)
            self._pool = ThreadPoolExecutor(count - 1, "piece", initializer=begin_thread, initargs=(torch_threads,))

    def __call__(self, *pieces: Callable[[], ResultT]) -> list[ResultT]:
        """Return what `pieces` return, in their order, once all are done.

        Raises whatever a piece raises, the first of them.
        """
        if self._pool is None:
            return [piece() for piece in pieces]
        first, *others = pieces
        waiting = [self._pool.submit(piece) for piece in others]
        try:
            results = [first()]
        finally:
            for other in waiting:
                other.exception()
        return results + [other.result() for other in waiting]


class Replicable(Protocol):
    """A learner of which there can be replicas: the very same weights, with gradients and noise of their own."""

    device: torch.device
    group: Group
    noise: torch.Generator
    descent: Descent

    def gradient(self, group: Group, batch: Batch) -> Metrics: ...
    def stepped(self, group: Group) -> None: ...
    def replica(self, number: int) -> Any: ...
    def draw_acting_noise(self) -> None: ...
    def greedy(self, obs: Tensor, largest: Tensor | None = None) -> Tensor: ...
    def acting_values(self, obs: Tensor) -> Tensor: ...
    def state(self) -> dict[str, Any]: ...
    def load(self, state: Mapping[str, Any]) -> None: ...


class SeveralGradients(NothingUnfinished):
    """A learner whose gradients, of an update each, are computed side by side, and whose actions are, too.

    The gradients of a group of updates are all computed at the weights before it, so that the last one is as many steps
    old as there are others when it is applied.

    Args:
        learner: on the CPU, unless `at_once` is 1.
        at_once: gradients at a time; with 1 every update is the learner's own.
        acting: threads that choose actions while there are no updates; by default as many as PyTorch has.
    """

    def __init__(self, learner: Replicable, at_once: int, acting: int | None = None) -> None:
        self.learner = learner
        self.at_once = at_once if learner.device.type == "cpu" else 1  # one gradient has all of a GPU already
        self._threads = SideBySide(self.at_once, max(1, torch.get_num_threads() // self.at_once))
        self._replicas: list[Any] = [learner, *(learner.replica(i) for i in range(1, self.at_once))]
        self._acting, self._count = self._threads, torch.get_num_threads()
        self._acting_alone = acting or self._count
        self._paused: SideBySide | None = None

    def update(self, batches: Sequence[Batch]) -> list[Metrics]:
        """Make an optimiser step on each of `batches`, at most `at_once`, one after the other.

        Raises:
            ValueError: there are more.
        """
        if len(batches) > self.at_once:
            raise ValueError(f"{len(batches)} batches, but at most {self.at_once} at a time")
        learner, replicas = self.learner, self._replicas[: len(batches)]
        metrics = self._threads(
            *[partial(one.gradient, one.group, batch) for one, batch in zip(replicas, batches, strict=True)]
        )
        gradients = [[parameter.grad for parameter in one.group.parameters] for one in replicas]
        for gradient in gradients:
            self._lend(gradient)
            learner.descent.step(learner.group)
            learner.stepped(learner.group)
        self._lend(gradients[0])  # its own, which it may write over
        return metrics

    def _lend(self, gradient: Sequence[Tensor | None]) -> None:
        for parameter, own in zip(self.learner.group.parameters, gradient, strict=True):
            parameter.grad = own

    def act(self, obs: Tensor, largest: Tensor | None = None) -> Tensor:
        """Return the actions (N,) for (N, C, H, W), in each thread those of some of the games; write their values to
        `largest`, (N,), if it is given.
        """
        self.learner.draw_acting_noise()
        count = self._acting.count
        if count == 1:
            return self.learner.greedy(obs, largest)
        parts = obs.chunk(count)
        places = [None] * len(parts) if largest is None else largest.chunk(count)
        pieces = [partial(self.learner.greedy, part, place) for part, place in zip(parts, places, strict=True)]
        return torch.cat(self._acting(*pieces))

    def pause_updates(self, paused: bool) -> None:
        """Take note whether there will be no updates for a while, only actions.

        On a CPU these are then chosen in several threads, some of the games in each: sooner than sharing each operation
        among these threads, which go on waiting for the next one while the games want their cores.
        With several gradients at a time they always are.
        """
        if self.learner.device.type != "cpu" or self.at_once > 1:
            return
        if self._paused is None:
            if not paused or self._acting_alone == 1:
                return
            self._paused = SideBySide(self._acting_alone)
        torch.set_num_threads(1 if paused else self._count)
        self._acting = self._paused if paused else self._threads

    def state(self) -> dict[str, Any]:
        """Return the learner's state, and where the noise of its replicas stands."""
        return {**self.learner.state(), "replicas": [one.noise.get_state() for one in self._replicas[1:]]}

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from there; before the first update. Another device may have fewer replicas."""
        self.learner.load(state)
        for one, noise in zip(self._replicas[1:], state["replicas"], strict=False):
            set_generator(one.noise, noise)


def flush_denormals() -> None:
    """Let numbers below 1e-38 be zero in this thread and in those that it starts from now on; where that is not to be
    had, nothing.

    Adam's first moments of weights that no longer get a gradient shrink by a tenth an update until rounding holds them
    at 1e-45, for ever, and such numbers are slow to compute with.
    """
    for kind in (np.float32, np.float64):
        np.finfo(kind)  # older numpy looks at the smallest numbers then, and would warn of zeros
    torch.set_flush_denormal(True)


def begin_thread(torch_threads: int) -> None:
    """Let this thread share an operation among so many of PyTorch's, and tiny numbers be zero in it."""
    torch.set_num_threads(torch_threads)
    flush_denormals()
