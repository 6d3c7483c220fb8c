"""Counters, stop test, folder, logs, summary, and a disk that fails."""

from __future__ import annotations

import dataclasses
import json
import math
import time
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from fastdqn import startup
from fastdqn.config import DQNOptions, Options, PlayStepsOptions, RunOptions
from fastdqn.errors import RunError
from fastdqn.run import Run
from fastdqn.stopping import Limits, StopTest
from fastdqn.types import EpisodeEnd, Metrics, PlayedStep

CPU = torch.device("cpu")
NOTHING = PlayedStep((), ())


def options(folder: Path, **run: Any) -> PlayStepsOptions:
    return PlayStepsOptions(
        run=RunOptions(runs_dir=folder, **run), dqn=DQNOptions(replay_initial=10, batch_size=32), steps=2
    )


def metrics(loss: float = 0.5) -> Metrics:
    return Metrics(torch.tensor(loss), torch.tensor(0.25), torch.zeros(1))


def game(score: float) -> PlayedStep:
    return PlayedStep((), (EpisodeEnd(score, 4000, False),))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


# The stop test


def test_solved_is_the_mean_of_the_last_100_games_above_the_bound() -> None:
    stop = StopTest(Limits(18.0, None, None))
    for _ in range(99):
        stop.add(21.0)
    assert stop.reason(1) is None  # 99 games are not enough
    stop.add(21.0)
    assert stop.reason(1) == "solved"
    stop = StopTest(Limits(18.0, None, None))
    for score in [-21.0] * 50 + [18.0] * 100:
        stop.add(score)
    assert stop.mean_score == 18.0
    assert stop.reason(1) is None  # above, not equal
    stop.add(19.0)
    assert stop.reason(1) == "solved"
    assert stop.episodes == 151


def test_limits() -> None:
    assert StopTest(Limits(None, 10, None)).reason(9) is None
    assert StopTest(Limits(None, 10, None)).reason(10) == "max-env-steps"
    assert StopTest(Limits(None, None, time.time() - 1)).reason(1) == "max-minutes"
    assert StopTest(Limits(None, None, time.time() + 60)).reason(1) is None
    never = StopTest(Limits(None, None, None))
    for _ in range(200):
        never.add(1e9)
    assert never.reason(10**12) is None
    assert StopTest(Limits(None, None, None)).mean_score is None


def test_minutes_count_from_the_start_of_the_process() -> None:
    assert Limits.of(RunOptions(max_minutes=2.0), 1000.0).deadline == 1120.0


# A run


def test_a_run_leaves_everything_behind(tmp_path: Path) -> None:
    opts = options(tmp_path, max_env_steps=50)
    with Run("02_play_steps", opts, CPU, ("a note",)) as run:
        run.weights = {"layer": torch.arange(3.0)}
        while not run.over():
            run.played(game(-20.0) if run.env_steps % 20 == 19 else NOTHING, 0.5)
            if run.env_steps >= 10 and run.env_steps % 2 == 0:
                run.updated(metrics(), 64)
            run._next_record = 0.0  # a record for each env step instead of one a second
    assert run.folder.parent == tmp_path
    assert run.folder.name.endswith("-pong-02_play_steps")
    config = json.loads((run.folder / "config.json").read_text())
    assert (config["script"], config["steps"], config["dqn"]["batch_size"]) == ("02_play_steps", 2, 32)
    environment = json.loads((run.folder / "environment.json").read_text())
    assert environment["packages"]["torch"] == torch.__version__
    assert environment["cores"] >= 1
    episodes = lines(run.folder / "episodes.jsonl")
    assert [(e["episode"], e["score"], e["env_steps"]) for e in episodes] == [(1, -20.0, 20), (2, -20.0, 40)]
    assert episodes[1]["mean_100"] == -20.0
    speed = lines(run.folder / "speed.jsonl")
    assert (speed[-1]["env_steps"], speed[-1]["updates"], speed[-1]["samples"]) == (50, 21, 21 * 64)
    assert speed[-1]["loss"] == 0.5
    summary = json.loads((run.folder / "summary.json").read_text())
    assert (summary["reason"], summary["solved"], summary["env_steps"]) == ("max-env-steps", False, 50)
    assert summary["median_env_steps_per_s"] > 0
    assert torch.equal(safetensors.torch.load_file(run.folder / "weights.safetensors")["layer"], torch.arange(3.0))
    board = EventAccumulator(str(run.folder))
    board.Reload()
    assert set(board.Tags()["scalars"]) >= {
        "episode/score",
        "episode/mean_100",
        "train/epsilon",
        "train/loss",
        "train/updates",
        "train/samples_per_step",
        "speed/env_steps_per_s",
    }
    assert board.Scalars("episode/score")[1].step == 40
    assert board.Scalars("train/samples_per_step")[-1].value == pytest.approx(32.0, rel=0.1)


def test_solved_run_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Run("01_baseline", options(tmp_path), CPU) as run:
        while not run.over():
            run.played(game(20.0), 0.02)
    assert run.env_steps == 100
    out = capsys.readouterr().out
    assert "SOLVED (solved) after" in out
    assert "mean-100 20.00" in out


def test_a_player_that_keeps_the_stop_test_ends_the_run(tmp_path: Path) -> None:
    with Run("03_parallel", options(tmp_path), CPU) as run:
        assert not run.ended_by(None)
        assert run.ended_by("solved")
        assert run.ended_by(None)  # it stays over
    assert json.loads((run.folder / "summary.json").read_text())["solved"]


def test_train_seconds_count_from_the_first_update(tmp_path: Path) -> None:
    with Run("01_baseline", options(tmp_path, train_seconds=0.3), CPU) as run:
        time.sleep(0.4)
        assert not run.over()
        run.updated(metrics(), 32)
        assert not run.over()
        time.sleep(0.4)
        assert run.over()
    assert run.reason == "train-seconds"


def test_plain_lines_where_there_is_no_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Run("01_baseline", options(tmp_path, log_seconds=0.01, max_env_steps=100), CPU, ("the protocol",)) as run:
        for _ in range(10):
            time.sleep(0.02)
            run.played(NOTHING, 0.7)
            run.updated(metrics(), 32)
        run._next_record = 0.0
        run.played(game(3.0), 0.7)
        time.sleep(0.02)
        run.played(NOTHING, 0.7)
    out = capsys.readouterr().out
    assert out.startswith("the protocol\nrun folder ")
    last = [line for line in out.splitlines() if line.startswith("env steps ")][-1]
    for part in (
        "env steps/s ",
        "episodes 1 ",
        "mean-100 3.00",
        "epsilon 0.700",
        "loss 0.50000",
        "elapsed 0:",
        "left ",
    ):
        assert part in last
    assert "\x1b" not in out


def test_nan_loss_stops_the_run_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="loss became nan at env step 1") as caught:  # noqa: SIM117
        with Run("01_baseline", options(tmp_path), CPU) as run:
            run.updated(metrics(math.nan), 32)
            run.played(NOTHING, 1.0)
    assert "\n" not in str(caught.value)
    assert json.loads((run.folder / "summary.json").read_text())["reason"] == "failed"


@pytest.mark.parametrize("broken", ["loss", "weight"])
def test_what_is_no_number_leaves_the_last_good_weights(tmp_path: Path, broken: str) -> None:
    weights = {"layer": torch.ones(3)}
    with pytest.raises(RunError) as caught:  # noqa: SIM117
        with Run("09_cuda_graph", options(tmp_path), CPU) as run:
            run.weights = weights
            run.updated(metrics(), 32)
            run.played(NOTHING, 1.0)  # the record of update 1 finds all well
            run.updated(metrics(math.inf if broken == "loss" else 0.5), 32)
            weights["layer"][1] = 7.0 if broken == "loss" else math.nan
            run._record(time.perf_counter())
    what = "The loss became inf" if broken == "loss" else "A weight is no longer a finite number"
    kept = run.folder / "weights.safetensors"
    assert str(caught.value).startswith(f"{what} at env step 1, update 2; the weights of update 1 are kept in {kept};")
    assert safetensors.torch.load_file(kept)["layer"].tolist() == [1.0, 1.0, 1.0]


def test_a_failed_run_keeps_weights_and_summary(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), Run("01_baseline", options(tmp_path), CPU) as run:
        run.weights = {"layer": torch.ones(2)}
        run.played(NOTHING, 1.0)
        raise ZeroDivisionError
    assert (run.folder / "weights.safetensors").exists()
    assert json.loads((run.folder / "summary.json").read_text())["reason"] == "failed"


def test_two_runs_in_one_second_get_two_folders(tmp_path: Path) -> None:
    folders = {Run("01_baseline", options(tmp_path), CPU).folder for _ in range(3)}
    assert len(folders) == 3


# A disk that fails


def test_runs_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("in the way")
    with pytest.raises(RunError, match=r"Cannot write to .*runs") as caught:
        Run("01_baseline", options(tmp_path / "runs"), CPU)
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_full_disk_in_the_middle(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="No space left on device; the run has ended after 3 env steps"):  # noqa: SIM117
        with Run("01_baseline", options(tmp_path), CPU) as run:
            run.played(NOTHING, 1.0)
            run.played(NOTHING, 1.0)
            run._episodes_file = open("/dev/full", "w", buffering=1)  # noqa: PTH123, SIM115
            run.played(game(1.0), 1.0)


# Options that reach a run unharmed


def test_options_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Options().dqn.gamma = 0.5  # type: ignore[misc]


def test_elapsed_counts_the_whole_process() -> None:
    assert startup.elapsed() > 0.5  # pytest and torch were imported in it
