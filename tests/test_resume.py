"""--resume: a run that was stopped is the run that was not; and whatever cannot be resumed is one sentence."""

from __future__ import annotations

import json
import os
import shutil
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

from fastdqn import cli, holding, startup
from fastdqn.checkpoint import Checkpoints, checkpoints_in, newest, read
from fastdqn.config import FastOptions, Options, RainbowOptions
from fastdqn.errors import UserError
from fastdqn.replay.transitions import _unpacked
from tests.scripts import PARALLEL, ROOT, command, here, only_run, records, started, summary, train

SMALL = ("--game", "breakout", "--replay-initial", "60", "--batch-size", "4", "--target-sync", "40", "--n-step", "3")
PLAIN = (*SMALL, "--replay-size", "150", "--epsilon-decay", "200", "--checkpoint-minutes", "None")
VECTOR = (*PLAIN, "--num-envs", "3", "--env-threads", "2", "--steps", "4")
RAINBOW = (
    *(*PLAIN, "--num-envs", "3", "--env-threads", "2", "--steps", "1", "--gradient-threads", "2"),
    *("--variant", "rainbow", "--network", "small", "--report-env-steps", "50", "--held-out", "20"),
)
HALF, WHOLE = "130", "260"


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is resumed here moves this process's clock; put it back."""
    monkeypatch.setattr(startup, "_began", startup._began)


def go_on(script: str, run: Path, *words: str, code: int = 0) -> str:
    """Resume `run` and return what was printed."""
    if script not in PARALLEL and not code:
        return here(script, "--resume", str(run), *words)
    done = subprocess.run(
        [sys.executable, str(ROOT / "experiments" / f"{script}.py"), "--resume", str(run), *words],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=240,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def state_at_the_end(run: Path) -> dict[str, Any]:
    return read(newest(run))


def without_clock(run: Path, name: str) -> list[dict[str, Any]]:
    return [{k: v for k, v in line.items() if k != "elapsed"} for line in records(run, name)]


def same(left: Any, right: Any, path: str = "") -> None:
    """Hold two states against each other, bit for bit, but for what the clock says."""
    if isinstance(left, dict) and "discount" in left:  # of a list replay: frames may be shared otherwise
        for a, b in zip(_unpacked(left), _unpacked(right), strict=True):
            assert a[1:4] == b[1:4], path
            assert all(np.array_equal(np.asarray(x), np.asarray(y)) for x, y in ((a.obs, b.obs), (a[4], b[4]))), path
    elif isinstance(left, dict):
        assert left.keys() == right.keys(), path
        for key in left:
            if key not in ("elapsed", "_first_update", "_records", "_peak_rss", "lines"):
                same(left[key], right[key], f"{path}/{key}")
    elif isinstance(left, (list, tuple)):
        assert len(left) == len(right), path
        for i, (a, b) in enumerate(zip(left, right, strict=True)):
            same(a, b, f"{path}/{i}")
    elif isinstance(left, torch.Tensor):
        assert torch.equal(left, right), path
    else:
        assert left == right, path


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("01_baseline", PLAIN),
        ("02_play_steps", (*PLAIN, "--steps", "4")),
        ("06_vector_env", VECTOR),
        ("07_device_replay", VECTOR),
        ("08_overlap", VECTOR),
        ("09_cuda_graph", (*VECTOR, "--center-frames", "--final-learning-rate", "1e-5")),
        ("10_rainbow", RAINBOW),
        ("11_pong_in_seconds", (*VECTOR, "--network", "small", "--hold-share", "0.5")),
    ],
)
def test_n_and_n_more_are_2n(tmp_path: Path, script: str, words: tuple[str, ...]) -> None:
    """Weights, optimiser, replay, games, random numbers, counters and logs, bit for bit."""
    whole = train(script, tmp_path / "whole", *words, "--max-env-steps", WHOLE)
    run = train(script, tmp_path / "half", *words, "--max-env-steps", HALF)
    assert summary(run)["env_steps"] < int(WHOLE) - 100
    assert records(run, "speed.jsonl")[-1]["updates"] > 10
    said = go_on(script, run, "--max-env-steps", WHOLE)
    assert "the games go on where they were" in said
    same(state_at_the_end(whole), state_at_the_end(run))
    left, right = (safetensors.numpy.load_file(folder / "weights.safetensors") for folder in (whole, run))
    assert all((left[name] == right[name]).all() for name in left)
    assert without_clock(whole, "episodes.jsonl") == without_clock(run, "episodes.jsonl")
    if script == "10_rainbow":
        assert len(records(run, "reports.jsonl")) >= 4
        assert without_clock(whole, "reports.jsonl") == without_clock(run, "reports.jsonl")
    a, b = summary(whole), summary(run)
    assert all(a[key] == b[key] for key in ("env_steps", "updates", "samples", "episodes", "mean_100"))


def test_a_run_that_holds_its_agent_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any agent is held after a point, whatever it won, and let go after two more that it lost."""
    monkeypatch.setattr(holding, "POINTS", 1)
    monkeypatch.setattr(holding, "LIMIT", -1.0)
    script = "11_pong_in_seconds"
    words = (*VECTOR, "--game", "pong", "--network", "small", "--hold-share", "0.9", "--hold-epsilon", "0.5")
    words += ("--hold-slack", "1", "--hold-average", "0.05")
    whole = train(script, tmp_path / "whole", *words, "--max-env-steps", "1300")
    run = train(script, tmp_path / "half", *words, "--max-env-steps", "650")
    middle = state_at_the_end(run)["parts"]["hold"]
    assert middle["held"] >= 1
    go_on(script, run, "--max-env-steps", "1300")
    assert state_at_the_end(run)["parts"]["hold"]["held"] > middle["held"]
    same(state_at_the_end(whole), state_at_the_end(run))
    reports = without_clock(whole, "reports.jsonl")
    assert reports == without_clock(run, "reports.jsonl")
    assert {line.get("hold/on") for line in reports} >= {0.0, 1.0}
    assert 50 < summary(whole)["updates"] == summary(run)["updates"] < 290  # of 310


def test_with_a_player_process_counters_ratio_and_schedules_go_on(tmp_path: Path) -> None:
    """04 and 05 have the loop of 03."""
    script = "03_parallel"
    run = train(script, tmp_path, *PLAIN, "--steps", "3", "--max-env-steps", "130")
    middle = summary(run)
    assert (middle["env_steps"], middle["updates"]) == (130, (129 - 60) // 3)
    said = go_on(script, run, "--max-env-steps", "200")
    assert "its player begins a new game" in said
    result = summary(run)
    assert (result["env_steps"], result["updates"]) == (200, (198 - 60) // 3)
    assert result["samples"] == result["updates"] * 12
    last = records(run, "speed.jsonl")[-1]
    first = next(line for line in records(run, "speed.jsonl") if line["env_steps"] > 130)
    assert first["epsilon"] == pytest.approx(1 - first["env_steps"] / 200)
    assert last["epsilon"] == 0.1  # Breakout's final one
    elapsed = [line["elapsed"] for line in records(run, "speed.jsonl")]
    assert elapsed == sorted(elapsed)


def test_solved_counts_games_from_before(tmp_path: Path) -> None:
    """The window of the stop test goes on, in the player process too: 60 games and 40 more are the 100."""
    words = ("--game", "tests.toys:Catch", "--replay-initial", "1200", "--replay-size", "9000", "--stop-score", "None")
    run = train("03_parallel", tmp_path, *words, "--max-env-steps", "1240", "--epsilon-decay", "0")
    before = summary(run)["episodes"]
    assert before > 100
    go_on("03_parallel", run, "--max-env-steps", "9000", "--stop-score", "-2")
    result = summary(run)
    assert (result["reason"], result["solved"]) == ("solved", True)
    assert result["episodes"] <= before + 1
    assert result["env_steps"] < 1300


def test_without_its_replay_a_run_fills_it_again(tmp_path: Path) -> None:
    run = train("09_cuda_graph", tmp_path, *VECTOR, "--max-env-steps", HALF, "--no-checkpoint-replay")
    small = checkpoints_in(run)[-1].stat().st_size
    before = summary(run)
    go_on("09_cuda_graph", run, "--max-env-steps", "300", "--checkpoint-replay")
    result = summary(run)
    assert checkpoints_in(run)[-1].stat().st_size > small
    gained = result["updates"] - before["updates"]
    expected = (result["env_steps"] - before["env_steps"] - 60) // 4
    assert abs(gained - expected) <= 1
    go_on("09_cuda_graph", run, "--max-env-steps", "400")  # and with it, it is as always
    assert abs(summary(run)["updates"] - result["updates"] - 100 // 4) <= 2


def test_twice_without_its_replay(tmp_path: Path) -> None:
    run = train("09_cuda_graph", tmp_path, *VECTOR, "--max-env-steps", HALF, "--no-checkpoint-replay")
    for limit in ("230", "330"):
        before = summary(run)
        go_on("09_cuda_graph", run, "--max-env-steps", limit)
        result = summary(run)
        expected = (result["env_steps"] - before["env_steps"] - 60) // 4
        assert abs(result["updates"] - before["updates"] - expected) <= 1


def test_a_run_that_is_over_stays_as_it_is(tmp_path: Path) -> None:
    run = train("09_cuda_graph", tmp_path, *VECTOR, "--max-env-steps", "90")
    kept = {path: path.read_bytes() for path in run.rglob("*") if path.name in ("summary.json", "episodes.jsonl")}
    kept |= {path: path.read_bytes() for path in checkpoints_in(run)}
    assert len(kept) == 3
    assert "nothing to do: the run was over (max-env-steps)" in go_on("09_cuda_graph", run)
    assert all(path.read_bytes() == content for path, content in kept.items())


def test_a_run_that_is_still_going_on_is_refused(tmp_path: Path) -> None:
    with started("08_overlap", tmp_path, *VECTOR, "--max-env-steps", "None", "--checkpoint-env-steps", "50") as run:
        run.wait_until(lambda: bool(checkpoints_in(only_run(tmp_path))))
        said = go_on("08_overlap", only_run(tmp_path), code=2)
        assert f"is still going on, in process {run.process.pid}." in said
        run.ctrl_c()
        run.finish()
    assert not (only_run(tmp_path) / "running.json").exists()


def test_a_killed_run_goes_on_from_its_last_checkpoint(tmp_path: Path) -> None:
    """kill -9 in the middle; what had been logged after the checkpoint is logged once, also for TensorBoard."""
    words = ("--game", "tests.toys:Catch", "--replay-initial", "100", "--batch-size", "4", "--max-env-steps", "None")
    words += ("--replay-size", "3000", "--checkpoint-env-steps", "400", "--num-envs", "3", "--stop-score", "None")
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
    go_on("07_device_replay", folder, "--max-env-steps", str(lost + 300))
    episodes = records(folder, "episodes.jsonl")
    assert [episode["episode"] for episode in episodes] == list(range(1, len(episodes) + 1))
    steps = [episode["env_steps"] for episode in episodes]
    assert steps == sorted(steps)
    board = EventAccumulator(str(folder)).Reload()
    assert len(board.Scalars("episode/score")) == len(episodes)
    history = json.loads((folder / "environment.json").read_text())
    assert history["resumed_at_env_step"] == kept
    assert len(history["earlier"]) == 1


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
    go_on("08_overlap", folder, "--max-env-steps", str(stopped + 30))
    assert summary(folder)["env_steps"] >= stopped + 30


def test_the_previous_checkpoint_is_used_if_asked_for(tmp_path: Path) -> None:
    run = train("09_cuda_graph", tmp_path, *VECTOR, "--max-env-steps", "160", "--checkpoint-env-steps", "100")
    first, second = checkpoints_in(run)
    good = first.read_bytes()
    second.write_bytes(second.read_bytes()[:-9])
    said = go_on("09_cuda_graph", run, "--max-env-steps", "200", code=2)
    assert "Traceback" not in said
    assert said.strip().endswith("--resume-previous goes on from the one before.")
    said = go_on("09_cuda_graph", run, "--resume-previous", "--max-env-steps", "200")
    assert f"resumed at env step {int(first.stem)}," in said
    assert [path.name for path in checkpoints_in(run)][:-1] == [first.name]  # what had come after it is gone
    assert first.read_bytes() == good
    assert read(newest(run))["run"]["env_steps"] >= 200


def test_no_checkpoints_means_none(tmp_path: Path) -> None:
    run = train("09_cuda_graph", tmp_path, *VECTOR, "--max-env-steps", HALF, "--no-checkpoints")
    assert not (run / "checkpoints").exists()
    assert "has no checkpoint to go on from" in go_on("09_cuda_graph", run, code=2)


@pytest.fixture(scope="module")
def stopped_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 09 that has ended, for tests that only look at it."""
    return train("09_cuda_graph", tmp_path_factory.mktemp("runs"), *VECTOR, "--max-env-steps", "90")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--gamma", "0.9"), "--gamma 0.9 contradicts the checkpoint .*, which has 0.99"),
        (("--game", "pong"), "--game pong contradicts the checkpoint .*, which has breakout"),
        (("--seed", "3"), "--seed 3 contradicts"),
        (("--num-envs", "4"), "--num-envs 4 contradicts the checkpoint .*, which has 3"),
        (("--sticky-actions", "0.25"), "--sticky-actions 0.25 contradicts"),
        (("--center-frames",), "--center-frames True contradicts"),
        (("--no-such-option",), "Unrecognized options: --no-such-option"),
        (("--no_episodic_life",), "--episodic-life False contradicts"),
        (("--max-env-steps", "0"), "--max-env-steps must be at least 1"),
    ],
)
def test_options_that_contradict_are_refused_by_name(stopped_run: Path, words: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        cli.parse(FastOptions, "", ["--resume", str(stopped_run), *words])


def test_what_changes_nothing_that_is_learnt_may_change(stopped_run: Path) -> None:
    words = ("--max-env-steps", "1000", "--max-minutes", "5", "--stop-score", "7", "--threads", "1", "--where")
    words += ("--game", "Breakout", "--env-threads", "1", "--gamma", "0.99", "--checkpoint-minutes", "2")
    options = cli.parse(FastOptions, "", ["--resume", str(stopped_run), *words])
    assert (options.run.max_env_steps, options.run.threads, options.run.stop_score) == (1000, 1, 7.0)
    assert (options.dqn.replay_initial, options.num_envs, options.run.game) == (60, 3, "breakout")
    again = ("--no-double", "--episodic-life", "--no-wandb", "--no-cuda", "--device", "cpu")  # said, but nothing new
    assert cli.parse(FastOptions, "", [f"--resume={stopped_run}", *again]).dqn == options.dqn
    assert cli.parse(FastOptions, "", ["--resume", str(stopped_run), "--cuda"]).run.cuda
    latest = cli.parse(FastOptions, "", ["--resume", "latest", "--runs-dir", str(stopped_run.parent)])
    assert latest.run.resume == str(stopped_run)
    assert latest.dqn == options.dqn


def test_another_script_and_wrong_folders_are_one_sentence(stopped_run: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is one of 09_cuda_graph; go on with it by that script"):
        cli.parse(Options, "", ["--resume", str(stopped_run)])
    with pytest.raises(UserError, match="there is no such folder of a run"):
        cli.parse(FastOptions, "", ["--resume", str(tmp_path / "x")])
    with pytest.raises(UserError, match="there is no such folder of a run"):
        cli.parse(FastOptions, "", ["--resume", str(stopped_run / "config.json")])
    with pytest.raises(UserError, match="has no checkpoint to go on from"):
        cli.parse(FastOptions, "", ["--resume", str(tmp_path)])
    with pytest.raises(UserError, match=r"no run in .* has a checkpoint"):
        cli.parse(FastOptions, "", ["--resume", "latest", "--runs-dir", str(tmp_path)])


def test_a_series_is_not_resumed(stopped_run: Path) -> None:
    with pytest.raises(UserError, match="--resume goes on with one run; leave out --variant all and --seeds"):
        cli.parse(RainbowOptions, "", ["--resume", str(stopped_run), "--variant", "all"])


def test_a_checkpoint_of_another_run_or_with_another_first_line_is_refused(stopped_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(stopped_run, run)
    path = checkpoints_in(run)[0]
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"gamma": 0.99', b'"gamma": 0.91', 1))
    with pytest.raises(UserError, match="its first line is not its own"):
        read(newest(run))
    path.write_bytes(whole.replace(b'"game": "breakout"', b'"game": "pong"', 1))
    with pytest.raises(UserError, match="is of another run: 09_cuda_graph on pong, not 09_cuda_graph on breakout"):
        cli.parse(FastOptions, "", ["--resume", str(run)])


def test_what_does_not_fit_is_one_sentence(stopped_run: Path, tmp_path: Path) -> None:
    """A state that another version wrote, or would read otherwise; the run's own files stay as they are."""
    run = tmp_path / "run"
    shutil.copytree(stopped_run, run)
    path = checkpoints_in(run)[0]
    header = newest(run)
    states = read(header)
    weights = (run / "weights.safetensors").read_bytes()
    for broken in ("policy", "learner"):
        parts = {**states["parts"], broken: {}}
        about = {"script": header.script, "game": header.game, "config": header.config}
        checkpoints = Checkpoints(run, about)
        checkpoints.begin(header.env_steps, lambda parts=parts: {**states, "parts": parts})  # type: ignore[misc]
        checkpoints.ended(wait=True)
        said = go_on("09_cuda_graph", run, "--max-env-steps", "200", code=2)
        assert "does not fit this version of fastdqn" in said
        assert "Traceback" not in said
    assert (run / "weights.safetensors").read_bytes() == weights
    assert path.exists()


def test_a_full_disk(tmp_path: Path) -> None:
    """A run whose checkpoint cannot be written says so in one sentence, and keeps weights and summary."""
    shell = ["bash", "-c", 'ulimit -f 9000; exec "$@"', "-", *command("09_cuda_graph", tmp_path, *VECTOR)]
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
