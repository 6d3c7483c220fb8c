"""A run: counters, logs, summary and weights, its end, and what it tells its parts when it is resumed."""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from numpy.typing import NDArray
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from fastdqn import process
from fastdqn.errors import RunError
from fastdqn.runs.folder import version
from fastdqn.states import Later
from fastdqn.types import EpisodeEnd
from tests.helpers.runs import NOTHING, game, make_run, scalars
from tests.helpers.scripts import parse, records, summary


def test_a_run_leaves_everything_behind(tmp_path: Path) -> None:
    with make_run(tmp_path, "02_play_steps", max_env_steps=50) as run:
        run.weights.tensors = {"layer": torch.arange(3.0)}
        while not run.over():
            run.played(game(-20.0) if run.env_steps % 20 == 19 else NOTHING, epsilon=0.5)
            if run.env_steps >= 10 and run.env_steps % 2 == 0:
                run.updated(scalars(), 64)
            run._next_record = 0.0  # a record for every env step instead of one a second
    assert run.folder.parent == tmp_path
    assert run.folder.name.endswith("-pong-02_play_steps")
    config = json.loads((run.folder / "config.json").read_text())
    assert (config["script"], config["pace"]["steps"], config["dqn"]["batch_size"]) == ("02_play_steps", 2, 32)
    assert (config["format"], config["version"], config["wrappers"]) == (3, version(), "classic")
    environment = json.loads((run.folder / "environment.json").read_text())
    assert environment["packages"]["torch"] == torch.__version__
    assert environment["cores"] >= 1
    episodes = records(run.folder, "episodes.jsonl")
    assert [(e["episode"], e["score"], e["env_steps"]) for e in episodes] == [(1, -20.0, 20), (2, -20.0, 40)]
    assert episodes[1]["mean_100"] == -20.0
    speed = records(run.folder, "speed.jsonl")
    assert (speed[-1]["env_steps"], speed[-1]["updates"], speed[-1]["samples"]) == (50, 21, 21 * 64)
    assert speed[-1]["loss"] == 0.5
    ended = summary(run.folder)
    assert (ended["reason"], ended["solved"], ended["env_steps"]) == ("max-env-steps", False, 50)
    assert ended["median_env_steps_per_s"] > 0
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
    with make_run(tmp_path) as run:
        while not run.over():
            run.played(game(20.0), epsilon=0.02)
    assert run.env_steps == 100
    out = capsys.readouterr().out
    assert "SOLVED (solved) after" in out
    assert "mean-100 20.00" in out


def test_a_player_that_keeps_the_stop_test_ends_the_run(tmp_path: Path) -> None:
    with make_run(tmp_path, "03_parallel") as run:
        assert not run.ended_by(None)
        assert run.ended_by("solved")
        assert run.ended_by(None)  # it stays over
    assert summary(run.folder)["solved"]


def test_a_run_that_was_over_is_over_when_it_is_resumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Although a player that has yet to begin keeps the stop test; and Ctrl-C meanwhile changes nothing."""
    with make_run(tmp_path, "03_parallel", max_env_steps=3) as run:
        run.track(learner=Part())
        while not run.ended_by(run.stop.reason(run.env_steps)):
            run.played(NOTHING)
    before = {path: path.read_bytes() for path in run.folder.rglob("*.json*")}
    for number, said in (
        (0, "nothing to do: the run was over (max-env-steps)"),
        (2, "where it was resumed: nothing was played"),
    ):
        with pytest.MonkeyPatch.context() as patch:
            limit = 3 if number == 0 else 9
            with make_run(tmp_path, "03_parallel", max_env_steps=limit, resume=str(run.folder)) as again:
                patch.setattr(process, "_first", number)
                again.track(learner=Part())
                assert again.ended_by(None)
        assert said in capsys.readouterr().out
        kept = {path: content for path, content in before.items() if path.name in ("summary.json", "episodes.jsonl")}
        assert all(path.read_bytes() == content for path, content in kept.items())


def test_a_run_that_was_interrupted_and_is_over_when_it_is_resumed_says_how_it_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with make_run(tmp_path) as run:
        run.track(learner=Part())
        run.played(NOTHING)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(process, "_first", 2)
            assert run.over()
    assert summary(run.folder)["reason"] == "interrupted"
    with make_run(tmp_path, max_env_steps=1, resume=str(run.folder)) as again:
        again.track(learner=Part())
        assert again.over()
    assert summary(run.folder)["reason"] == "max-env-steps"
    assert "not solved (max-env-steps) after" in capsys.readouterr().out
    with make_run(tmp_path, max_env_steps=1, stop_score=None) as aimless:
        aimless.track(learner=Part())
        aimless.played(NOTHING)
        assert aimless.over()
    assert "\nended (max-env-steps) after" in capsys.readouterr().out


def test_another_stop_score_may_say_that_a_run_was_solved(tmp_path: Path) -> None:
    with make_run(tmp_path, max_env_steps=100, stop_score=None) as run:
        run.track(learner=Part())
        while not run.over():
            run.played(game(20.0))
    assert summary(run.folder)["reason"] == "max-env-steps"
    with make_run(tmp_path, max_env_steps=100, stop_score=18.0, resume=str(run.folder)) as again:
        again.track(learner=Part())
        assert again.over()
    assert (summary(run.folder)["reason"], summary(run.folder)["solved"]) == ("solved", True)


def test_train_seconds_count_from_the_first_update(tmp_path: Path) -> None:
    with make_run(tmp_path, train_seconds=0.3) as run:
        time.sleep(0.4)
        assert not run.over()
        run.updated(scalars(), 32)
        assert not run.over()
        time.sleep(0.4)
        assert run.over()
    assert run.reason == "train-seconds"


def test_nan_loss_stops_the_run_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="loss became nan at env step 1") as caught:  # noqa: SIM117
        with make_run(tmp_path) as run:
            run.updated(scalars(math.nan), 32)
            run.played(NOTHING, epsilon=1.0)
    assert "\n" not in str(caught.value)
    assert summary(run.folder)["reason"] == "failed"


@pytest.mark.parametrize("broken", ["loss", "weight"])
def test_what_is_no_number_leaves_the_last_good_weights(tmp_path: Path, broken: str) -> None:
    weights = {"layer": torch.ones(3)}
    with pytest.raises(RunError) as caught:  # noqa: SIM117
        with make_run(tmp_path, "09_cuda_graph") as run:
            run.weights.tensors = weights
            run.updated(scalars(), 32)
            run.played(NOTHING, epsilon=1.0)  # the record of update 1 finds all well
            run.updated(scalars(math.inf if broken == "loss" else 0.5), 32)
            weights["layer"][1] = 7.0 if broken == "loss" else math.nan
            run._record(time.perf_counter())
    what = "The loss became inf" if broken == "loss" else "A weight is no longer a finite number"
    kept = run.folder / "weights.safetensors"
    assert str(caught.value).startswith(f"{what} at env step 1, update 2; the weights of update 1 are kept in {kept};")
    assert safetensors.torch.load_file(kept)["layer"].tolist() == [1.0, 1.0, 1.0]


def test_an_error_that_comes_of_weights_that_are_no_numbers_says_so(tmp_path: Path) -> None:
    """What draws actions with them may fail before the next record looks at them."""
    weights = {"layer": torch.ones(3)}
    with pytest.raises(RunError, match="A weight is no longer a finite number at env step 1, update 2") as caught:  # noqa: SIM117
        with make_run(tmp_path) as run:
            run.weights.tensors = weights
            run.updated(scalars(), 32)
            run.played(NOTHING, epsilon=1.0)  # the record of update 1 finds all well
            run.updated(scalars(), 32)
            weights["layer"][1] = math.nan
            raise ZeroDivisionError
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert "\n" not in str(caught.value)
    assert safetensors.torch.load_file(run.folder / "weights.safetensors")["layer"].tolist() == [1.0, 1.0, 1.0]


class Lost(torch.Tensor):
    """On a device that has failed."""

    def detach(self) -> torch.Tensor:
        raise RuntimeError("the device has failed")


def test_a_device_that_has_failed_leaves_a_summary_and_its_own_error(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), make_run(tmp_path) as run:
        run.weights.tensors = {"layer": torch.ones(3).as_subclass(Lost)}
        raise ZeroDivisionError
    assert summary(run.folder)["reason"] == "failed"
    assert not (run.folder / "weights.safetensors").exists()


def test_a_device_that_has_failed_leaves_the_last_good_weights(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), make_run(tmp_path) as run:
        run.weights.tensors = {"layer": torch.full((3,), 2.0)}
        run.updated(scalars(), 32)
        run.played(NOTHING, epsilon=1.0)  # the record finds all well, and keeps a copy
        run.weights.tensors = {"layer": torch.ones(3).as_subclass(Lost)}
        raise ZeroDivisionError
    assert safetensors.torch.load_file(run.folder / "weights.safetensors")["layer"].tolist() == [2.0] * 3


def test_only_a_loss_must_stay_finite(tmp_path: Path) -> None:
    """A run of several losses ends with any of them; another metric may be no number."""
    with make_run(tmp_path) as run:
        run.updated({**scalars(), "mean_q": torch.tensor(math.nan)}, 32)
        run.played(NOTHING, epsilon=1.0)
    last = records(run.folder, "speed.jsonl")[-1]
    assert (last["loss"], last["mean_q"]) == (0.5, None)
    with pytest.raises(RunError, match="The loss_of_the_critic became inf at env step 1"):  # noqa: SIM117
        with make_run(tmp_path) as run:
            run.updated({**scalars(), "loss_of_the_critic": torch.tensor(math.inf)}, 32)
            run.played(NOTHING, epsilon=1.0)


def test_a_failed_run_keeps_weights_and_summary(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), make_run(tmp_path) as run:
        run.weights.tensors = {"layer": torch.ones(2)}
        run.played(NOTHING, epsilon=1.0)
        raise ZeroDivisionError
    assert (run.folder / "weights.safetensors").exists()
    assert summary(run.folder)["reason"] == "failed"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_full_disk_in_the_middle(tmp_path: Path) -> None:
    with pytest.raises(RunError) as caught:  # noqa: SIM117
        with make_run(tmp_path) as run:
            run.played(NOTHING, epsilon=1.0)
            run.played(NOTHING, epsilon=1.0)
            run._logs._lines["episodes.jsonl"] = open("/dev/full", "w", buffering=1)  # noqa: PTH123, SIM115
            run.played(game(1.0), epsilon=1.0)
    assert str(caught.value) == f"Cannot write to {run.folder}: No space left on device; the run has ended."


def test_options_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        parse("01_baseline").dqn.gamma = 0.5


# Parts of a run that is resumed


class Part:
    """Notes what it is told; its environments begin anew where `anew` says so."""

    def __init__(self, anew: list[bool] | None = None) -> None:
        self.anew = anew
        self.told: list[Any] = []

    def state(self) -> dict[str, Any]:
        return {"value": 7}

    def load(self, state: Mapping[str, Any]) -> NDArray[np.bool_] | None:
        assert state == {"value": 7}
        self.told.append("load")
        return None if self.anew is None else np.array(self.anew)

    def discard(self, envs: NDArray[np.bool_] | None) -> None:
        self.told.append(None if envs is None else envs.tolist())


@pytest.mark.parametrize(
    ("anew", "told", "said"),
    [
        ([False, True], ["load", [False, True]], "1 games begin anew"),
        ([False, False], ["load"], "the games continue where they were"),
        (None, ["load"], "the games begin anew"),
    ],
)
def test_tracked_parts_are_told_of_games_that_begin_anew(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    anew: list[bool] | None,
    told: list[Any],
    said: str,
) -> None:
    with make_run(tmp_path) as run:
        run.track(learner=Part(), games=Part())
        run.played(NOTHING)
        run.updated(scalars(), 32)
    parts = {"learner": Part(), "games": Part(anew), "replay": Part()}
    with make_run(tmp_path, resume=str(run.folder)) as again:
        again.track(**parts)
        assert again.begun == again.env_steps == 1
        updates_due = []
        for _ in range(7):
            again.played(NOTHING)
            updates_due += again.due(2, initial=4)
    out = capsys.readouterr().out
    assert "resumed at env step 1, update 1, after 0:" in out
    assert f"; {said}\n" in out
    assert parts["learner"].told == parts["games"].told == told
    assert parts["replay"].told == [*told[1:], None]
    assert updates_due == [6, 8]  # the replay, which the checkpoint lacks, is filled again first


def test_what_is_put_off_for_a_checkpoint_that_cannot_be_taken_is_abandoned(tmp_path: Path) -> None:
    """Else a replay would wait for ever for its frames to be read."""
    abandoned: list[bool] = []

    class PutOff(Part):
        def state(self) -> dict[str, Any]:
            return {"frames": Later(lambda: 0, lambda: abandoned.append(True))}

    class Full(Part):
        def state(self) -> dict[str, Any]:
            raise MemoryError("no room")

    with make_run(tmp_path) as run:
        run.track(replay=PutOff(), other=Full())
        run.played(NOTHING)
        run.updated(scalars(), 32)
        with pytest.raises(MemoryError):
            run._checkpoint()
        assert abandoned == [True]
        run.track(learner=Part())  # for the checkpoint at the end


def test_parts_that_the_checkpoint_has_are_not_left_empty(tmp_path: Path) -> None:
    with make_run(tmp_path) as run:
        run.track(learner=Part(), replay=Part())
        run.played(NOTHING)
    parts = {"learner": Part(), "replay": Part()}
    with make_run(tmp_path, resume=str(run.folder)) as again:
        again.track(**parts)
        updates_due = []
        for _ in range(7):
            again.played(NOTHING)
            updates_due += again.due(2, initial=4)
    assert parts["learner"].told == parts["replay"].told == ["load"]
    assert updates_due == [4, 6, 8]


def test_minutes_of_the_processes_before_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_began", process._began - 3600.0)  # and put back at the end
    with make_run(tmp_path, max_env_steps=1) as run:
        run.track(learner=Part())
        run.played(NOTHING)
        assert run.over()
    monkeypatch.setattr(process, "_ran", False)  # in another process, as old as the first one
    with make_run(tmp_path, max_env_steps=9, max_minutes=100.0, resume=str(run.folder)) as again:
        again.track(learner=Part())
        again.played(NOTHING)
        assert again.over()
    assert summary(run.folder)["reason"] == "max-minutes"


def test_games_that_are_counted_at_one_env_step_are_one_point_of_tensorboards(tmp_path: Path) -> None:
    """Of several at one step it shows the last, which is one of the long ones."""
    with make_run(tmp_path) as run:
        run.track(learner=Part())
        games = tuple(EpisodeEnd(score, 40, False, place) for place, score in enumerate((3.0, 9.0, 12.0)))
        run.played_many(100, games, 3, {"session": 2}, epsilon=0.5)
        run.played_many(50, games[:1], 3, {"session": 1})
    board = EventAccumulator(str(run.folder))
    board.Reload()
    assert [(event.step, event.value) for event in board.Scalars("episode/score")] == [(100, 8.0), (150, 3.0)]
    lines = records(run.folder, "episodes.jsonl")
    assert [(line["score"], line["env_steps"], line["session"]) for line in lines] == [
        *((3.0, 100, 2), (9.0, 100, 2), (12.0, 100, 2), (3.0, 150, 1)),
    ]
    assert all("session" not in line for line in records(run.folder, "speed.jsonl"))


def test_the_second_run_of_a_process_has_a_clock_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a notebook: the first one counts from the process's beginning, a resumed one adds what it had."""
    monkeypatch.setattr(process, "_began", process._began - 3600.0)

    def played(**options: Any) -> Any:
        with make_run(tmp_path, **options) as run:
            run.track(learner=Part())
            run.played(NOTHING)
            run.over()
        return run

    first = played(max_env_steps=1)
    assert 3600 <= summary(first.folder)["elapsed"] < 4800
    resumed = played(max_env_steps=2, resume=str(first.folder))
    assert 3600 <= summary(resumed.folder)["elapsed"] < 4800
    other = played(max_env_steps=1, max_minutes=5.0)
    assert summary(other.folder)["reason"] == "max-env-steps"
    assert summary(other.folder)["elapsed"] < 300


def test_a_program_of_somebody_elses_has_no_clock_before_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A notebook that has been open for an hour: --max-minutes are those of the run."""
    monkeypatch.setattr(process, "_began", process._began - 3600.0)
    monkeypatch.setattr(process, "_taken", False)
    with make_run(tmp_path, max_env_steps=1, max_minutes=5.0) as run:
        run.track(learner=Part())
        run.played(NOTHING)
        assert run.over()
    assert summary(run.folder)["reason"] == "max-env-steps"
    assert summary(run.folder)["elapsed"] < 300


def test_after_a_signal_that_stopped_a_run_the_next_one_does_not_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Say in a loop over seeds, which Ctrl-C is to end; once it has been said, a notebook goes on."""
    monkeypatch.setattr(process, "_first", 0)  # and afterwards again
    with make_run(tmp_path) as run:
        run.track(learner=Part())
        run.played(NOTHING)
        process.stop_with(2)
        assert run.over()
    with pytest.raises(KeyboardInterrupt, match="has stopped the run before"):
        make_run(tmp_path)
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == [run.folder]
    with make_run(tmp_path, max_env_steps=1) as other:
        other.track(learner=Part())
        other.played(NOTHING)
        assert other.over()
    assert summary(other.folder)["reason"] == "max-env-steps"
