"""32: one session is 31, several learn, stop and resume; faults of any of them end the run."""

from __future__ import annotations

import json
import re
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest

from fastdqn.errors import UserError
from fastdqn.runs.checkpoint import newest, read
from tests.helpers.marks import posix_signals
from tests.helpers.outcomes import learnt_by_any_script
from tests.helpers.resuming import FEW, resume
from tests.helpers.scripts import (
    SESSIONS,
    Started,
    fastdqn_says,
    only_run,
    parse,
    records,
    started,
    summary,
    train,
)

TWO = (*FEW, "--sessions", "2")
ONE_QUICK = ["none", pytest.param("shared", marks=pytest.mark.slow), "synced"]
LONG = (*TWO, "--max-env-steps", "None", "--stop-score", "None")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 31."""
    return train("31_sac", tmp_path_factory.mktemp("alone"), *FEW, "--num-envs", "2", "--max-env-steps", "420")


@pytest.mark.slow
@pytest.mark.parametrize("way", ["none", "shared", "synced"])
def test_one_session_is_31_bit_for_bit(tmp_path: Path, alone: Path, way: str) -> None:
    """So is one that resumes, below, which is tried after every change."""
    words = (*FEW, "--num-envs", "2", "--sessions", "1", "--distributed", way, "--max-env-steps", "420")
    assert learnt_by_any_script(train(SESSIONS, tmp_path, *words)) == learnt_by_any_script(alone)


@pytest.mark.parametrize("way", ONE_QUICK)
def test_one_session_resumes_bit_for_bit(tmp_path: Path, alone: Path, way: str) -> None:
    words = (*FEW, "--num-envs", "2", "--sessions", "1", "--distributed", way)
    run = train(SESSIONS, tmp_path, *words, "--max-env-steps", "210")
    assert learnt_by_any_script(run) != learnt_by_any_script(alone)
    assert "the games continue where they were" in resume(SESSIONS, run, "--max-env-steps", "420")
    assert learnt_by_any_script(run) == learnt_by_any_script(alone)
    began = [game["began"] for game in records(run, "episodes.jsonl")]
    assert max(began) <= len(set(began)) + 2  # two are unfinished: every game counts, those after the resume, too


def two(folder: Path, way: str) -> Path:
    """Games of 50 steps; two sessions, 451 env steps each, and one update for each of them from the 20th on."""
    return train(SESSIONS, folder, *TWO, "--distributed", way, "--max-frames", "50", "--max-env-steps", "902")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two."""
    return two(tmp_path_factory.mktemp("shared"), "shared")


def test_several_sessions_share_the_env_steps_and_leave_their_pictures(shared: Path) -> None:
    check_two(shared, "shared")


@pytest.mark.slow
@pytest.mark.parametrize("way", ["synced", "none"])
def test_so_they_do_in_other_ways(tmp_path: Path, way: str) -> None:
    check_two(two(tmp_path, way), way)


def check_two(run: Path, way: str) -> None:
    found, lines = summary(run), records(run, "episodes.jsonl")
    assert (found["env_steps"], found["reason"]) == (902, "max-env-steps")
    assert found["updates"] == 2 * (451 - 19)
    assert [sum(line["session"] == number for line in lines) for number in (1, 2)] == [9, 9]
    assert max(line["session_env_steps"] for line in lines) == 451
    for picture in ("sessions.png", "trial.png"):
        assert (run / picture).read_bytes()[:4] == b"\x89PNG"  # tests/tools/test_trial.py says what they show
    trial = json.loads((run / "trial.json").read_text())
    assert {"strength", "sample_efficiency", "training_efficiency", "stability", "consistency"} < set(trial)
    assert trial["random"] < 0
    state = read(newest(run))["parts"]
    assert len(state["commons"]["commons"]) == (2 if way == "none" else 1)
    sessions = [one["learner"] for one in state["sessions"]["players"]]
    assert not np.array_equal(sessions[0]["log_temperature"], sessions[1]["log_temperature"])  # each has its own
    same = all(bool((a == b).all()) for a, b in zip(*(one["network"].values() for one in sessions), strict=True))
    assert same == (way == "shared")


@pytest.mark.slow
def test_several_sessions_resume(tmp_path: Path) -> None:
    run = train(SESSIONS, tmp_path, *TWO, "--max-env-steps", "300", "--checkpoint-env-steps", "100")
    assert summary(run)["updates"] == 2 * (150 - 19)  # they went on after each checkpoint
    said = resume(SESSIONS, run, "--max-env-steps", "600")
    assert "resumed at env step 300" in said
    assert "the games continue where they were" in said
    assert (summary(run)["env_steps"], summary(run)["updates"]) == (600, 2 * (300 - 19))


@pytest.mark.slow
def test_without_replays_sessions_play_on_before_they_learn(tmp_path: Path) -> None:
    run = train(SESSIONS, tmp_path, *TWO, "--no-checkpoint-replay", "--max-env-steps", "120")
    resume(SESSIONS, run, "--max-env-steps", "240")
    assert summary(run)["updates"] == 2 * (41 + 41)


def test_evaluate_plot_and_compare_know_it(tmp_path: Path, shared: Path) -> None:
    run = shutil.copytree(shared, tmp_path / "run")
    for words in (("evaluate", str(run), "--games", "2"), ("plot", str(run)), ("compare", str(run))):
        done = fastdqn_says(*words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr


def reach(run: Started) -> None:
    run.wait_until(lambda: run.updates() > 3)


@posix_signals
@pytest.mark.parametrize("presses", [1, 2])
@pytest.mark.slow
def test_ctrl_c(tmp_path: Path, presses: int) -> None:
    with started(SESSIONS, tmp_path, *LONG, "--max-frames", "5") as run:
        reach(run)
        for _ in range(presses):
            run.ctrl_c()
        code, out, err = run.finish(30)  # pictures and random play come last
    assert code == 130
    assert "Traceback" not in out + err
    if presses == 1:
        assert summary(only_run(tmp_path))["reason"] == "interrupted"
        assert all((only_run(tmp_path) / name).exists() for name in ("sessions.png", "trial.png", "trial.json"))
        env_steps = summary(only_run(tmp_path))["env_steps"]
        said = resume(SESSIONS, only_run(tmp_path), "--max-env-steps", str(env_steps + 200))
        assert f"resumed at env step {env_steps:,}, " in said
        assert "the games continue where they were" in said


@posix_signals
def test_kill_9_of_a_session(tmp_path: Path) -> None:
    with started(SESSIONS, tmp_path, *LONG) as run:
        reach(run)
        run.players()[0].kill()
        code, _, err = run.finish()
    assert code == 1
    assert re.fullmatch(r"error: The session [12] process was killed by SIGKILL\.\n", err)
    assert summary(only_run(tmp_path))["reason"] == "failed"


@pytest.mark.slow
@posix_signals
def test_kill_9_of_the_process_that_counts(tmp_path: Path) -> None:
    with started(SESSIONS, tmp_path, *LONG) as run:
        reach(run)
        run.process.kill()
        code, _, _ = run.finish()
    assert code == -signal.SIGKILL


@pytest.mark.slow
@posix_signals
def test_a_session_that_hangs_ends_the_run(tmp_path: Path) -> None:
    with started(SESSIONS, tmp_path, *LONG, "--session-timeout", "12") as run:
        reach(run)
        run.players()[0].suspend()
        code, _, err = run.finish(30)
    assert code == 1
    assert re.fullmatch(
        r"error: The session [12] process has sent nothing for 12 seconds \(--session-timeout\) and counts as hung\.\n",
        err,
    )


@pytest.mark.slow
@posix_signals
def test_weights_that_are_no_numbers_end_the_run(tmp_path: Path) -> None:
    """A learning rate that overflows: weights or a loss are no finite numbers any more."""
    with started(SESSIONS, tmp_path, *LONG, "--learning-rate", "1e30") as run:
        code, _, err = run.finish(120)
    assert code == 1
    what = r"(The loss_\w+ became (nan|-?inf)|A weight is no longer a finite number)"
    kept = r"(no update was any good|the weights of update \d+ are kept in \S+)"
    where = r"at env step \d+, update \d+"
    assert re.fullmatch(rf"error: {what} {where}; {kept}; a lower --learning-rate usually helps\.\n", err), err


@pytest.mark.slow
@pytest.mark.parametrize("way", ["shared", "synced"])
def test_pendulum_is_learnt_by_two(tmp_path: Path, way: str) -> None:
    words = ("--sessions", "2", "--distributed", way, "--max-env-steps", "12000", "--stop-score", "None")
    run = train(SESSIONS, tmp_path, *words, timeout=290.0)
    done = fastdqn_says("evaluate", str(run), "--games", "20")
    assert done.returncode == 0, done.stderr
    assert json.loads((run / "evaluation-training.json").read_text())["mean"] >= -250.0


def test_the_published_humanoid() -> None:
    options = parse(SESSIONS, "--game", "Humanoid-v5")
    sac, sessions = options.sac, options.sessions
    assert (sessions.sessions, sessions.distributed, options.vector.num_envs) == (16, "shared", 8)
    assert (sac.learning_rate, sac.replay_size, sac.replay_initial) == (5e-5, 200_000, 256)
    assert (sac.max_norm, sac.orthogonal, sac.steps_per_update, sac.newest_in_batch) == (0.5, True, 1, True)
    assert (options.run.max_env_steps, options.run.checkpoint_replay) == (50_000_000, False)
    assert parse("31_sac", "--game", "Humanoid-v5").sac.learning_rate == 3e-4


@pytest.mark.parametrize(
    "argv", ["--sessions 0", "--sync-every 2", "--distributed some", "--sessions 2 --max-env-steps 200"]
)
def test_bad_values_are_one_sentence(argv: str) -> None:
    with pytest.raises(UserError) as caught:
        parse(SESSIONS, *argv.split())
    assert "\n" not in str(caught.value)
