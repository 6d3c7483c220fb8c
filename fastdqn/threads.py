"""Threads that work side by side on a CPU, where two small pieces of work in a thread each beat one in two threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

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
            self._pool = ThreadPoolExecutor(count - 1, "piece", initializer=_begin, initargs=(torch_threads,))

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


def flush_denormals() -> None:
    """Let numbers below 1e-38 be zero in this thread and in those that it starts from now on; where that is not to be
    had, nothing.

    Adam's first moments of weights that no longer get a gradient shrink by a tenth an update until rounding holds them
    at 1e-45, for ever, and such numbers are slow to compute with.
    """
    torch.set_flush_denormal(True)


def _begin(torch_threads: int) -> None:
    torch.set_num_threads(torch_threads)
    flush_denormals()
