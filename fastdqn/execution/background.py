"""Work in the background on a CPU: on a core that waits for something else."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

from fastdqn import process
from fastdqn.execution.devices import flush_denormals
from fastdqn.types import Pieces


class Background:
    """Does pieces of work in a thread of its own, each in one thread of PyTorch's, while the caller does other work; a
    context manager: what has not been waited for on exit is left undone.

    Where PyTorch shares operations among several threads the pieces are done at once, shared among these: their bits
    may depend on it.

    Args:
        cores: that this process has; with one the pieces are done at once, too.
    """

    def __init__(self, cores: int) -> None:
        self._pool = ThreadPoolExecutor(1, "background", initializer=_begin_thread) if cores > 1 else None
        self._over = False

    def __enter__(self) -> Background:
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def start(self, pieces: Pieces) -> Callable[[], None]:
        """Start to do `pieces`, one after the other, which need nothing of each other. What one raises is raised here,
        where they are done at once, or by waiting.

        Returns:
            A function that helps to do those that are left, and returns once all are done, or raises what one has
            raised, however often it is called.
        """
        left, failed = deque(pieces), list[BaseException]()

        def work() -> None:
            while left and not self._over:
                try:
                    piece = left.popleft()
                except IndexError:  # the other thread has taken it
                    return
                piece()

        if self._pool is None or torch.get_num_threads() > 1:
            work()
            return lambda: None
        begun = self._pool.submit(work)

        def wait() -> None:
            if failed:
                raise failed[0]  # once more: what it was to do is missing
            try:
                work()
            except BaseException as error:
                failed.append(error)
                raise
            finally:
                if not begun.cancel():  # where nothing was begun there is nothing to wait for
                    begun.exception()
            if not begun.cancelled():
                begun.result()

        return wait


def background_on(device: torch.device) -> Background:
    """Return it for pieces that compute on `device`: a GPU is better served with all of them at once."""
    return Background(process.cores() if device.type == "cpu" else 1)


def _begin_thread() -> None:
    """Let PyTorch compute in one thread here, and tiny numbers be zero."""
    torch.set_num_threads(1)
    flush_denormals()
