"""32: sessions that did not stand count on from where they were; two learn a short task; their run is watched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastdqn import build_sac
from fastdqn.cli.evaluate import Evaluate
from fastdqn.cli.evaluate import evaluate as evaluate_runs
from fastdqn.execution.session_crew import Sessions
from tests.helpers.control import Reach, registered
from tests.helpers.marks import posix_signals
from tests.helpers.resuming import FEW, QUIET, resume
from tests.helpers.scripts import SESSIONS, fastdqn_says, only_run, records, started, summary, train
from tests.helpers.sessions import session_of_reach

TWO = (*FEW, "--hidden", "16", "--sessions", "2")
REACH = (
    *(*QUIET, "--game", "Reach-v0", "--sessions", "2", "--num-envs", "2", "--batch-size", "64"),
    *("--learning-rate", "3e-3", "--target-average", "0.02", "--replay-initial", "100", "--replay-size", "2000"),
    *("--hidden", "64"),
)
LEARNT = -1.8
"""Mean score of Reach: at random it is about -5, the best there is -0.44."""


def never_stand(sessions: Sessions) -> bool:
    """As where a session is not heard of in time."""
    sessions._broken = True
    return False


def test_sessions_that_did_not_stand_count_on_from_where_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Sessions, "_stand", never_stand)
        run = train(SESSIONS, tmp_path, *TWO, "--max-frames", "50", "--max-env-steps", "240")
    assert "2 games begin anew" in resume(SESSIONS, run, "--max-env-steps", "480")
    found, lines = summary(run), records(run, "episodes.jsonl")
    assert (found["env_steps"], found["updates"]) == (480, 2 * 2 * (120 - 19))  # each fills its new replay first
    for number in (1, 2):
        of_one = [line for line in lines if line["session"] == number]
        assert [line["session_env_steps"] > 120 for line in of_one] == [False, False, True, True]
        for column in ("session_env_steps", "session_updates"):
            values = [line[column] for line in of_one]
            assert values == sorted(values), "it falls, and a curve over it is none"


@pytest.mark.slow
@posix_signals
def test_ctrl_c_while_a_session_is_stopped(tmp_path: Path) -> None:
    with started(SESSIONS, tmp_path, *TWO, "--max-env-steps", "None", "--stop-score", "None") as run:
        run.wait_until(lambda: run.updates() > 3)
        run.players()[0].suspend()
        run.ctrl_c()
        code, _, err = run.finish(30)
    assert code == 130
    assert "Traceback" not in err
    begun = summary(only_run(tmp_path))["env_steps"]
    said = resume(SESSIONS, only_run(tmp_path), "--max-env-steps", str(begun + 600))
    assert f"resumed at env step {begun:,}, " in said
    assert "2 games begin anew" in said
    assert summary(only_run(tmp_path))["env_steps"] == begun + 600


def reach(folder: Path, *words: str) -> tuple[list[dict[str, Any]], float]:
    """Let two sessions learn Reach; return the games, and the mean score of 20 with the mean action."""
    with pytest.MonkeyPatch.context() as patch, registered(Reach=Reach):
        patch.setattr(build_sac, "_session_of", session_of_reach)
        run = train(SESSIONS, folder, *REACH, *words)
        evaluate_runs(Evaluate(runs=(run,), episodes=20, num_envs=20))
    return records(run, "episodes.jsonl"), json.loads((run / "evaluation-training.json").read_text())["mean"]


@pytest.mark.parametrize("way", ["shared", "synced"])
def test_a_short_task_is_learnt_by_two(tmp_path: Path, way: str) -> None:
    lines, score = reach(tmp_path, "--distributed", way, "--max-env-steps", "1000")
    assert {line["session"] for line in lines} == {1, 2}
    assert np.mean([line["score"] for line in lines[:10]]) < -3.0
    assert score > LEARNT


def test_two_that_learn_nothing_stay_where_they_were(tmp_path: Path) -> None:
    """The control: with a learning rate of next to nothing the task is not learnt."""
    _, score = reach(tmp_path, "--learning-rate", "1e-12", "--max-env-steps", "300")
    assert score < LEARNT - 0.5


def test_a_run_of_sessions_is_watched(tmp_path: Path) -> None:
    run = train(SESSIONS, tmp_path / "run", *TWO, "--max-env-steps", "60")
    done = fastdqn_says("watch", str(run), "--out", str(tmp_path / "game.gif"), "--values", "--max-env-steps", "20")
    drawn = "a game of 20 env steps, not to its end" in done.stdout and (tmp_path / "game.gif").stat().st_size > 1_000
    assert drawn or done.stderr.startswith("error: Pendulum-v1 cannot be drawn: pygame is not installed, run `pip ")
