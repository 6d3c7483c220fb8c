"""Exchanges: how long others are waited for, which of them are on this machine, and who can reach the store."""

from __future__ import annotations

import math
import os
import socket
import time
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import psutil
import pytest
import torch

from fastdqn import process
from fastdqn.errors import Interrupted, RunError
from fastdqn.execution import exchange
from fastdqn.execution.exchange import Exchanges, dist, loopback_store


def test_ranks_of_other_machines_are_not_among_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where process ids mean other processes; the control is a rank of this machine."""
    ranks, here = Exchanges(0, 3, timeout=1.0), exchange.this_machine()
    monkeypatch.setattr(ranks, "gather", lambda values: [values, [7, here], [8, here + 1]])
    assert ranks.pids_here() == [os.getpid(), 7]
    assert here == float(here)
    monkeypatch.setattr(socket, "gethostname", lambda: "elsewhere")
    assert exchange.this_machine() != here


@pytest.mark.parametrize("version", ["2.4.1", torch.__version__])
def test_the_store_of_children_listens_on_the_loopback_interface_alone(
    monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """The control: PyTorch's own listens on all interfaces."""
    monkeypatch.setattr(torch, "__version__", version)
    store, own = loopback_store(), dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    me: Any = psutil.Process()
    open_now = (me.net_connections if hasattr(me, "net_connections") else me.connections)()  # psutil below 6
    listening = {one.laddr.port: one.laddr.ip for one in open_now if one.status == "LISTEN"}
    assert listening[store.port] == "127.0.0.1"
    assert listening[own.port] in ("::", "0.0.0.0")
    other = dist.TCPStore("127.0.0.1", store.port, is_master=False)
    other.set("said", "by another")
    assert store.get("said") == b"by another"


class Slow:
    """An exchange that others come to after some time."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def is_completed(self) -> bool:
        return time.monotonic() >= self._end

    def wait(self, slice_: timedelta) -> None:
        time.sleep(min(slice_.total_seconds(), max(0.0, self._end - time.monotonic())))
        if not self.is_completed():
            raise RuntimeError("the slice is over")


def test_what_rank_0_sends_to_one_that_is_gone_is_an_error() -> None:
    """Its send alone might succeed, and the run end as if nothing had been."""
    ranks = Exchanges(0, 2, timeout=0.1)
    lost = "Rank 1 is gone."
    ranks._presence = cast(Any, SimpleNamespace(exchange=lambda: None, lost=lost, notice=lambda: lost))
    with mock.patch.object(process, "fail"), pytest.raises(RunError, match=lost):
        ranks._wait(Slow(0.0))


@pytest.mark.parametrize(
    ("patience", "asked", "raised"),
    [
        (None, True, Interrupted),
        (0.05, True, Interrupted),
        (10.0, True, None),
        (math.inf, True, None),
        (math.inf, False, None),
        (None, False, RunError),
    ],
)
def test_who_gathers_or_writes_a_checkpoint_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, patience: float | None, asked: bool, raised: type[Exception] | None
) -> None:
    """A signal long ago, or the time limit, ends no wait for what takes its time; in the middle of a round they do."""
    monkeypatch.setattr(exchange, "PATIENCE", 0.05)
    monkeypatch.setattr(exchange, "SLICE", timedelta(seconds=0.02))
    monkeypatch.setattr(process, "stop_signal", lambda: 2 if asked else 0)
    monkeypatch.setattr(process, "fail", lambda: None)
    ranks = Exchanges(0, 2, timeout=0.1)
    ranks._presence = cast(Any, SimpleNamespace(exchange=lambda: None, lost=None, behind=lambda: "Rank 1"))
    ranks._stopping = time.monotonic() - 1.0 if asked else None
    if raised is None:
        ranks._wait(Slow(0.3), patience)
    else:
        with pytest.raises(raised):
            ranks._wait(Slow(0.3), patience)


@pytest.mark.parametrize(
    ("own", "timeout", "raised"), [(0.0, 10.0, Interrupted), (0.5, 10.0, None), (0.5, 0.1, Interrupted)]
)
def test_in_long_rounds_others_are_waited_for_longer(
    monkeypatch: pytest.MonkeyPatch, own: float, timeout: float, raised: type[Exception] | None
) -> None:
    """As long as this rank's own took, but no longer than a rank that counts as hung. So what they have played since
    the last checkpoint is not lost.
    """
    monkeypatch.setattr(exchange, "PATIENCE", 0.05)
    monkeypatch.setattr(exchange, "SLICE", timedelta(seconds=0.02))
    monkeypatch.setattr(process, "stop_signal", lambda: 2)
    monkeypatch.setattr(process, "stop_with", lambda _: None)
    monkeypatch.setattr(dist, "all_gather", lambda *_, async_op: Slow(0.3))
    ranks = Exchanges(0, 2, timeout)
    ranks._presence = cast(Any, SimpleNamespace(exchange=lambda: None, lost=None))
    ranks._met -= own
    if raised is None:
        assert ranks.gathered(0, (), 1) == (0, ())
        assert ranks._round == pytest.approx(own, abs=0.1)
        assert time.monotonic() - ranks._met < 0.1  # the next one begins
    else:
        with pytest.raises(raised):
            ranks.gathered(0, (), 1)
