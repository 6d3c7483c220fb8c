"""A child process with a toy to do: its messages, its end, and the parent's."""

from __future__ import annotations

import errno
import multiprocessing
import queue
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from fastdqn import process
from fastdqn.errors import RunError, UserError
from fastdqn.execution import processes, starting
from fastdqn.execution.crew import Crew
from fastdqn.execution.processes import ChildProcess, Request
from fastdqn.runs.machine import resident_bytes
from tests.helpers.children import (
    clean_up_and_fail,
    count,
    count_and_fail,
    count_and_hang,
    count_and_leave,
    count_and_say_why,
    count_late,
    count_until_asked,
    describe,
    fail_at_length,
    hold,
    measure,
    start_and_terminate,
)

forked = pytest.mark.skipif(sys.platform != "linux", reason="children are spawned")


def child_of(
    work: Callable[..., None],
    *args: Any,
    capacity: int = 4,
    timeout: float = 60.0,
    name: str = "toy",
    option: str | None = None,
) -> ChildProcess:
    return ChildProcess(work, args, name, capacity, timeout, option)


def gone(pid: int | None) -> bool:
    return pid is not None and not psutil.pid_exists(pid)


def test_messages_arrive_in_order_and_the_end_of_the_work_is_noticed() -> None:
    with child_of(count, 3, 502) as child:
        assert [running.name for running in multiprocessing.active_children()] == ["fastdqn-toy"]
        assert [child.receive() for _ in range(500)] == list(range(3, 503))
        with pytest.raises(RunError, match=r"^The toy process ended with exit code 0\.$"):
            child.receive()
    assert gone(child.pid)


def test_the_queue_holds_no_more_than_its_capacity() -> None:
    with child_of(count_until_asked, capacity=5) as child:
        for number in range(20):
            assert child.receive() == number
            assert child.queued() <= 5
        time.sleep(0.5)
        assert child.queued() == 5
        time.sleep(0.2)
        assert child.queued() == 5


def test_a_queue_may_be_asked_to_hold_more_than_the_system_can_count() -> None:
    with child_of(count, 3, 5, capacity=2**40) as child:
        assert [child.receive(), child.receive()] == [3, 4]


def test_an_exception_is_raised_in_the_parent_with_its_traceback_after_what_was_sent_before() -> None:
    with child_of(count_and_fail, 9, capacity=20) as child:
        assert [child.receive() for _ in range(10)] == list(range(10))
        with pytest.raises(RunError) as caught:
            child.receive()
    said = str(caught.value)
    assert said.startswith("Traceback")
    assert "children.py" in said
    assert "ValueError: the toy work broke as it was told to" in said
    assert said.endswith("\nThe toy process failed; its traceback is above.")


def test_what_is_to_be_done_at_the_end_is_done_after_a_failure(tmp_path: Path) -> None:
    with child_of(clean_up_and_fail, tmp_path / "done") as child:
        assert child.receive() == 0
        with pytest.raises(RunError, match="ValueError"):
            child.receive()
    assert (tmp_path / "done").exists()


@pytest.mark.parametrize("reason", [RunError, UserError])
def test_a_reason_that_is_a_sentence_is_raised_in_the_parent_as_it_is(reason: type[Exception]) -> None:
    with child_of(count_and_say_why, 3, reason) as child:
        assert [child.receive() for _ in range(4)] == list(range(4))
        with pytest.raises(reason, match=r"^The toy ran out of numbers\.$"):
            child.receive()


def test_a_long_reason_is_no_hang() -> None:
    """A child that has more to say than the pipe holds waits until somebody reads it."""
    with child_of(fail_at_length, 1_000_000, timeout=20.0) as child:
        assert child.receive() == 0
        begin = time.monotonic()
        with pytest.raises(RunError, match=r"^x{1000000}$"):
            child.receive()
        assert time.monotonic() - begin < 10.0


@pytest.mark.parametrize("broken", ["close", "ask"])
def test_children_end_although_one_cannot_be_closed(monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    """Or asked: one that is left would keep the process at its end for ever."""
    with child_of(count_until_asked) as first, child_of(count_until_asked) as second:
        assert (first.receive(), second.receive()) == (0, 0)
        close = first.close

        def fail(*_: Any) -> None:
            close()
            raise MemoryError

        monkeypatch.setattr(first, broken, fail)
        with pytest.raises(MemoryError):
            processes.end_all([first, second], 2.0)
        assert gone(second.pid)
        monkeypatch.undo()


def test_a_crew_ends_whatever_its_state_raises() -> None:
    class Toys(Crew):
        def __init__(self) -> None:
            self._children = [child_of(count_until_asked)]
            self._state = None

        def state(self) -> dict[str, Any]:
            raise MemoryError

    with pytest.raises(MemoryError), Toys() as toys:
        assert toys._children[0].receive() == 0
    assert gone(toys._children[0].pid)


def test_a_killed_child_is_noticed() -> None:
    with child_of(count_until_asked, name="other") as child:
        assert child.receive() == 0
        psutil.Process(child.pid).kill()
        begin = time.monotonic()
        with pytest.raises(RunError, match=r"^The other process was killed by SIGKILL\.$"):
            for _ in range(100):
                child.receive()
        assert time.monotonic() - begin < 5


def test_a_child_that_leaves_is_noticed() -> None:
    with child_of(count_and_leave, 3) as child:
        assert child.receive() == 0
        with pytest.raises(RunError, match=r"^The toy process ended with exit code 3\.$"):
            child.receive()


@pytest.mark.parametrize(("option", "said"), [(None, ""), ("--toy-timeout", r" \(--toy-timeout\)")])
def test_a_hung_child_is_noticed_and_killed(monkeypatch: pytest.MonkeyPatch, option: str | None, said: str) -> None:
    monkeypatch.setattr(processes, "LEAVE_SECONDS", 0.5)
    with child_of(count_and_hang, option=option) as child:
        assert child.receive() == 0
        child._timeout = 1.0
        begin = time.monotonic()
        hung = rf"^The toy process has sent nothing for 1 seconds{said} and counts as hung\.$"
        with pytest.raises(RunError, match=hung):
            child.receive()
        assert 1.0 <= time.monotonic() - begin < 3.0
    assert time.monotonic() - begin < 6.0
    assert gone(child.pid)


@pytest.mark.parametrize("received", [0, 1, 9])
def test_a_child_leaves_in_time_when_it_is_asked_to(received: int) -> None:
    """Also one that waits for room in a full queue."""
    with child_of(count_until_asked, capacity=2) as child:
        for _ in range(received):
            child.receive()
        if received:
            time.sleep(0.3)
        begin = time.monotonic()
    if received:  # else it still begins
        assert time.monotonic() - begin < processes.LEAVE_SECONDS - 1.0
    assert time.monotonic() - begin < processes.LEAVE_SECONDS + 4.0
    assert gone(child.pid)


def test_an_error_in_the_parent_ends_the_child() -> None:
    with pytest.raises(ZeroDivisionError), child_of(count_until_asked) as child:
        child.receive()
        raise ZeroDivisionError
    assert gone(child.pid)


def test_a_signal_that_asks_the_parent_to_stop_ends_its_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    with child_of(count_and_hang) as child:
        assert child.receive() == 0
        monkeypatch.setattr(process, "_first", 15)
        monkeypatch.setattr(processes, "LEAVE_SECONDS", 0.5)
        assert child.receive() is None


def test_after_a_signal_a_message_is_waited_for_as_long_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """The patience begins with the signal, not with the waiting."""

    def asked_after(seconds: float) -> int | None:
        return 15 if time.monotonic() - begin > seconds else None

    with child_of(count_late, 2.0) as child:
        begin = time.monotonic()
        monkeypatch.setattr(processes, "process", SimpleNamespace(stop_signal=lambda: asked_after(1.0)))
        assert child.receive(patience=5.0 - 1.0, busy=True) == 0
        monkeypatch.setattr(processes, "process", SimpleNamespace(stop_signal=lambda: asked_after(0.0)))
        begin = time.monotonic()
        assert child.receive(patience=0.0) is None
        assert time.monotonic() - begin < 1.0


@pytest.mark.parametrize("size", [1 << 10, 1 << 22])
def test_requests_arrive_in_turn_and_one_that_is_stopped_keeps_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """However large they are; and those that nobody reads any more do not keep the parent from leaving."""
    monkeypatch.setattr(processes, "LEAVE_SECONDS", 0.5)
    with child_of(measure) as child:
        assert child.receive() == 0
        for length in (3, size, 5, size + 1, 7):
            child.ask(Request("measure", bytes(length)))
        assert [child.receive() for _ in range(5)] == [3, size, 5, size + 1, 7]
        stopped = psutil.Process(child.pid)
        stopped.suspend()
        begin = time.monotonic()
        for _ in range(3):
            child.ask(Request("measure", bytes(size)))
        assert time.monotonic() - begin < 1.0
        child._timeout = 1.0
        with pytest.raises(RunError, match=r"has sent nothing for 1 seconds and counts as hung\.$"):
            child.receive()
        stopped.resume()
        child._timeout = 60.0
        assert [child.receive() for _ in range(3)] == [size] * 3
        stopped.suspend()
        for _ in range(3):
            child.ask(Request("measure", bytes(size)))
        begin = time.monotonic()
    assert time.monotonic() - begin < processes.LEAVE_SECONDS + 3.0
    assert gone(child.pid)


@forked
def test_what_children_share_is_counted_once() -> None:
    """PyTorch's pages, which the fork server has for all of them; and each one's own."""
    me = psutil.Process()

    def of_children() -> int:
        return resident_bytes(me) - me.memory_info().rss

    with child_of(hold, 0) as one:
        assert one.receive() == 0
        alone = of_children()
        with child_of(hold, 0) as two:
            assert two.receive() == 0
            assert of_children() - alone < 0.3 * psutil.Process(two.pid).memory_info().rss
        with child_of(hold, 64) as three:
            assert three.receive() == 64 << 20
            assert of_children() - alone > 60 << 20


@forked
def test_what_is_sent_to_all_processes_of_a_run_does_not_end_the_fork_server() -> None:
    with child_of(count_until_asked) as child:
        server = psutil.Process(child.pid).parent()
        assert server is not None
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            server.send_signal(number)
        time.sleep(0.3)
        assert [child.receive() for _ in range(50)] == list(range(50))
        assert server.is_running()


@forked
def test_a_killed_fork_server_is_noticed_and_started_again() -> None:
    with child_of(count_and_hang) as child:
        assert child.receive() == 0
        lost = psutil.Process(child.pid)
        server = lost.parent()
        assert server is not None
        server.kill()
        with pytest.raises(RunError, match=r"^The toy process has lost the fork server, which was killed\.$"):
            child.receive()
    assert psutil.wait_procs([lost], 5.0)[1] == []
    with child_of(count, 3, 5) as child:
        assert child.receive() == 3


@forked
def test_what_children_have_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their parent's environment as it is, and other random numbers; they do nothing at signals, but block none."""
    monkeypatch.setenv("TOY_SAYS", "one")
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    with child_of(describe, "TOY_SAYS") as one, child_of(describe, "OMP_NUM_THREADS") as two:
        monkeypatch.delenv("TOY_SAYS")
        with child_of(describe, "TOY_SAYS") as three:
            said = [child.receive() for child in (one, two, three)]
    assert [variable for variable, *_ in said] == ["one", "1", None]
    assert len({number for _, number, *_ in said}) == 3
    assert {(*blocked, what) for *_, blocked, what in said} == {(process.be_deaf,)}


def test_a_child_that_is_busy_is_not_hung() -> None:
    """Say with games that it plays again; its death is noticed all the same."""
    with child_of(count_late, 1.5, timeout=0.5) as child:
        assert child.receive(busy=True) == 0
        with pytest.raises(RunError, match="ended with exit code 0"):
            child.receive(busy=True)


def test_what_a_child_starts_is_not_deaf() -> None:
    """A simulator that an environment ends by `terminate`."""
    with child_of(start_and_terminate) as child:
        assert child.receive() == -signal.SIGTERM


def test_a_child_that_stood_still_with_its_parent_is_not_hung(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-Z for longer than the timeout: its time begins anew. Where the parent has looked all along, it has hung."""
    with child_of(count_and_hang, timeout=10.0) as child:
        assert child.receive() == 0
        began = now = time.monotonic()
        with monkeypatch.context() as patch:
            patch.setattr(processes, "time", SimpleNamespace(monotonic=lambda: now))  # not the library's
            for seconds in (100.0, 4.0, 4.0):
                now += seconds
                assert child.look(began) is None
            now += 4.0
            with pytest.raises(RunError, match="has sent nothing for 10 seconds"):
                child.look(began)


@pytest.mark.parametrize("paused", [True, False])
def test_nor_is_one_that_stood_still_while_its_parent_waited(monkeypatch: pytest.MonkeyPatch, paused: bool) -> None:
    """The wait returns after a pause; the control waits as long as it was to."""
    with child_of(count_and_hang, timeout=10.0) as child:
        assert child.receive() == 0
        now = time.monotonic()
        began = now

        class Waiting:
            def get(self, timeout: float) -> Any:
                nonlocal now
                now += 100.0 if paused else timeout
                raise queue.Empty

        with monkeypatch.context() as patch:
            patch.setattr(processes, "time", SimpleNamespace(monotonic=lambda: now))  # not the library's
            patch.setattr(child, "_queue", Waiting())
            if paused:
                assert child.look(began, 11.0) is None
            else:
                with pytest.raises(RunError, match="has sent nothing for 10 seconds"):
                    child.look(began, 11.0)


@pytest.mark.parametrize(
    ("number", "why", "advice"),
    [
        (errno.EMFILE, "Too many open files", r"allow more \(ulimit -n\)"),
        (errno.ENOSPC, "No space left on device", "/dev/shm may be full"),
    ],
)
def test_a_process_that_cannot_be_made_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, number: int, why: str, advice: str
) -> None:
    def none_left(**_: Any) -> Any:
        raise OSError(number, why)

    monkeypatch.setattr(processes, "starter", lambda: SimpleNamespace(Queue=none_left))
    with pytest.raises(RunError, match=f"cannot be made: {why}; {advice}"):
        child_of(count_and_hang)


@forked
def test_where_the_path_of_the_servers_socket_is_too_long_children_are_spawned(monkeypatch: pytest.MonkeyPatch) -> None:
    for length, method in ((starting.LONGEST_FOLDER, "forkserver"), (starting.LONGEST_FOLDER + 1, "spawn")):
        monkeypatch.setattr(tempfile, "tempdir", "/" + "x" * (length - 1))
        assert starting.starter().get_start_method() == method
    monkeypatch.setattr(tempfile, "tempdir", "/" + "\u0436" * 40)  # of two bytes each
    assert starting.starter().get_start_method() == "spawn"
