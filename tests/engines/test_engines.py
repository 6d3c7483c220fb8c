"""Ranks by Ray and by Spark in both of its modes: what they find, how they end, and 41 and 42 as they are.

What is the same without an engine is done without one, too.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import psutil
import pytest

from fastdqn.execution.engines import java_program
from tests.helpers.scripts import ROOT, only_run, records, summary, with_root

RAY = pytest.param(
    "ray", marks=pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
)
SPARK = pytest.mark.skipif(
    importlib.util.find_spec("pyspark") is None or shutil.which(java_program()) is None,
    reason="Spark, or Java for it, is not installed",
)
ENGINES = [RAY, *(pytest.param(mode, marks=SPARK) for mode in ("spark-local", "spark"))]
NONE = "processes"
"""--processes alone, what engines are compared with."""
pytestmark = [pytest.mark.engines, pytest.mark.timeout(280)]


MARK = "FASTDQN_TEST_FOLDER"
"""In the environment of all that a test starts, whoever's child it becomes."""


@contextlib.contextmanager
def running(words: list[str], folder: Path, **more: str) -> Iterator[subprocess.Popen[str]]:
    """Start Python; whatever the test does, nothing of what it has started survives."""
    environment = {**with_root(), "OMP_NUM_THREADS": "1", MARK: str(folder), **more}
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    words = [sys.executable, *words]
    with subprocess.Popen(words, cwd=ROOT, env=environment, start_new_session=True, **pipes) as process:
        try:
            yield process
        finally:
            end_all(folder)


def end_all(folder: Path) -> None:
    """Kill all that a test has started, Ray's and Spark's own processes too."""
    while there := marked(folder):
        for one in there:
            with contextlib.suppress(psutil.Error):
                one.kill()
        time.sleep(0.1)


def marked(folder: Path) -> list[psutil.Process]:
    """Return the living processes that a test has started."""
    there: list[psutil.Process] = []
    for one in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if one.environ().get(MARK) == str(folder) and one.status() != psutil.STATUS_ZOMBIE:
                there.append(one)
    return there


def started(engine: str, world: int, folder: Path, fault: str = "") -> AbstractContextManager[subprocess.Popen[str]]:
    """Start a process that lets an engine run `Sums`, and leaves with the run's exit code, as a script does."""
    return running(["-m", "tests.helpers.ranks_of_engines", engine, str(world), str(folder), fault], folder)


def script_words(script: str, engine: str, folder: Path, *words: str, world: int = 2) -> list[str]:
    """Return what Python is called with to let ranks of a script be started by an engine, by torchrun or by
    --processes alone; runs are put into the folder `runs` of `folder`.
    """
    program = [str(ROOT / "experiments" / f"{script}.py"), "--runs-dir", str(folder / "runs"), *words]
    if engine == "torchrun":
        return ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(world), *program]
    return [*program, "--processes", str(world), "--engine", "None" if engine == NONE else engine]


def done(words: list[str], folder: Path, seconds: float) -> str:
    """Run Python to its end, which has to be a good one, and return what it has said."""
    with running(words, folder) as process:
        said, _ = process.communicate(timeout=seconds)
    assert process.returncode == 0, said
    return said


def found(folder: Path) -> list[str]:
    return [path.read_text(encoding="utf-8").rpartition(" ")[0] for path in sorted(folder.glob("rank*"))]


def pids(folder: Path) -> list[int]:
    return [int(path.read_text(encoding="utf-8").split()[-1]) for path in sorted(folder.glob("rank*"))]


def left_behind(folder: Path, seconds: float = 10.0) -> list[list[str]]:
    """Return the command lines of what a test has started and is still there after some seconds."""
    end = time.monotonic() + seconds
    while marked(folder) and time.monotonic() < end:
        time.sleep(0.2)
    there: list[list[str]] = []
    for one in marked(folder):
        with contextlib.suppress(psutil.Error):
            there.append(one.cmdline())
    return there


def test_what_is_left_behind_is_found_and_ended(tmp_path: Path) -> None:
    """The control: without an engine, a process that has lost its parent is found, and one that has ended is not."""
    words = ["-c", "import subprocess, sys; subprocess.Popen(['sleep', sys.argv[1]], start_new_session=True)"]
    for seconds, found_ in (("0", []), ("60", [["sleep", "60"]])):
        with running([*words, seconds], tmp_path) as process:
            process.wait(30)
            assert left_behind(tmp_path, 1.0) == found_
    assert marked(tmp_path) == []


@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize("engine", ENGINES)
def test_ranks_find_each_other(tmp_path: Path, engine: str, world: int) -> None:
    """All are there, each with a number of its own, in processes of one machine; and nothing is printed but by them."""
    with started(engine, world, tmp_path) as process:
        said, _ = process.communicate(timeout=260)
    assert process.returncode == 0, said
    total = world * (world + 1) // 2
    assert found(tmp_path) == [f"{total} of {world} {rank}/{world}" for rank in range(world)]
    assert len(set(pids(tmp_path))) == world
    assert sorted(said.splitlines()) == [f"rank {rank} is there" for rank in range(world)]


@pytest.mark.parametrize("engine", ENGINES)
def test_the_exit_code_is_that_of_the_first_that_is_not_0(tmp_path: Path, engine: str) -> None:
    with started(engine, 2, tmp_path, "code") as process:
        said, _ = process.communicate(timeout=250)
        assert process.returncode == 3, said
        assert left_behind(tmp_path) == []


@pytest.mark.parametrize("engine", ENGINES)
def test_a_killed_rank_ends_the_job(tmp_path: Path, engine: str) -> None:
    with started(engine, 2, tmp_path, "killed") as process:
        said, _ = process.communicate(timeout=250)
        assert process.returncode == 1, said
        assert len(pids(tmp_path)) == 2
        assert left_behind(tmp_path) == []


@pytest.mark.parametrize("engine", ENGINES)
def test_ctrl_c_lets_ranks_end_by_themselves(tmp_path: Path, engine: str) -> None:
    """The signal goes to the whole group, as a terminal sends it, and each rank hears of it once."""
    with started(engine, 2, tmp_path, "waits") as process:
        until(lambda: len(list(tmp_path.glob("rank*"))) == 2, process, 200)
        time.sleep(0.5)
        os.killpg(process.pid, signal.SIGINT)
        began = time.monotonic()
        said, _ = process.communicate(timeout=40)
        assert process.returncode == 130, said
        assert len(list(tmp_path.glob("stopped*"))) == 2
        print(f"{engine} ended {time.monotonic() - began:.1f} s after Ctrl-C")
        assert time.monotonic() - began < 20  # of which ranks need next to nothing, on a machine that is busy
        assert left_behind(tmp_path) == []


def until(true: Callable[[], bool], process: subprocess.Popen[str], seconds: float) -> None:
    """Wait until something is true, as long as the process runs, so many seconds at most."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.1)


SMALL = ("--num-envs", "2", "--rollout-steps", "16", "--batch-size", "16", "--epochs", "2", "--threads", "1")
ENDLESS = (*SMALL, "--max-env-steps", "None", "--stop-score", "None", "--checkpoint-env-steps", "100")
CART_POLE = ("--game", "CartPole-v1", "--learning-rate-decay", "100000")


def learnt(folder: Path) -> tuple[bytes, object, list[object]]:
    """Return the weights, the number of updates and the scores of a run."""
    run = only_run(folder / "runs")
    scores: list[object] = [one["score"] for one in records(run, "episodes.jsonl")]
    return (run / "weights.safetensors").read_bytes(), summary(run)["updates"], scores


@pytest.mark.parametrize("engine", [NONE, *ENGINES])
def test_a_run_that_ctrl_c_stopped_goes_on_without_the_engine(tmp_path: Path, engine: str) -> None:
    """Ranks save what they were about, and two by --processes alone end up, bit for bit, where they would have without
    the engine and without Ctrl-C.
    """
    part, whole = tmp_path / "part", tmp_path / "whole"
    with running(script_words("41_ppo_ranks", engine, part, *CART_POLE, *ENDLESS), tmp_path) as process:
        until(lambda: any(part.glob("runs/*/checkpoints/*.checkpoint")), process, 120)
        os.killpg(process.pid, signal.SIGINT)
        said, _ = process.communicate(timeout=40)
        assert process.returncode == 130, said
        assert left_behind(tmp_path) == []
    run = only_run(part / "runs")
    assert summary(run)["reason"] == "interrupted"
    limit = ("--max-env-steps", str(summary(run)["env_steps"] + 300))
    again = ("--resume", str(run), *limit)
    assert "the games continue where they were" in done(script_words("41_ppo_ranks", NONE, part, *again), tmp_path, 50)
    done(script_words("41_ppo_ranks", NONE, whole, *CART_POLE, *ENDLESS, *limit), tmp_path, 50)
    assert learnt(part) == learnt(whole)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("engine", [NONE, *ENGINES])
def test_a_run_whose_rank_was_killed_goes_on_by_the_same_engine(tmp_path: Path, engine: str) -> None:
    """Rank 1 is killed in its 300th frame; the other one says so, and its last checkpoint is gone on from, by
    the engine that the run remembers.
    """
    words = ("--game", "tests.helpers.toys:Faulty", *ENDLESS)
    fault = {"TOY_FAULT": "kill", "TOY_RANK": "1"}
    with running(script_words("41_ppo_ranks", engine, tmp_path, *words), tmp_path, **fault) as process:
        said, _ = process.communicate(timeout=170)
        assert process.returncode == 1, said
        assert left_behind(tmp_path) == []
    assert re.search(r"error: Rank 1 \(process \d+ on .+\) is gone: it was killed, or its machine was\.\n", said), said
    run = only_run(tmp_path / "runs")
    assert (summary(run)["reason"], any(run.glob("checkpoints/*.checkpoint"))) == ("failed", True)
    before = summary(run)["env_steps"]
    remembered = json.loads((run / "config.json").read_text(encoding="utf-8"))["ranks"]["engine"]
    assert remembered == (None if engine == NONE else engine)
    program = script_words("41_ppo_ranks", NONE, tmp_path)[:3]
    said = done([*program, "--resume", str(run), *words[:2], "--max-env-steps", str(before + 100)], tmp_path, 170)
    assert "2 processes learn together" in said
    assert summary(run)["env_steps"] >= before + 100


@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize("engine", [*ENGINES, "torchrun"])
@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("41_ppo_ranks", ("--game", "CartPole-v1", "--num-envs", "2", "--max-env-steps", "600")),
        ("42_sac_ranks", ("--max-env-steps", "200", "--replay-initial", "20", "--batch-size", "16")),
    ],
)
def test_the_same_run_whoever_starts_it(
    tmp_path: Path, engine: str, script: str, words: tuple[str, ...], world: int
) -> None:
    """Weights and games are those that --processes alone gives, bit for bit."""
    for starter in (NONE, engine):
        done(script_words(script, starter, tmp_path / starter, "--threads", "1", *words, world=world), tmp_path, 130)
    assert learnt(tmp_path / engine) == learnt(tmp_path / NONE)
