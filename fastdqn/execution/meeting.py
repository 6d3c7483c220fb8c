"""How ranks meet at the start of a run: at rank 0 first, and then each with all others.

PyTorch waits for others without looking at signals, so it does so in threads that get none, while the main thread hears
Ctrl-C, which ends the process at once until all are there.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from datetime import timedelta
from typing import Any

from fastdqn import process
from fastdqn.errors import RunError
from fastdqn.execution.exchange import dist, first_line

LOOK_SECONDS = 0.1
"""Between two looks whether rank 0 is there."""
CONNECT_SECONDS = 5.0
"""For rank 0 to answer."""


def meet_first(address: str, port: int, first: bool, world: int, seconds: float) -> Any:
    """Return the store that rank 0 keeps for all.

    Args:
        address: of rank 0.
        port: there.
        first: whether this process is rank 0.
        world: ranks.
        seconds: in which all have to be there.

    Raises:
        RunError: rank 0 is not there in time, or, for rank 0, not all others are.
    """
    end = time.monotonic() + seconds
    while not first and (why := _unreachable(address, port)) is not None:
        if time.monotonic() > end:
            raise RunError(f"Rank 0 cannot be reached at {address}: {why}.")
        time.sleep(LOOK_SECONDS)
    met = _in_a_thread(lambda: next(iter(dist.rendezvous("env://", timeout=timedelta(seconds=seconds)))))
    try:
        return met.result()[0]
    except RuntimeError as error:
        if first and "waiting for clients" in str(error):
            raise RunError(f"Not all {world} ranks came within {seconds:g} seconds.") from error
        raise RunError(f"Rank 0 cannot be reached at {address}: {first_line(error)}.") from error


def begin_group(store: Any, rank: int, world: int, seconds: float, look: Callable[[], None]) -> None:
    """Let this process be one of a group with all others, by Gloo. Where that fails, its thread may be left.

    Args:
        store: that rank 0 keeps for all.
        rank: of this process.
        world: ranks.
        seconds: in which all have to be connected.
        look: called meanwhile; raises RunError where another rank is gone.

    Raises:
        RunError: they are not connected in time, or `look` says why they will not be.
    """
    how = "set GLOO_SOCKET_IFNAME to the network interface between them"
    days = timedelta(days=7)  # whoever waits for others looks itself how long that takes
    group = {"store": store, "rank": rank, "world_size": world, "timeout": days}
    begun, end = _in_a_thread(lambda: dist.init_process_group("gloo", **group)), time.monotonic() + seconds
    while not begun.done():
        look()
        if time.monotonic() > end:
            raise RunError(f"Not all {world} ranks were connected within {seconds:g} seconds: one hangs, or {how}.")
        wait([begun], LOOK_SECONDS)
    try:
        begun.result()
    except RuntimeError as error:
        raise RunError(f"Ranks cannot reach each other ({first_line(error)}); {how}.") from error


def _in_a_thread(call: Callable[[], Any]) -> Future[Any]:
    """Return what `call` will return, or raise, in a thread that gets no signals and that no end waits for."""
    future: Future[Any] = Future()

    def work() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    with process.signals_blocked():
        threading.Thread(target=work, name="fastdqn-meeting", daemon=True).start()
    return future


def _unreachable(address: str, port: int) -> str | None:
    """Return why nobody can be reached there, None if somebody can."""
    try:
        socket.create_connection((address, port), timeout=CONNECT_SECONDS).close()
    except (OSError, OverflowError, UnicodeError) as error:
        return getattr(error, "strerror", None) or first_line(error)
    return None
