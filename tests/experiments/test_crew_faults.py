"""21 and 22 with Ctrl-C, kill -9, exceptions and hangs: they end within 10 s, say why, leave nothing behind.

The slow ones are the same in the other phases of a run.
"""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path

import pytest

from tests.helpers.marks import posix_signals
from tests.helpers.scripts import CREWS, Started, only_run, started, summary

pytestmark = posix_signals

LONG = ("--max-env-steps", "None", "--stop-score", "None", "--players", "2", "--num-envs", "2")
CART = ("--game", "CartPole-v1", *LONG)
FAULTY = ("--game", "tests.helpers.toys:Faulty", "--batch-size", "8", *LONG)
STAGES = [pytest.param("spawning", marks=pytest.mark.slow), "training"]
OTHER = pytest.param(CREWS[1], marks=pytest.mark.slow)
WAYS = [(), pytest.param(("--synchronous",), marks=pytest.mark.slow)]


def reach(stage: str, run: Started) -> None:
    if stage == "spawning":
        run.wait_until(lambda: len(run.players()) == 2)
    else:
        run.wait_until(lambda: run.updates() > 3)


@pytest.mark.parametrize("words", WAYS)
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize(
    ("script", "presses"),
    [
        (CREWS[0], 1),
        pytest.param(CREWS[0], 2, marks=pytest.mark.slow),
        pytest.param(CREWS[1], 1, marks=pytest.mark.slow),
        (CREWS[1], 2),
    ],
)
def test_ctrl_c(tmp_path: Path, script: str, stage: str, presses: int, words: tuple[str, ...]) -> None:
    with started(script, tmp_path, *CART, *words) as run:
        reach(stage, run)
        run.ctrl_c()
        if presses == 2:
            time.sleep(0.05)
            if run.process.poll() is None:
                run.ctrl_c()
        code, out, err = run.finish()
    assert code == 130
    assert "Traceback" not in out + err
    if presses == 1:
        assert summary(only_run(tmp_path))["reason"] == "interrupted"
        assert "(interrupted) after" in out
        assert list(only_run(tmp_path).glob("checkpoints/*.checkpoint"))


@pytest.mark.slow
@pytest.mark.parametrize("script", CREWS)
def test_a_second_ctrl_c_leaves_at_once(tmp_path: Path, script: str) -> None:
    """Players that hang take the clean way out some seconds; the second press does not wait for them."""
    with started(script, tmp_path, *FAULTY, env={"TOY_FAULT": "hang"}) as run:
        run.wait_until(lambda: run.updates() > 0)
        time.sleep(3.0)
        run.ctrl_c()
        time.sleep(0.5)
        assert run.process.poll() is None  # it waits for the players
        begin = time.monotonic()
        run.ctrl_c()
        code, _, err = run.finish()
    assert time.monotonic() - begin < 2.0
    assert code == 130
    assert "Interrupted." in err


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("script", [CREWS[0], OTHER])
def test_kill_9_of_a_player(tmp_path: Path, script: str, stage: str) -> None:
    with started(script, tmp_path, *CART) as run:
        reach(stage, run)
        run.players()[0].kill()
        code, _, err = run.finish()
    assert code == 1
    assert re.fullmatch(r"error: The player [12] process was killed by SIGKILL\.\n", err)
    assert summary(only_run(tmp_path))["reason"] == "failed"


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("script", [pytest.param(CREWS[0], marks=pytest.mark.slow), CREWS[1]])
def test_kill_9_of_the_trainer(tmp_path: Path, script: str, stage: str) -> None:
    with started(script, tmp_path, *CART) as run:
        reach(stage, run)
        run.process.kill()
        code, _, _ = run.finish()  # the players, their queues' threads and the resource tracker are gone too
    assert code == -signal.SIGKILL


@pytest.mark.slow
@pytest.mark.parametrize("script", CREWS)
def test_an_exception_in_a_players_game(tmp_path: Path, script: str) -> None:
    with started(script, tmp_path, *FAULTY) as run:
        code, _, err = run.finish(120)
    assert code == 1
    said = "tests.helpers.toys:Faulty failed in step: RuntimeError: the toy emulator broke as it was told to (toys.py, "
    assert err.startswith(f"error: The environment {said}line ")
    assert err.count("\n") == 1
    assert summary(only_run(tmp_path))["reason"] == "failed"
    assert (only_run(tmp_path) / "weights.safetensors").exists()


@pytest.mark.slow
@pytest.mark.parametrize("script", CREWS)
def test_a_player_that_hangs(tmp_path: Path, script: str) -> None:
    words = (*FAULTY, "--player-timeout", "20")
    with started(script, tmp_path, *words, env={"TOY_FAULT": "hang"}) as run:
        code, _, err = run.finish(120)
    assert code == 1
    assert re.fullmatch(
        r"error: The player [12] process has sent nothing for 20 seconds \(--player-timeout\) and counts as hung\.\n",
        err,
    )


@pytest.mark.slow
@pytest.mark.parametrize("script", CREWS)
def test_an_exception_in_the_trainer_ends_the_players(tmp_path: Path, script: str) -> None:
    """A learning rate that overflows: weights or loss are no numbers any more."""
    with started(script, tmp_path, *CART, "--learning-rate", "1e30") as run:
        code, _, err = run.finish(120)
    assert code == 1
    assert err.startswith("error: ")
    assert summary(only_run(tmp_path))["reason"] == "failed"
