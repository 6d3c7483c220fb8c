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
    monkeypatch.setattr(ranks, "gather", lambda values, _: [values, [7, here], [8, here + 1]])
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
            ranks._wait(Slow(60.0), patience)


@pytest.mark.parametrize("rounds", [(0.5,), (0.5, 0.0)])
def test_in_long_rounds_others_are_waited_for_longer(
    monkeypatch: pytest.MonkeyPatch, rounds: tuple[float, ...]
) -> None:
    """As long as this rank's own round took, or the slowest rank's before. So what they have played since the last
    checkpoint is not lost.
    """
    ranks = ranks_after_a_signal(monkeypatch, 10.0, 0.3)
    for own in rounds:
        began = time.monotonic()
        ranks._met -= own
        assert ranks.gathered(1, (), 1) == (4, ())  # 3 of the other rank
        assert ranks._met - began >= 0.3  # the next one begins
        assert ranks._round == 30.0


@pytest.mark.parametrize(("own", "timeout"), [(0.0, 10.0), (0.5, 0.1)])
def test_who_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, own: float, timeout: float) -> None:
    """The control; a rank that counts as hung is waited for no longer in long rounds either."""
    ranks = ranks_after_a_signal(monkeypatch, timeout, 60.0)
    ranks._met -= own
    with pytest.raises(Interrupted):
        ranks.gathered(1, (), 1)


def ranks_after_a_signal(monkeypatch: pytest.MonkeyPatch, timeout: float, late: float) -> Exchanges:
    """Return two ranks, of which the other comes to an exchange so many seconds late, after a round of 30 s."""

    def all_gather(places: list[torch.Tensor], own: torch.Tensor, async_op: bool) -> Slow:  # noqa: ARG001
        places[0].copy_(own)
        places[1].copy_(torch.tensor([3.0, 0.0, 30.0, 0.0], dtype=own.dtype))
        return Slow(late)

    monkeypatch.setattr(exchange, "PATIENCE", 0.05)
    monkeypatch.setattr(exchange, "SLICE", timedelta(seconds=0.02))
    monkeypatch.setattr(process, "stop_signal", lambda: 2)
    monkeypatch.setattr(process, "stop_with", lambda _: None)
    monkeypatch.setattr(dist, "all_gather", all_gather)
    ranks = Exchanges(0, 2, timeout)
    ranks._presence = cast(Any, SimpleNamespace(exchange=lambda: None, lost=None))
    return ranks
