"""What has to happen before the slow imports; every script imports this module first.

It notes when the process began (time to solve counts imports too), and takes over SIGINT and SIGTERM:

* before a run has begun, a signal ends the process at once and quietly;
* during a run, the first signal asks the loop to stop (`stop_signal`), the second kills the child
  processes and leaves at once.

The exit code is 128 + the signal's number: 130 after Ctrl-C. Child processes ignore SIGINT, so that
the parent alone decides how a run ends.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Generator
from types import FrameType

import psutil

FORCED_EXIT_AFTER = 2  # signals
_running = False
_received = 0
_first = 0


def process_start() -> float:
    """Return when this process began, in seconds since the epoch (the clock of `time.time`)."""
    return psutil.Process().create_time()


def elapsed() -> float:
    """Return the seconds since this process began, imports included."""
    return time.time() - _PROCESS_START


def stop_signal() -> int:
    """Return the number of the first signal that asked the run to stop, or 0."""
    return _first


def exit_code() -> int:
    """Return 128 + the signal that stopped the run, or 0 if none did."""
    return 128 + _first if _first else 0


@contextlib.contextmanager
def running() -> Generator[None]:
    """Mark the time in which the first signal asks for a clean stop instead of ending the process."""
    global _running
    _running = True
    try:
        yield
    finally:
        _running = False


@contextlib.contextmanager
def signals_held() -> Generator[None]:
    """Hold SIGINT back while a child process starts: the child inherits the mask and so never sees it."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def kill_children() -> None:
    """Kill every child process of this one, without waiting for any."""
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()


def _on_signal(number: int, _frame: FrameType | None) -> None:
    global _received, _first
    _received += 1
    _first = _first or number
    if not _running or _received >= FORCED_EXIT_AFTER:
        os.write(2, b"\nInterrupted.\n")
        kill_children()
        os._exit(128 + _first)
    os.write(2, b"\nStopping; press Ctrl-C again to leave at once.\n")


def install() -> None:
    """Take over SIGINT and SIGTERM in a main process; make a child process deaf to SIGINT."""
    if threading.current_thread() is not threading.main_thread():
        return
    if multiprocessing.parent_process() is not None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        return
    signal.signal(signal.SIGINT, _on_signal)
    signal.signal(signal.SIGTERM, _on_signal)


_PROCESS_START = process_start()
if "pytest" not in sys.modules:  # in the tests pytest keeps its own handlers
    install()
