"""Ctrl-C, kill -9 and exceptions, at every stage of a run: it ends within 10 s, says why, leaves nothing behind."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests.scripts import Started, only_run, started, summary

pytestmark = pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="needs POSIX signals")

LONG = ("--game", "tests.toys:Counter", "--max-env-steps", "None", "--batch-size", "8", "--stop-score", "None")
PRIMING = (*LONG, "--replay-initial", "90000")
TRAINING = (*LONG, "--replay-initial", "50")
STAGES = ("imports", "spawning", "priming", "training")


def reach(stage: str, run: Started) -> None:
    if stage == "imports":
        time.sleep(0.7)
    elif stage == "spawning":
        run.wait_until(lambda: bool(run.players()))
    elif stage == "priming":
        run.wait_until(lambda: run.env_steps() > 100)
    else:
        run.wait_until(lambda: run.updates() > 3)


@pytest.mark.parametrize("presses", [1, 2])
@pytest.mark.parametrize("stage", STAGES)
def test_ctrl_c(tmp_path: Path, stage: str, presses: int) -> None:
    with started("03_parallel", tmp_path, *(TRAINING if stage == "training" else PRIMING)) as run:
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
        assert "not solved (interrupted) after" in out


@pytest.mark.parametrize("script", ["01_baseline", "02_play_steps"])
def test_ctrl_c_in_one_process(tmp_path: Path, script: str) -> None:
    with started(script, tmp_path, *TRAINING) as run:
        reach("training", run)
        run.ctrl_c()
        code, out, err = run.finish()
    assert code == 130
    assert "not solved (interrupted)" in out
    assert "Traceback" not in err
    assert (only_run(tmp_path) / "weights.safetensors").exists()


def test_sigterm_stops_the_run_too(tmp_path: Path) -> None:
    with started("03_parallel", tmp_path, *TRAINING) as run:
        reach("training", run)
        run.process.terminate()
        code, out, _ = run.finish()
    assert code == 128 + signal.SIGTERM
    assert "not solved (interrupted)" in out


@pytest.mark.parametrize("stage", ["spawning", "priming", "training"])
def test_kill_9_of_the_player(tmp_path: Path, stage: str) -> None:
    with started("03_parallel", tmp_path, *(TRAINING if stage == "training" else PRIMING)) as run:
        reach(stage, run)
        (player,) = run.players()
        player.kill()
        code, _, err = run.finish()
    assert code == 1
    assert err == "error: The player process was killed by SIGKILL.\n"
    assert summary(only_run(tmp_path))["reason"] == "failed"


@pytest.mark.parametrize("stage", ["spawning", "priming", "training"])
def test_kill_9_of_the_trainer(tmp_path: Path, stage: str) -> None:
    with started("03_parallel", tmp_path, *(TRAINING if stage == "training" else PRIMING)) as run:
        reach(stage, run)
        run.process.kill()
        code, _, _ = run.finish()  # the player, its queue's threads and the resource tracker are gone too
    assert code == -signal.SIGKILL


def test_an_exception_in_the_player_shows_its_traceback(tmp_path: Path) -> None:
    words = ("--game", "tests.toys:Faulty", *TRAINING[2:])
    with started("03_parallel", tmp_path, *words) as run:
        code, _, err = run.finish(60)
    assert code == 1
    assert "RuntimeError: the toy emulator broke as it was told to" in err
    assert err.count("Traceback") == 1
    assert err.endswith("The player process failed; its traceback is above.\n")


def test_an_exception_in_the_trainer_ends_the_player(tmp_path: Path) -> None:
    """A learning rate that overflows: the loss is no number any more."""
    with started("03_parallel", tmp_path, *TRAINING, "--learning-rate", "1e30") as run:
        code, _, err = run.finish(60)
    assert code == 1
    assert "error: The loss became" in err
    assert "Traceback" not in err
