"""What a child process of `ChildProcess` is inside: what it runs, where its messages go, and what is asked of it."""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

import numpy as np
import torch

from fastdqn import process
from fastdqn.errors import RunError, UserError


class Request(NamedTuple):
    """What a parent asks of a child."""

    kind: str
    value: Any = None


class Outbox:
    """The child's side: where its messages go, and whether it has been asked to stop."""

    def __init__(self, messages: Any, control: Connection) -> None:
        self._messages = messages
        self._control = control

    def put(self, message: Any) -> None:
        """Send `message`; wait while the queue is full."""
        self._messages.put(message)

    def asked_to_stop(self) -> bool:
        """Tell whether the parent wants this process to leave; for a child of which nothing else is asked."""
        return self._control.poll()

    def request(self, wait: bool) -> Request | None:
        """Return what the parent asks for next; None if that is nothing, unless this process is to wait for it."""
        return self._control.recv() if wait or self._control.poll() else None


def run(
    variables: Mapping[str, str], work: Callable[..., None], args: tuple[Any, ...], messages: Any, control: Connection
) -> None:
    """Do `work` with `args` and an `Outbox`, in the environment that `variables` are; in the child process."""
    process.install(of_run=True)
    process.unblock_signals()
    os.environ.clear()
    os.environ.update(variables)  # the fork server has that of when it began
    np.random.seed()  # and its random state, which all its children would share
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    try:
        torch.set_num_threads(1)
        work(*args, Outbox(messages, control))
        messages.close()
        messages.join_thread()
        if sys.version_info < (3, 13):  # later ones do so themselves
            atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]
    except BaseException as error:
        with contextlib.suppress(OSError):
            control.send(error if isinstance(error, RunError | UserError) else traceback.format_exc())
        messages.close()
        messages.join_thread()  # what was sent before is not lost
        with contextlib.suppress(BaseException):  # an environment's own programs end here
            atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]
        os._exit(1)


def _leave_with_parent() -> None:
    """Wait for the parent's end, however it comes, and leave at once."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
