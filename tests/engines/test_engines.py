"""Ranks by Ray and by Spark in both of its modes: what they find, how they end, and 41 and 42 as they are."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.helpers.scripts import ROOT, only_run, summary

RAY = pytest.param(
    "ray", marks=pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
)
SPARK = pytest.mark.skipif(
    importlib.util.find_spec("pyspark") is None or shutil.which("java") is None,
    reason="Spark, or Java for it, is not installed",
)
ENGINES = [RAY, *(pytest.param(mode, marks=SPARK) for mode in ("spark-local", "spark"))]
pytestmark = [pytest.mark.engines, pytest.mark.timeout(280)]


MARK = "FASTDQN_TEST_FOLDER"
"""In the environment of all that a test starts, whoever's child it becomes."""


def started(engine: str, world: int, folder: Path, fault: str = "") -> subprocess.Popen[str]:
    """Start a process that lets an engine run `Sums`, and leaves with the run's exit code, as a script does."""
    words = [sys.executable, "-m", "tests.helpers.ranks_of_engines", engine, str(world), str(folder), fault]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", MARK: str(folder)}
    return subprocess.Popen(words, cwd=ROOT, env=environment, start_new_session=True, **pipes)  # type: ignore[call-overload]


def found(folder: Path) -> list[str]:
    return [path.read_text(encoding="utf-8").rpartition(" ")[0] for path in sorted(folder.glob("rank*"))]


def pids(folder: Path) -> list[int]:
    return [int(path.read_text(encoding="utf-8").split()[-1]) for path in sorted(folder.glob("rank*"))]


def left_behind(folder: Path, seconds: float = 10.0) -> list[list[str]]:
    """Return the command lines of what a test has started and is still there after some seconds."""
    end = time.monotonic() + seconds
    while True:
        there: list[list[str]] = []
        for one in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if one.environ().get(MARK) == str(folder) and one.status() != psutil.STATUS_ZOMBIE:
                    there.append(one.cmdline())
        if not there or time.monotonic() > end:
            return there
        time.sleep(0.2)


def test_what_is_left_behind_is_found(tmp_path: Path) -> None:
    """The control: without an engine, a process that has lost its parent is found, and one that has ended is not."""
    words = [sys.executable, "-c", "import subprocess, sys; subprocess.Popen(['sleep', sys.argv[1]])"]
    for seconds, found_ in (("0", []), ("60", [["sleep", "60"]])):
        subprocess.run([*words, seconds], env={**os.environ, MARK: str(tmp_path)}, check=True)
        assert left_behind(tmp_path, 1.0) == found_
    for one in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if one.environ().get(MARK) == str(tmp_path):
                one.kill()


@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize("engine", ENGINES)
def test_ranks_find_each_other(tmp_path: Path, engine: str, world: int) -> None:
    """All are there, each with a number of its own, in processes of one machine; and nothing is printed but by them."""
    said, _ = (done := started(engine, world, tmp_path)).communicate(timeout=270)
    assert done.returncode == 0, said
    total = world * (world + 1) // 2
    assert found(tmp_path) == [f"{total} of {world} {rank}/{world}" for rank in range(world)]
    assert len(set(pids(tmp_path))) == world
    assert sorted(said.splitlines()) == [f"rank {rank} is there" for rank in range(world)]


@pytest.mark.parametrize("engine", ENGINES)
def test_the_exit_code_is_that_of_the_first_that_is_not_0(tmp_path: Path, engine: str) -> None:
    said, _ = (done := started(engine, 2, tmp_path, "code")).communicate(timeout=270)
    assert done.returncode == 3, said
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize("engine", ENGINES)
def test_a_killed_rank_ends_the_job(tmp_path: Path, engine: str) -> None:
    said, _ = (done := started(engine, 2, tmp_path, "killed")).communicate(timeout=270)
    assert done.returncode == 1, said
    assert len(pids(tmp_path)) == 2
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize("engine", ENGINES)
def test_ctrl_c_lets_ranks_end_by_themselves(tmp_path: Path, engine: str) -> None:
    """The signal goes to the whole group, as a terminal sends it, and each rank hears of it once."""
    process = started(engine, 2, tmp_path, "waits")
    end = time.monotonic() + 240
    while len(list(tmp_path.glob("rank*"))) < 2:
        assert time.monotonic() < end
        assert process.poll() is None
        time.sleep(0.1)
    time.sleep(0.5)
    os.killpg(process.pid, signal.SIGINT)
    began = time.monotonic()
    said, _ = process.communicate(timeout=40)
    assert process.returncode == 130, said
    assert len(list(tmp_path.glob("stopped*"))) == 2
    print(f"{engine} ended {time.monotonic() - began:.1f} s after Ctrl-C")
    assert time.monotonic() - began < 20  # of which ranks need next to nothing, on a machine that is busy
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("41_ppo_ranks", ("--game", "CartPole-v1", "--num-envs", "2", "--max-env-steps", "600")),
        ("42_sac_ranks", ("--max-env-steps", "200", "--replay-initial", "20", "--batch-size", "16")),
    ],
)
def test_the_same_run_whoever_starts_it(tmp_path: Path, engine: str, script: str, words: tuple[str, ...]) -> None:
    """Weights and games are those that --processes alone gives, bit for bit."""
    learnt: list[tuple[bytes, object]] = []
    for name, more in (("here", ()), (engine, ("--engine", engine))):
        folder = tmp_path / name
        words_ = ("--processes", "2", "--threads", "1", "--runs-dir", str(folder), *words, *more)
        command = [sys.executable, str(ROOT / "experiments" / f"{script}.py"), *words_]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, done.stdout + done.stderr
        run = only_run(folder)
        learnt.append(((run / "weights.safetensors").read_bytes(), summary(run)["updates"]))
    assert learnt[0] == learnt[1]
