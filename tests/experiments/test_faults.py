"""Ctrl-C, kill -9 and exceptions, at every stage of a run: it ends within 10 s, says why, leaves nothing behind."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from fastdqn.cli import scripts
from tests.helpers.marks import posix_signals
from tests.helpers.scripts import ROOT, Started, command, loaded, only_run, started, summary

pytestmark = posix_signals

LONG = (
    *("--game", "tests.helpers.toys:Counter", "--max-env-steps", "None", "--batch-size", "8", "--stop-score", "None"),
    *("--replay-size", "100000"),
)
PRIMING = (*LONG, "--replay-initial", "90000")
TRAINING = (*LONG, "--replay-initial", "50")
STAGES = ("imports", "server", "spawning", "priming", "training")
KILLED = [*(pytest.param(stage, marks=pytest.mark.slow) for stage in STAGES[2:4]), STAGES[4]]


def takes_interrupts(pid: int) -> bool:
    """Tell whether a process has taken SIGINT over from Python, which does so itself before it looks at a script."""
    named = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    caught = int(named["SigCgt"], 16)
    return bool(caught & 1 << (signal.SIGTERM - 1))  # Python leaves SIGTERM alone


def reach(stage: str, run: Started) -> None:
    if stage == "imports":
        run.wait_until(lambda: takes_interrupts(run.process.pid))
    elif stage == "server":
        run.wait_until(lambda: bool(run.fork_servers()))
    elif stage == "spawning":
        run.wait_until(lambda: bool(run.players()))
    elif stage == "priming":
        run.wait_until(lambda: run.env_steps() > 100)
    else:
        run.wait_until(lambda: run.updates() > 3)


@pytest.mark.parametrize("presses", [1, 2])
@pytest.mark.parametrize(
    "stage", [pytest.param(stage, marks=[pytest.mark.slow] * (stage in ("spawning", "priming"))) for stage in STAGES]
)
def test_ctrl_c(tmp_path: Path, stage: str, presses: int) -> None:
    words = TRAINING if stage == "training" else PRIMING
    with started("03_parallel", tmp_path, *words, fresh=stage == "imports") as run:
        reach(stage, run)
        run.ctrl_c()
        if presses == 2:
            time.sleep(0.05)
            if run.process.poll() is None:
                run.ctrl_c()
        code, out, err = run.finish()
    assert code == 130
    assert "Traceback" not in out + err
    if stage != "imports" and presses == 1:
        assert summary(only_run(tmp_path))["reason"] == "interrupted"
        assert "(interrupted) after" in out


def hangs(player: psutil.Process) -> bool:
    """Tell whether a process has not been woken up for a second."""
    before = player.num_ctx_switches()
    time.sleep(1.0)
    return player.num_ctx_switches() == before


def test_a_second_ctrl_c_leaves_at_once(tmp_path: Path) -> None:
    """A player that hangs takes the clean way out some seconds; the second press does not wait for it."""
    words = ("--game", "tests.helpers.toys:Faulty", *TRAINING[2:])
    with started("03_parallel", tmp_path, *words, env={"TOY_FAULT": "hang"}) as run:
        run.wait_until(lambda: run.env_steps() > 0)
        (player,) = run.players()
        run.wait_until(lambda: hangs(player))
        semaphores = semaphores_of(run.process.pid)
        run.ctrl_c()
        time.sleep(0.5)
        assert run.process.poll() is None  # it waits for the player
        begin = time.monotonic()
        run.ctrl_c()
        code, _, err = run.finish()
    assert time.monotonic() - begin < 2.0
    assert code == 130
    assert "Interrupted." in err
    assert semaphores or not Path("/proc/self/maps").exists()
    assert not [semaphore for semaphore in semaphores if semaphore.exists()]


def semaphores_of(pid: int) -> set[Path]:
    """Return the named semaphores that a process has mapped: those of tests beside this one are not among them."""
    maps = Path(f"/proc/{pid}/maps")
    if not maps.exists():
        return set()
    inodes = {int(line.split()[4]) for line in maps.read_text().splitlines() if "/dev/shm/sem." in line}
    with os.scandir("/dev/shm") as entries:
        return {Path(entry.path) for entry in entries if entry.name.startswith("sem.mp-") and entry.inode() in inodes}


REAL_GAMES = ("--replay-initial", "50", "--batch-size", "8")


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("01_baseline", TRAINING),
        pytest.param("02_play_steps", TRAINING, marks=pytest.mark.slow),
        pytest.param("06_vector_env", REAL_GAMES, marks=pytest.mark.slow),  # the emulator's own threads
        ("09_cuda_graph", REAL_GAMES),
    ],
)
def test_ctrl_c_in_one_process(tmp_path: Path, script: str, words: tuple[str, ...]) -> None:
    with started(script, tmp_path, *words) as run:
        reach("training", run)
        run.ctrl_c()
        code, out, err = run.finish()
    assert code == 130
    assert "(interrupted) after" in out
    own = f" {' '.join(words[:2])}" if "--game" in words else ""  # code, which is loaded if it is named again
    assert f"--resume {only_run(tmp_path)}{own} resumes at env step" in out
    assert "Traceback" not in err
    assert (only_run(tmp_path) / "weights.safetensors").exists()


def test_an_exception_in_one_of_many_games(tmp_path: Path) -> None:
    words = ("--game", "tests.helpers.toys:Faulty", *TRAINING[2:], "--num-envs", "3", "--steps", "12")
    with started("09_cuda_graph", tmp_path, *words, "--batch-size", "1") as run:
        code, _, err = run.finish(60)
    assert code == 1
    assert_the_environment_is_named(err)
    assert summary(only_run(tmp_path))["reason"] == "failed"
    assert (only_run(tmp_path) / "weights.safetensors").exists()


def assert_the_environment_is_named(err: str) -> None:
    said = "tests.helpers.toys:Faulty failed in step: RuntimeError: the toy emulator broke as it was told to (toys.py, "
    assert err.startswith(f"error: The environment {said}line ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("peak", "said"),
    [
        (8 * 10**9, "lower --batch-size, or keep fewer frames than 1000000: --replay-size "),
        (10**9, "The memory of the CUDA device did not suffice; lower --batch-size."),
    ],
)
def test_out_of_device_memory_says_what_would_fit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], peak: int, said: str
) -> None:
    """With the replay on the device the number of frames that would fit; without, the batch is to blame."""

    def train(_: Any) -> int:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")

    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: peak)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: peak)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (10**8, 10**10))
    monkeypatch.setattr(sys, "argv", ["09", "--replay-size", "1000000"])
    with pytest.raises(SystemExit) as end:
        scripts.start(train, loaded("09_cuda_graph").options_type, "")
    assert end.value.code == 1
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert said in err
    assert err.count("\n") == 1
    fits = re.search(r"--replay-size (\d+) would fit", err)
    assert fits is None or 800_000 < int(fits[1]) <= 900_000


@pytest.mark.parametrize(
    ("number", "whole_group"),
    [
        pytest.param(signal.SIGTERM, False, marks=pytest.mark.slow),
        (signal.SIGTERM, True),
        pytest.param(signal.SIGHUP, True, marks=pytest.mark.slow),
    ],
)
def test_sigterm_and_sighup_stop_the_run_too(tmp_path: Path, number: int, whole_group: bool) -> None:
    """From `kill`, or to every process of the group, as `timeout`, service managers and closed terminals send it."""
    with started("03_parallel", tmp_path, *TRAINING) as run:
        reach("training", run)
        (os.killpg if whole_group else os.kill)(run.process.pid, number)
        code, out, _ = run.finish()
    assert code == 128 + number
    assert "(interrupted) after" in out


@pytest.mark.parametrize("stage", KILLED)
def test_kill_9_of_the_player(tmp_path: Path, stage: str) -> None:
    with started("03_parallel", tmp_path, *(TRAINING if stage == "training" else PRIMING)) as run:
        reach(stage, run)
        (player,) = run.players()
        player.kill()
        code, _, err = run.finish()
    assert code == 1
    assert err == "error: The player process was killed by SIGKILL.\n"
    assert summary(only_run(tmp_path))["reason"] == "failed"


@pytest.mark.parametrize("stage", KILLED)
def test_kill_9_of_the_trainer(tmp_path: Path, stage: str) -> None:
    words = TRAINING if stage == "training" else PRIMING
    with (
        tempfile.TemporaryDirectory() as folder,
        started("03_parallel", tmp_path, *words, env={"TMPDIR": folder}) as run,
    ):
        reach(stage, run)
        assert list(Path(folder).iterdir())
        run.process.kill()
        code, _, _ = run.finish()  # the player, its queue's threads and the resource tracker are gone too
        assert list(Path(folder).iterdir()) == []  # so is the fork server's socket
    assert code == -signal.SIGKILL


@pytest.mark.parametrize(
    "limit", [pytest.param(2_000, marks=pytest.mark.slow), 40_000, pytest.param(3_000_000, marks=pytest.mark.slow)]
)
def test_a_disk_that_fills_up_is_one_sentence(tmp_path: Path, limit: int) -> None:
    """A limit on the size of files stands for the disk: config, logs or weights are the first to fail."""

    def set_limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    words = [*TRAINING[:-2], "--replay-initial", "300", "--train-seconds", "2", "--batch-size", "2"]
    done = subprocess.run(
        [sys.executable, "-c", RECORD_EAGERLY, *command("02_play_steps", tmp_path, *words)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
        preexec_fn=set_limit,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: Cannot write to ")
    assert done.stderr.count("\n") == 1


RECORD_EAGERLY = """
import os, runpy, sys
import fastdqn.runs.run
fastdqn.runs.run.RECORD_SECONDS = 0.0  # records come fast, so that the log outgrows the limit
sys.argv = sys.argv[1:]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_an_exception_in_the_players_game(tmp_path: Path) -> None:
    words = ("--game", "tests.helpers.toys:Faulty", *TRAINING[2:])
    with started("03_parallel", tmp_path, *words) as run:
        code, _, err = run.finish(60)
    assert code == 1
    assert_the_environment_is_named(err)
    assert summary(only_run(tmp_path))["reason"] == "failed"
    assert (only_run(tmp_path) / "weights.safetensors").exists()


def test_an_exception_in_the_trainer_ends_the_player(tmp_path: Path) -> None:
    """A learning rate that overflows: the loss is no number any more."""
    with started("03_parallel", tmp_path, *TRAINING, "--learning-rate", "1e30") as run:
        code, _, err = run.finish(60)
    assert code == 1
    assert "error: The loss became" in err
    assert "Traceback" not in err
