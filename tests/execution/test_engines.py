"""What needs no engine: sentences where one is missing, and the line to each rank, signals and codes included."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fastdqn import process
from fastdqn.errors import RunError, UserError
from fastdqn.execution import engines
from fastdqn.execution.stop_line import AGENT, StopLine
from tests.helpers.scripts import parse
from tests.helpers.waiting import wait_until


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank here is a thread of this process, which hears of the signals that it is told of."""
    monkeypatch.setattr(process, "_first", 0)
    monkeypatch.setenv("RANK", "3")


def never() -> int:
    raise AssertionError


@pytest.mark.parametrize(
    ("missing", "start", "said"),
    [
        (
            "ray",
            lambda: engines.on_ray(never, 2),
            r'--engine ray needs Ray, and ray is .* pip install "fastdqn\[ray\]"',
        ),
        ("pyspark", lambda: engines.on_spark(never, 2, local=True), r"--engine spark needs Spark, and pyspark is not"),
        (
            "pyarrow",
            lambda: engines.on_spark(never, 2, local=False),
            r'--engine spark needs Spark, and pyarrow is .* pip install "fastdqn\[spark\]"',
        ),
    ],
)
def test_a_missing_package_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, missing: str, start: Callable[[], int], said: str
) -> None:
    def found(name: str) -> Any:
        return None if name == missing else object()

    monkeypatch.setattr(importlib.util, "find_spec", found)
    with pytest.raises(UserError, match=rf"^{said}.*\.$") as caught:
        start()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("version", "said"), [(None, "is not there"), ("11.0.2", "is 11"), ("1.8.0_292", "is 1")])
def test_a_missing_or_old_java_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str | None, said: str
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    if version is not None:
        (tmp_path / "bin").mkdir()
        java = tmp_path / "bin" / "java"
        java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n", encoding="utf-8")
        java.chmod(0o755)
    ways = "openjdk-17-jre-headless or, .* default-jre-headless, or let JAVA_HOME"
    with pytest.raises(UserError, match=rf"^Spark needs Java 17 or newer, and .*java {said}; .*{ways}.*\.$"):
        engines.on_spark(never, 2, local=True)


def test_an_address_is_that_of_a_cluster() -> None:
    words = ("--processes", "2", "--engine", "ray", "--engine-address", "head:6379")
    assert parse("41_ppo_ranks", *words).ranks.engine_address == "head:6379"
    with pytest.raises(UserError, match=r"^--engine-address goes with"):
        parse("41_ppo_ranks", "--engine", "spark-local", "--engine-address", "spark://head:7077")


def started(line: StopLine, member: Callable[[], int]) -> threading.Thread:
    """Return a thread that runs `member` as a rank would."""
    thread = threading.Thread(target=line.reached_by(member, together=False), daemon=True)
    thread.start()
    return thread


def test_codes_and_words_come_back(capfd: pytest.CaptureFixture[str]) -> None:
    def member() -> int:
        print("a word, and ünïcödé", end="")
        print(1, 2, sep="", end="")
        return 7

    with StopLine() as line:
        started(line, member).join(10)
        wait_until(lambda: line.codes == {3: 7})
    assert "a word, and ünïcödé12" in capfd.readouterr().out


def test_a_signal_reaches_ranks_that_are_there_and_those_that_come_later() -> None:
    heard: list[int] = []

    def member() -> int:
        wait_until(lambda: process.stop_signal() != 0)
        heard.append(process.stop_signal())
        return process.exit_code()

    with StopLine() as line:
        first = started(line, member)
        wait_until(lambda: bool(line._lines))
        line.stop(signal.SIGINT)
        first.join(10)
        process._first = 0
        started(line, member).join(10)
        wait_until(lambda: line.codes == {3: 130})
    assert heard == [signal.SIGINT] * 2


def test_a_rank_that_nobody_waits_for_stops() -> None:
    def member() -> int:
        wait_until(lambda: process.stop_signal() != 0)
        return 0

    with StopLine() as line:
        rank = started(line, member)
        wait_until(lambda: bool(line._lines))
        late = line.reached_by(never, together=False)
    rank.join(10)
    assert not rank.is_alive()
    assert process.stop_signal() == signal.SIGTERM
    with pytest.raises(RunError, match=r"^Whoever started this rank cannot be reached at 127.0.0.1: "):
        late()


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let a rank have an agent of torchrun; exit codes with which ranks have left at once are put here."""
    codes: list[int] = []
    monkeypatch.setenv(AGENT, "an agent")
    monkeypatch.setattr(os, "_exit", codes.append)
    return codes


def test_a_rank_under_an_agent_ends_when_all_have_said_their_codes(left: list[int]) -> None:
    with StopLine(world=2) as line:
        rank = started(line, lambda: 7)
        wait_until(lambda: line.codes == {3: 7})
        rank.join(0.2)
        assert rank.is_alive()
        other = greeted(line, 4)
        other.sendall(b'{"rank": 4, "code": 0}\n')
        rank.join(10)
        assert not rank.is_alive()
        other.close()
        wait_until(lambda: not line._lines)
    assert left == []
    assert process.stop_signal() == 0


@pytest.mark.parametrize(("code", "leaves"), [(0, 1), (7, 7)])
@pytest.mark.parametrize("early", [True, False])
def test_a_rank_under_an_agent_fails_when_another_is_killed(
    left: list[int], code: int, leaves: int, early: bool
) -> None:
    """Before it comes or when it is there, whatever its own code is: an agent whose rank ended well would wait."""
    with StopLine(world=2) as line:
        rank = None if early else started(line, lambda: code)
        other = greeted(line, 4)
        wait_until(lambda: len(line._lines) == (1 if early else 2))
        other.close()
        rank = rank or started(line, lambda: code)
        rank.join(10)
        assert not rank.is_alive()
    assert left == [leaves]
    assert process.stop_signal() == 0


def test_a_rank_under_an_agent_does_not_outlive_whoever_waits_for_it(left: list[int]) -> None:
    with StopLine(world=2) as line:
        rank = started(line, lambda: 0)
        wait_until(lambda: line.codes == {3: 0})
    rank.join(10)
    assert not rank.is_alive()
    assert left == [1]  # 1, for its own 0


def greeted(line: StopLine, rank: int) -> socket.socket:
    """Return a line of another rank."""
    other = socket.create_connection(("127.0.0.1", line._port))
    other.sendall(f"{line._token} {rank}\n".encode())
    return other


def test_a_rank_that_is_at_its_end_keeps_no_one_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """After Ctrl-C, where the engine has not started another: whoever waits leaves all the same."""
    monkeypatch.setattr("fastdqn.execution.stop_line.STOP_SECONDS", 0.3)
    over = threading.Event()
    with StopLine(world=2) as line:
        other = greeted(line, 4)
        other.sendall(b'{"rank": 4, "code": 130}\n')
        wait_until(lambda: line.codes == {4: 130})
        process.stop_with(signal.SIGINT)
        with pytest.raises(RunError, match=r"^Toy has not ended its job"):
            line.wait(lambda: bool(over.wait(20)) and None, "Toy")
        other.close()
    over.set()


def test_a_job_that_ended_well_without_a_rank_has_failed() -> None:
    """As Spark says of a rank that was killed."""

    def job() -> None:
        greeted(line, 0).sendall(b'{"rank": 0, "code": 0}\n')
        wait_until(lambda: line.codes == {0: 0})

    lost = r"^Toy lost ranks 1 and 2: they were killed, or failed before they began\.$"
    with StopLine(world=3) as line, pytest.raises(RunError, match=lost):
        engines._code_of(line, job, "Toy", 3)
    with StopLine(world=1) as line:
        assert engines._code_of(line, job, "Toy", 1) == 0


OF_RAY = """The worker group failed: Worker rank 0 error:
Traceback (most recent call last):
  File "worker.py", line 1, in _ray_rank
ModuleNotFoundError: No module named 'fastdqn'."""
OF_SPARK = """An error occurred while calling o41.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Could not recover from a failed barrier
Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "pickle.py", line 1, in loads
ModuleNotFoundError: No module named 'fastdqn'
\tat org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:1)
\t... 1 more"""
OF_JAVA = """An error occurred while calling o41.collectToPython.
Caused by: java.io.IOException: No space left on device
\tat java.base/java.io.FileOutputStream.write(Native Method)"""


@pytest.mark.parametrize(
    ("broke", "cause"),
    [
        (OF_RAY, "ModuleNotFoundError: No module named 'fastdqn'"),
        (OF_SPARK, "ModuleNotFoundError: No module named 'fastdqn'"),
        (OF_JAVA, "Caused by: java.io.IOException: No space left on device"),
        ("it broke somewhere.\nhere", "it broke somewhere"),
        ("", "ValueError"),
    ],
)
def test_ranks_that_fail_before_they_begin_are_lost_with_the_engines_reason(broke: str, cause: str) -> None:
    """Say for want of a package on another machine; who is told only that they may have been killed looks in vain."""

    def job() -> None:
        raise ValueError(broke)

    with StopLine(world=2) as line, pytest.raises(RunError) as caught:
        engines._code_of(line, job, "Toy", 2)
    assert str(caught.value) == (
        f"Toy lost ranks 0 and 1: they were killed, or failed before they began; Toy says: {cause}."
    )


def test_one_that_is_lost_is_one() -> None:
    with StopLine(world=1) as line, pytest.raises(RunError, match=r"^Toy lost rank 0: it was killed, or failed before"):
        engines._code_of(line, lambda: None, "Toy", 1)


def test_a_rank_that_plays_on_after_another_was_killed_stops_when_nobody_waits() -> None:
    def member() -> int:
        wait_until(lambda: process.stop_signal() != 0)
        return 0

    with StopLine(world=2) as line:
        rank = started(line, member)
        wait_until(lambda: bool(line._lines))
        greeted(line, 4).close()
        rank.join(0.2)
        assert rank.is_alive()
    rank.join(10)
    assert not rank.is_alive()
    assert process.stop_signal() == signal.SIGTERM


def test_strangers_are_not_listened_to() -> None:
    with StopLine() as line:
        stranger = socket.create_connection(("127.0.0.1", line._port))
        stranger.sendall(b"not the token\n" + b'{"rank": 0, "code": 5}\n')
        assert stranger.recv(1) == b""  # hung up
        assert line.codes == {}
        assert not line._lines


def test_what_an_engine_raises_is_raised_here_and_one_that_hangs_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise ValueError("the toy engine broke")

    with StopLine() as line, pytest.raises(ValueError, match="toy engine"):
        line.wait(fails, "Toy")
    monkeypatch.setattr("fastdqn.execution.stop_line.STOP_SECONDS", 0.3)
    over = threading.Event()

    def asked() -> None:
        time.sleep(0.1)
        process.stop_with(signal.SIGINT)

    threading.Thread(target=asked, daemon=True).start()
    began = time.monotonic()
    with StopLine() as line, pytest.raises(RunError, match=r"^Toy has not ended its job within 0.3 seconds"):
        line.wait(lambda: bool(over.wait(20)) and None, "Toy")
    assert time.monotonic() - began < 5
    over.set()
