"""Ranks: two of them, one this process, do all that needs several at once; here is what must have come of it."""

from __future__ import annotations

import math
import os
import socket
import time
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, ClassVar, cast
from unittest import mock

import psutil
import pytest
import torch

from fastdqn import process
from fastdqn.errors import Interrupted, RunError, UserError
from fastdqn.execution import exchange, launch
from fastdqn.execution import presence as presence_of
from fastdqn.execution.exchange import Exchanges, dist, loopback_store
from fastdqn.execution.launch import joins, words_of_environment
from fastdqn.execution.presence import Presence
from fastdqn.execution.ranks import ALONE, Ranks
from fastdqn.options.ranks import RanksOptions
from fastdqn.seeds import rank_seeds, seeds_of
from fastdqn.types import EpisodeEnd
from tests.helpers.ranks import both, everything, learners, weights
from tests.helpers.scripts import parse

KINDS = ("sac", "a2c", "ppo", "dqn")


@pytest.fixture(scope="module")
def found() -> list[dict[str, Any]]:
    """What both ranks have found."""
    return both(everything)


@pytest.fixture(scope="module")
def alone() -> dict[str, Any]:
    """Weights after one process's update on the joint batch, and how large its gradient was for its clip."""
    made: dict[str, Any] = {}
    for kind, learner, batch in learners(None):
        learner.update(batch)
        made[kind] = weights(learner)
    return made


def apart(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    """Return the largest difference between two weights of the same name."""
    return max(float((one[name] - other[name]).abs().max()) for name in one)


@pytest.mark.parametrize("kind", KINDS)
def test_two_ranks_on_halves_are_one_process_on_the_whole_batch(
    found: list[dict[str, Any]], alone: dict[str, Any], kind: str
) -> None:
    for rank in found:
        assert apart(rank[f"joint_{kind}"], alone[kind]) < 1e-5


@pytest.mark.parametrize("kind", ["a2c", "ppo"])
def test_the_control_that_clips_before_it_averages_is_not(
    found: list[dict[str, Any]], alone: dict[str, Any], kind: str
) -> None:
    """The halves' gradients are of unlike size; after a clip each they would count alike."""
    assert apart(found[0][f"clip_first_{kind}"], alone[kind]) > 1e-4
    assert apart(found[0][f"clip_first_{kind}"], found[1][f"clip_first_{kind}"]) == 0.0


@pytest.mark.parametrize("kind", KINDS)
def test_after_updates_on_other_data_all_ranks_are_equal(found: list[dict[str, Any]], kind: str) -> None:
    """Bit by bit, targets and temperature too; each alone would have gone elsewhere."""
    (one, one_alone), (two, two_alone) = (rank["equal"][kind] for rank in found)
    assert one == two
    assert len({one, one_alone, two_alone}) == 3


def test_a_rank_without_a_gradient_has_one_of_zero(found: list[dict[str, Any]]) -> None:
    for rank in found:
        assert rank["no_gradient"] == [-2.0, -2.0]  # of 2 and 2, and of 4 and none


def test_all_begin_with_what_rank_0_has(found: list[dict[str, Any]]) -> None:
    """Weights, targets, temperature, Adam's moments and steps, and step sizes: the next update is the same, too."""
    (first, first_moments, first_rates, first_after), (other, moments, rates, after) = (rank["begun"] for rank in found)
    assert apart(first, other) == 0.0
    assert len(first_moments) == len(moments) > 10
    assert all(torch.equal(one, two) for one, two in zip(first_moments, moments, strict=True))
    assert max(float(one.max()) for one in moments if one.dim() == 0) == 3.0  # steps
    assert first_rates == rates == [3e-4] * 3
    assert first_after == after


@pytest.mark.parametrize("what", ["drift", "drift_of_moments"])
def test_a_rank_that_drifts_by_one_bit_is_found_and_named(found: list[dict[str, Any]], what: str) -> None:
    for rank in found:
        assert rank[what].startswith("Rank 1 no longer has the weights of rank 0, or the moments of its optimisers")


def test_ranks_whose_builds_of_pytorch_differ_begin_together(found: list[dict[str, Any]]) -> None:
    """One knows NCCL, the other one does not: they make the same exchanges all the same."""
    assert [rank["unlike_builds"] for rank in found] == [None, None]


def test_decisions_on_a_mean_are_the_same_on_all_ranks(found: list[dict[str, Any]]) -> None:
    """What target_kl asks for; each rank's own divergence would stop at another batch, and the other would wait."""
    assert [rank["mean"] for rank in found] == [1.5, 1.5]
    (together, own), (together_too, own_too) = (rank["early_stop"] for rank in found)
    assert together == together_too == 6
    assert [own, own_too] == [11, 4]


def test_what_all_have_played_is_known_to_all(found: list[dict[str, Any]]) -> None:
    ends = (EpisodeEnd(10.0, 5, False, 4), EpisodeEnd(11.0, 5, True, 5))  # rank 1's, at their places among 8 games
    assert [rank["gathered"] for rank in found] == [(15, ends)] * 2


def test_each_rank_can_send_and_rank_0_tells(found: list[dict[str, Any]]) -> None:
    assert [rank["sent"] for rank in found] == [[b"of rank 0", b"of rank 1"]] * 2
    assert [rank["told"] for rank in found] == [5, 5]
    assert [rank["collected"] for rank in found] == [[b"", b"a longer one of rank 1"], []]


def test_ranks_of_one_machine_know_each_others_processes(found: list[dict[str, Any]]) -> None:
    (own, pids), (other, too) = (rank["pids"] for rank in found)
    assert pids == too == [own, other]
    assert own == os.getpid()


def test_ranks_of_other_machines_are_not_among_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where process ids mean other processes; the control is a rank of this machine."""
    ranks, here = Exchanges(0, 3, timeout=1.0), exchange.this_machine()
    monkeypatch.setattr(ranks, "gather", lambda values: [values, [7, here], [8, here + 1]])
    assert ranks.pids_here() == [os.getpid(), 7]
    assert here == float(here)
    monkeypatch.setattr(socket, "gethostname", lambda: "elsewhere")
    assert exchange.this_machine() != here


def test_alone_there_is_no_group_and_nothing_is_averaged() -> None:
    with Ranks(RanksOptions()) as ranks:
        assert (ranks.rank, ranks.world, ranks.alone, ranks.first, ranks.descent) == (0, 1, True, True, None)
        ranks.begin(mock.sentinel.not_looked_at)
        ranks.look()
        assert not dist.is_initialized()
    assert ALONE.notes == ()
    assert ALONE.threads(None) is None


def test_seeds_are_distinct_and_rank_0_has_the_runs_own() -> None:
    drawn = [child.generate_state(1)[0] for rank in range(4) for child in rank_seeds(7, rank)]
    assert len(set(drawn)) == len(drawn)
    assert [one.generate_state(1)[0] for one in rank_seeds(7, 0)] == [one.generate_state(1)[0] for one in seeds_of(7)]


def test_the_environment_of_torchrun_is_found() -> None:
    with mock.patch.dict(os.environ, {"RANK": "1", "WORLD_SIZE": "3"}):
        assert joins() == 3
        assert words_of_environment(["--seed", "1"], None) == ["--seed", "1", "--processes", "3"]
        assert parse("42_sac_ranks", "--published").sac.learning_rate == 3e-3
        with pytest.raises(UserError, match="--processes 2 contradicts the 3 processes"):
            words_of_environment([], "2")
    with mock.patch.dict(os.environ, {"RANK": "3", "WORLD_SIZE": "3"}), pytest.raises(UserError, match="RANK 3"):
        joins()
    assert joins() is None


class Child:
    """A rank's process, of which one of several cannot be started."""

    fails = 3
    made: ClassVar[list[Child]] = []

    def __init__(self, _work: object, args: tuple[Any, ...], *_: object) -> None:
        self.rank = int(args[1]["RANK"])
        self.alive, self.asked = False, time.monotonic()
        self.made.append(self)

    def __enter__(self) -> Child:
        if self.rank == self.fails:
            raise RunError("The process rank 3 could not be started.")
        self.alive = True
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, _request: object) -> None:
        self.asked = time.monotonic()

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def close(self) -> None:
        self.alive = False


@pytest.mark.parametrize("fails", [3, 9])
def test_no_rank_is_left_where_a_later_one_cannot_start(monkeypatch: pytest.MonkeyPatch, fails: int) -> None:
    """They would wait for it; they are ended together, and soon. The control: all can, and are there."""
    monkeypatch.setattr(launch, "ChildProcess", Child)
    monkeypatch.setattr(launch, "LEAVE_SECONDS", 0.1)
    monkeypatch.setattr(Child, "fails", fails)
    monkeypatch.setattr(Child, "made", [])
    children, began = launch.Children(cast(Any, None), 4, 1.0), time.monotonic()
    if fails == 3:
        with pytest.raises(RunError, match="could not be started"):
            children.__enter__()
        assert time.monotonic() - began < 3.0
    else:
        with children:
            assert [child.alive for child in Child.made] == [True, True, True]
    assert [child.alive for child in Child.made] == [False, False, False]
    assert "RANK" not in os.environ
    assert children._look not in presence_of.lookouts


def test_each_rank_has_a_share_of_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "cores", lambda: 6)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    ranks = Ranks(RanksOptions(4))
    assert [ranks.threads(None), ranks.threads(5)] == [1, 5]
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")  # the others are on another machine
    assert ranks.threads(None) == 3
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    assert ranks.threads(None) == 1
    assert ALONE.threads(None) is None


@pytest.mark.parametrize(
    ("gpus", "asked", "cuda", "named"),
    [
        (2, None, True, "cuda:1"),
        (2, "auto", True, "cuda:1"),
        (2, "cuda", False, "cuda:1"),
        (2, "auto", False, "cuda:1"),
        (4, "cuda", False, "cuda:3"),
        (1, "cuda", False, "cuda"),  # which all share
        (2, "cuda:0", True, "cuda:0"),
        (2, "cpu", True, "cpu"),
        (2, None, False, None),
    ],
)
def test_each_rank_has_the_gpu_of_its_number(
    monkeypatch: pytest.MonkeyPatch, gpus: int, asked: str | None, cuda: bool, named: str | None
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setenv("RANK", "7")
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert Ranks(RanksOptions(8)).device_name(asked, cuda) == named
    assert ALONE.device_name(asked, cuda) == asked


def test_a_stranger_on_the_line_is_nobody() -> None:
    """Who does not know the token of the store is not taken for a rank, whatever it says."""
    store = dist.HashStore()
    with Presence(0, 2, "127.0.0.1", store) as presence:
        port = int(store.get("fastdqn/presence").decode().split()[0])
        with socket.create_connection(("127.0.0.1", port)) as line:
            line.sendall(b'{"rank": 1, "token": "guessed", "place": "here"}\n{"failed": "so I say"}\n[]\nno json\n')
            with Presence(1, 2, "127.0.0.1", store) as other:
                while not (other.complete() and presence.complete()):
                    pass
                assert presence.missing() == []
                assert presence.lost is None
        assert presence.lost is None  # it has left as it should


@pytest.mark.parametrize(("saves", "ends"), [(0.0, 0.1), (0.4, 0.35), (9.0, 0.5)])
def test_who_writes_a_checkpoint_is_ended_when_it_is_whole(
    monkeypatch: pytest.MonkeyPatch, saves: float, ends: float
) -> None:
    """Another rank is gone, and the main thread does not notice: with nothing to write the grace begins at once, else
    when that is done, or has taken too long.
    """
    left: list[float] = []
    monkeypatch.setattr(presence_of, "GRACE_SECONDS", 0.1)
    monkeypatch.setattr(presence_of, "SAVE_SECONDS", 0.6)
    monkeypatch.setattr(presence_of, "complain", lambda _: None)
    monkeypatch.setattr(process, "kill_children", lambda: None)
    monkeypatch.setattr(presence_of.os, "_exit", lambda _: left.append(time.monotonic()))
    with Presence(0, 2, "127.0.0.1", dist.HashStore()) as presence:
        began = time.monotonic()
        presence.saving = lambda: time.monotonic() - began < saves
        presence._lose("Rank 1 is gone.")
        while not left and time.monotonic() - began < 20.0:
            time.sleep(0.01)
        presence.notice()
    assert ends <= left[0] - began < ends + 15.0


@pytest.mark.parametrize("itself", [True, False])
def test_who_was_stopped_itself_does_not_take_the_others_for_gone(
    monkeypatch: pytest.MonkeyPatch, itself: bool
) -> None:
    """As Ctrl-Z stops all ranks: nobody has said a word meanwhile. The control: another rank alone was stopped."""
    monkeypatch.setattr(presence_of, "SILENT_SECONDS", 0.4)
    here, there = socket.socketpair()
    with here, there, Presence(0, 2, "127.0.0.1", dist.HashStore()) as presence:
        presence._lines[1] = line = presence_of._Line(here, 1)
        if itself:
            real = time.monotonic
            monkeypatch.setattr(time, "monotonic", lambda: real() + 1.0)
        else:
            line.heard -= 1.0
        time.sleep(0.25)
        assert (presence.lost is None) == itself
        presence.notice()
        presence._left.add(1)


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
