"""--resume: a run that was stopped is the run that was not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from fastdqn.algorithms import freeze_trial
from fastdqn.replay.transitions import _unpacked
from fastdqn.runs.checkpoint import checkpoints_in, newest, read
from fastdqn.tools.reading import read_run
from tests.helpers.resuming import NARROW, PLAIN, RAINBOW, VECTOR, resume
from tests.helpers.scripts import AS_ATARI, ROOT, TOY_CATCH, command, only_run, records, started, summary, train

DOTS = "tests.helpers.own:Dots"  # an environment of one's own
HALF, WHOLE = "130", "260"
CLOCK = ("elapsed", "first_update", "records", "rss", "peak_rss", "neighbours", "lines")
"""What a state says of the clock and of the machine's memory."""


def state_at_the_end(run: Path) -> dict[str, Any]:
    return read(newest(run))


def without_clock(run: Path, name: str) -> list[dict[str, Any]]:
    return [{k: v for k, v in line.items() if k != "elapsed"} for line in records(run, name)]


def same(left: Any, right: Any, path: str = "") -> None:
    """Compare two states, bit for bit, but for what the clock says."""
    if isinstance(left, dict) and "discount" in left:  # of a list replay: frames may be shared otherwise
        for a, b in zip(_unpacked(left), _unpacked(right), strict=True):
            assert a[1:4] == b[1:4], path
            assert all(np.array_equal(np.asarray(x), np.asarray(y)) for x, y in ((a.obs, b.obs), (a[4], b[4]))), path
    elif isinstance(left, dict):
        assert left.keys() == right.keys(), path
        for key in left:
            if key not in CLOCK:
                same(left[key], right[key], f"{path}/{key}")
    elif isinstance(left, (list, tuple)):
        assert len(left) == len(right), path
        for i, (a, b) in enumerate(zip(left, right, strict=True)):
            same(a, b, f"{path}/{i}")
    elif isinstance(left, torch.Tensor):
        assert torch.equal(left, right), path
    else:
        assert left == right, path


RETURNS = ("--n-step", "1", "--trace-decay", "0.8", "--block-steps", "5", "--refresh-env-steps", "40")
IN_TURNS = ("--refresh-turns", "2", "--refresh-delay", "0.6")
AVERAGE = ("--prioritized", "--importance-decay", "260", "--target-average", "0.1", "--act-with", "target")


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("01_baseline", PLAIN),
        pytest.param("02_play_steps", (*PLAIN, "--steps", "4"), marks=pytest.mark.slow),
        *(pytest.param(script, VECTOR, marks=pytest.mark.slow) for script in ("06_vector_env", "08_overlap")),
        pytest.param("07_device_replay", VECTOR, marks=pytest.mark.slow),
        ("09_cuda_graph", (*VECTOR, "--center-frames", "--final-learning-rate", "1e-5")),
        pytest.param("01_baseline", (*PLAIN, "--game", DOTS), marks=pytest.mark.slow),
        ("07_device_replay", (*VECTOR, "--game", DOTS)),
        ("10_rainbow", RAINBOW),
        ("11_pong_in_seconds", (*VECTOR, *NARROW, "--freeze-share", "0.5")),
        *(
            pytest.param("11_pong_in_seconds", (*VECTOR, *NARROW, *RETURNS, *more), marks=pytest.mark.slow)
            for more in ((), AVERAGE)
        ),
        ("11_pong_in_seconds", (*VECTOR, *NARROW, *RETURNS, *AVERAGE, *IN_TURNS)),
        ("11_pong_in_seconds", (*VECTOR, *NARROW, *RETURNS, *AVERAGE, "--num-envs", "4", "--freeze-share", "0.5")),
    ],
)
def test_n_and_n_more_are_2n(tmp_path: Path, script: str, words: tuple[str, ...]) -> None:
    """Weights, optimiser, replay, games, random numbers, counters and logs, bit for bit."""
    whole = train(script, tmp_path / "whole", *words, "--max-env-steps", WHOLE)
    run = train(script, tmp_path / "half", *words, "--max-env-steps", HALF)
    assert summary(run)["env_steps"] < int(WHOLE) - 100
    assert records(run, "speed.jsonl")[-1]["updates"] > 10
    said = resume(script, run, "--max-env-steps", WHOLE)
    assert "the games continue where they were" in said
    same(state_at_the_end(whole), state_at_the_end(run))
    left, right = (safetensors.numpy.load_file(folder / "weights.safetensors") for folder in (whole, run))
    assert all((left[name] == right[name]).all() for name in left)
    assert without_clock(whole, "episodes.jsonl") == without_clock(run, "episodes.jsonl")
    if script == "10_rainbow":
        assert len(records(run, "reports.jsonl")) >= 4
        assert without_clock(whole, "reports.jsonl") == without_clock(run, "reports.jsonl")
    a, b = summary(whole), summary(run)
    assert all(a[key] == b[key] for key in ("env_steps", "updates", "samples", "episodes", "mean_100"))


@pytest.mark.slow
@pytest.mark.parametrize(("games", "half", "frozen"), [("3", "650", True), ("4", "650", False), ("4", "664", True)])
def test_a_run_with_freeze_trials_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, games: str, half: str, frozen: bool
) -> None:
    """Any agent is frozen after a point, whatever it won, and learns again after two more that it lost; four games are
    played in halves. In the middle of a trial, and between two.
    """
    monkeypatch.setattr(freeze_trial, "POINTS", 1)
    monkeypatch.setattr(freeze_trial, "LIMIT", -1.0)
    script = "11_pong_in_seconds"
    words = (*VECTOR, "--game", "pong", *NARROW, "--freeze-share", "0.9", "--epsilon-final", "0.5")
    words += ("--freeze-slack", "1", *RETURNS, "--num-envs", games)
    whole = train(script, tmp_path / "whole", *words, "--max-env-steps", "1300")
    run = train(script, tmp_path / "half", *words, "--max-env-steps", half)
    middle = state_at_the_end(run)["parts"]["trial"]
    assert (middle["trials"] >= 1, middle["frozen"]) == (True, frozen)
    resume(script, run, "--max-env-steps", "1300")
    assert state_at_the_end(run)["parts"]["trial"]["trials"] > middle["trials"]
    same(state_at_the_end(whole), state_at_the_end(run))
    reports = without_clock(whole, "reports.jsonl")
    assert reports == without_clock(run, "reports.jsonl")
    assert {line.get("freeze/frozen") for line in reports} >= {0.0, 1.0}
    assert 50 < summary(whole)["updates"] == summary(run)["updates"] < 290  # of 310


def test_with_a_player_process_counters_ratio_and_schedules_resume(tmp_path: Path) -> None:
    """04 and 05 have the loop of 03."""
    script = "03_parallel"
    run = train(script, tmp_path, *PLAIN, "--steps", "3", "--max-env-steps", "130")
    middle = summary(run)
    assert (middle["env_steps"], middle["updates"]) == (130, (129 - 60) // 3)
    said = resume(script, run, "--max-env-steps", "200")
    assert "; the games begin anew" in said
    result = summary(run)
    assert (result["env_steps"], result["updates"]) == (200, (198 - 60) // 3)
    assert result["samples"] == result["updates"] * 12
    last = records(run, "speed.jsonl")[-1]
    first = next(line for line in records(run, "speed.jsonl") if line["env_steps"] > 130)
    assert first["epsilon"] == pytest.approx(1 - first["env_steps"] / 200)
    assert last["epsilon"] == 0.1  # Breakout's final one
    elapsed = [line["elapsed"] for line in records(run, "speed.jsonl")]
    assert elapsed == sorted(elapsed)


@pytest.mark.slow
def test_solved_counts_games_from_before(tmp_path: Path) -> None:
    """The window of the stop test resumes, in the player process too: 60 games and 40 more are the 100."""
    words = ("--game", TOY_CATCH, *AS_ATARI, "--replay-initial", "1200", "--replay-size", "9000")
    words += ("--stop-score", "None")
    run = train("03_parallel", tmp_path, *words, "--max-env-steps", "1240", "--epsilon-decay", "0")
    before = summary(run)["episodes"]
    assert before > 100
    resume("03_parallel", run, "--max-env-steps", "9000", "--stop-score", "-2")
    result = summary(run)
    assert (result["reason"], result["solved"]) == ("solved", True)
    assert result["episodes"] <= before + 1
    assert result["env_steps"] < 1300


@pytest.mark.slow
def test_without_its_replay_a_run_fills_it_again(tmp_path: Path) -> None:
    run = train("09_cuda_graph", tmp_path, *VECTOR, "--max-env-steps", HALF, "--no-checkpoint-replay")
    small = checkpoints_in(run)[-1].stat().st_size
    before = summary(run)
    resume("09_cuda_graph", run, "--max-env-steps", "300", "--checkpoint-replay")
    result = summary(run)
    assert checkpoints_in(run)[-1].stat().st_size > small
    gained = result["updates"] - before["updates"]
    expected = (result["env_steps"] - before["env_steps"] - 60) // 4
    assert abs(gained - expected) <= 1
    resume("09_cuda_graph", run, "--max-env-steps", "400")  # and with it, it is as always
    assert abs(summary(run)["updates"] - result["updates"] - 100 // 4) <= 2


@pytest.mark.slow
def test_twice_without_its_replay(tmp_path: Path) -> None:
    run = train("09_cuda_graph", tmp_path, *VECTOR, "--max-env-steps", HALF, "--no-checkpoint-replay")
    for limit in ("230", "330"):
        before = summary(run)
        resume("09_cuda_graph", run, "--max-env-steps", limit)
        result = summary(run)
        expected = (result["env_steps"] - before["env_steps"] - 60) // 4
        assert abs(result["updates"] - before["updates"] - expected) <= 1


def test_a_run_that_is_over_stays_as_it_is(tmp_path: Path) -> None:
    run = train("09_cuda_graph", tmp_path, *VECTOR, "--max-env-steps", "90")
    kept = {path: path.read_bytes() for path in run.rglob("*") if path.name in ("summary.json", "episodes.jsonl")}
    kept |= {path: path.read_bytes() for path in checkpoints_in(run)}
    assert len(kept) == 3
    for _ in range(2):
        assert "nothing to do: the run was over (max-env-steps)" in resume("09_cuda_graph", run)
    assert all(path.read_bytes() == content for path, content in kept.items())


@pytest.mark.slow
def test_a_run_that_is_still_going_on_is_refused(tmp_path: Path) -> None:
    with started("08_overlap", tmp_path, *VECTOR, "--max-env-steps", "None", "--checkpoint-env-steps", "50") as run:
        run.wait_until(lambda: bool(checkpoints_in(only_run(tmp_path))))
        said = resume("08_overlap", only_run(tmp_path), code=2)
        assert f"is still going on, in process {run.process.pid}." in said
        run.ctrl_c()
        run.finish()
    assert not (only_run(tmp_path) / "running.json").exists()


def test_a_killed_run_resumes_from_its_last_checkpoint(tmp_path: Path) -> None:
    """kill -9 in the middle; what had been logged after the checkpoint is logged once, also for TensorBoard."""
    words = ("--game", TOY_CATCH, *AS_ATARI, "--replay-initial", "100", "--batch-size", "4", "--max-env-steps", "None")
    words += ("--replay-size", "3000", "--checkpoint-env-steps", "150", "--num-envs", "3", "--stop-score", "None")
    with started("07_device_replay", tmp_path, *words) as run:
        run.wait_until(lambda: len(checkpoints_in(only_run(tmp_path))) == 2)
        reached = run.env_steps()
        run.wait_until(lambda: run.env_steps() > reached + 50)
        os.kill(run.process.pid, signal.SIGKILL)
        run.process.wait()
    folder = only_run(tmp_path)
    kept = newest(folder).env_steps
    lost = records(folder, "episodes.jsonl")[-1]["env_steps"]
    assert kept < lost
    assert not (folder / "summary.json").exists()
    resume("07_device_replay", folder, "--max-env-steps", str(lost + 300))
    episodes = records(folder, "episodes.jsonl")
    assert [episode["episode"] for episode in episodes] == list(range(1, len(episodes) + 1))
    steps = [episode["env_steps"] for episode in episodes]
    assert steps == sorted(steps)
    board = EventAccumulator(str(folder)).Reload()
    assert [event.step for event in board.Scalars("episode/score")] == sorted(set(steps))  # one for those of a step
    history = json.loads((folder / "environment.json").read_text())
    assert history["resumed_at_env_step"] == kept
    assert len(history["earlier"]) == 1


def test_a_run_that_goes_on_has_no_summary_of_before(tmp_path: Path) -> None:
    """Killed while it is resumed, it is broken off, not what it was."""
    run = train("09_cuda_graph", tmp_path, *VECTOR, "--max-env-steps", "90")
    assert read_run(run).ended == "max-env-steps"
    words = ("--resume", str(run), "--max-env-steps", "None", "--stop-score", "None")
    with started("09_cuda_graph", tmp_path, *words) as again:
        again.wait_until(lambda: records(run, "speed.jsonl")[-1]["env_steps"] > 90)
        assert not (run / "summary.json").exists()
        os.kill(again.process.pid, signal.SIGKILL)
        again.process.wait()
    assert read_run(run).ended == "broken off"


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="there is no such signal here")
def test_a_closed_terminal_leaves_a_checkpoint(tmp_path: Path) -> None:
    """Its shell sends the signal, and then the system does: the second one is no second Ctrl-C."""
    with started("09_cuda_graph", tmp_path, *VECTOR, "--max-env-steps", "None", "--stop-score", "None") as run:
        run.wait_until(lambda: run.updates() > 3)
        for _ in range(2):
            os.kill(run.process.pid, signal.SIGHUP)
            time.sleep(0.002)
        code, _, err = run.finish()
    assert code == 128 + signal.SIGHUP
    assert "Traceback" not in err
    assert summary(only_run(tmp_path))["reason"] == "interrupted"
    assert checkpoints_in(only_run(tmp_path))


def test_ctrl_c_leaves_a_checkpoint(tmp_path: Path) -> None:
    words = (*VECTOR, "--max-env-steps", "None", "--stop-score", "None")
    with started("08_overlap", tmp_path, *words) as run:
        run.wait_until(lambda: run.updates() > 3)
        run.ctrl_c()
        code, out, _ = run.finish()
    assert code == 130
    assert "checkpoint at env step" in out
    folder = only_run(tmp_path)
    stopped = summary(folder)["env_steps"]
    assert newest(folder).env_steps == stopped
    resume("08_overlap", folder, "--max-env-steps", str(stopped + 30))
    assert summary(folder)["env_steps"] >= stopped + 30


def test_the_previous_checkpoint_is_used_if_asked_for(tmp_path: Path) -> None:
    run = train("09_cuda_graph", tmp_path, *VECTOR, "--max-env-steps", "160", "--checkpoint-env-steps", "100")
    first, second = checkpoints_in(run)
    good = first.read_bytes()
    second.write_bytes(second.read_bytes()[:-9])
    said = resume("09_cuda_graph", run, "--max-env-steps", "200", code=3)
    assert "Traceback" not in said
    assert said.strip().endswith("--resume-previous resumes from the one before.")
    said = resume("09_cuda_graph", run, "--resume-previous", "--max-env-steps", "200")
    assert f"resumed at env step {int(first.stem)}," in said
    assert [path.name for path in checkpoints_in(run)][:-1] == [first.name]  # what had come after it is gone
    assert first.read_bytes() == good
    assert read(newest(run))["run"]["counters"]["env_steps"] >= 200


def test_what_the_previous_checkpoint_gives_up_is_never_resumed(tmp_path: Path) -> None:
    """The logs are cut for the older one; without a newer one of its own, as after kill -9, it stays the newest."""
    run = train("09_cuda_graph", tmp_path, *VECTOR, "--max-env-steps", "160", "--checkpoint-env-steps", "100")
    first, _ = checkpoints_in(run)
    resume("09_cuda_graph", run, "--resume-previous", "--max-env-steps", "200", "--no-checkpoints")
    assert checkpoints_in(run) == [first]
    said = resume("09_cuda_graph", run, "--max-env-steps", "200")
    assert f"resumed at env step {int(first.stem)}," in said
    lines = (run / "episodes.jsonl").read_text().splitlines()
    assert [json.loads(line)["episode"] for line in lines] == list(range(1, len(lines) + 1))


def test_no_checkpoints_means_none(tmp_path: Path) -> None:
    run = train("09_cuda_graph", tmp_path, *VECTOR, "--max-env-steps", HALF, "--no-checkpoints")
    assert not (run / "checkpoints").exists()
    assert "has no checkpoint to resume" in resume("09_cuda_graph", run, code=2)


def test_a_full_disk(tmp_path: Path) -> None:
    """A run whose checkpoint cannot be written says so in one sentence, and keeps weights and summary."""
    shell = [
        "bash",
        "-c",
        'ulimit -f 9000; exec "$@"',
        "-",
        sys.executable,
        *command("09_cuda_graph", tmp_path, *VECTOR, "--frame-size", "84"),
    ]
    done = subprocess.run(
        [*shell, "--max-env-steps", "90"], capture_output=True, text=True, cwd=ROOT, timeout=240, check=False
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert "checkpoints now leave the replay out" in done.stdout
    assert "Cannot write to" in done.stderr
    folder = only_run(tmp_path)
    assert (folder / "weights.safetensors").stat().st_size > 6_000_000
    assert checkpoints_in(folder) == []
    assert time.time() - (folder / "summary.json").stat().st_mtime < 100
    result = summary(folder)
    assert (result["env_steps"], result["reason"]) == (90, "max-env-steps")
