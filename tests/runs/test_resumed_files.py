"""The files of a run that is resumed: as they were until it goes on, and those of its checkpoint from then on."""

from __future__ import annotations

import errno
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from fastdqn import process
from fastdqn.errors import CheckpointError, RunError
from fastdqn.runs.best import FILE, Best, read_best
from fastdqn.runs.checkpoint import Checkpoints, checkpoints_in, understood
from fastdqn.runs.checkpointing import Checkpointing
from fastdqn.runs.encoding import from_bytes, to_bytes
from fastdqn.runs.folder import write_json
from fastdqn.runs.limits import Limits, StopTest
from fastdqn.runs.ranked import LeadingRun
from fastdqn.states import Later, NothingUnfinished
from tests.helpers.runs import CPU, game, make_run, options
from tests.helpers.scripts import records, summary
from tests.runs.test_ranked import Two


class Count(NothingUnfinished):
    """A part of checkpoints that cannot be loaded if it is `broken`."""

    def __init__(self, broken: Exception | None = None) -> None:
        self.broken = broken

    def state(self) -> dict[str, Any]:
        return {"count": 3}

    def load(self, state: Mapping[str, Any]) -> None:
        if self.broken is not None:
            raise self.broken


def finished(folder: Path, score: float = 20.0, **run: Any) -> Path:
    """Return the folder of a run that is over: solved after 100 games of a step each, or at its limit."""
    with make_run(folder, **run) as made:
        made.track(learner=Count())
        made.weights.tensors = {"layer": torch.ones(2)}
        while not made.over():
            made.played(game(score), epsilon=0.02)
    return made.folder


def files(run: Path) -> dict[str, bytes]:
    """Return what there is, but for who runs it."""
    kept = (path for path in run.rglob("*") if path.is_file())
    return {str(path.relative_to(run)): path.read_bytes() for path in kept if path.stem != "running"}


def test_a_run_that_fails_before_it_goes_on_leaves_its_files_alone(tmp_path: Path) -> None:
    """Say a player that cannot be started after the checkpoint was loaded."""
    run = finished(tmp_path)
    before = files(run)
    with pytest.raises(ZeroDivisionError), make_run(tmp_path, stop_score=25.0, resume=str(run)) as again:
        again.track(learner=Count())
        raise ZeroDivisionError
    assert files(run) == before
    with pytest.raises(ZeroDivisionError), make_run(tmp_path, stop_score=25.0, resume=str(run)) as again:
        again.track(learner=Count())
        assert not again.over()
        raise ZeroDivisionError  # it has gone on
    assert summary(run)["reason"] == "failed"


@pytest.mark.parametrize("there", [True, False])
def test_a_run_that_is_interrupted_before_it_goes_on_leaves_its_files_alone(tmp_path: Path, there: bool) -> None:
    """With a summary, or without one, as after a kill."""
    run = finished(tmp_path)
    if not there:
        (run / "summary.json").unlink()
    before = files(run)
    with pytest.MonkeyPatch.context() as patch, make_run(tmp_path, stop_score=25.0, resume=str(run)) as again:
        patch.setattr(process, "_first", 2)
        again.track(learner=Count())
        assert again.over()
    assert files(run) == before


def test_a_run_that_is_over_under_other_limits_keeps_those_that_it_had(tmp_path: Path) -> None:
    run = finished(tmp_path, 15.0, max_env_steps=110)
    before = files(run)
    with make_run(tmp_path, max_env_steps=50, resume=str(run)) as again:
        again.track(learner=Count())
        assert again.over()
    assert files(run) == before
    assert json.loads(before["config.json"])["run"]["max_env_steps"] == 110


def test_another_stop_score_keeps_the_evaluation(tmp_path: Path) -> None:
    """It is of the same weights, unless the checkpoint is not that of the end."""
    run = finished(tmp_path, 15.0, max_env_steps=110)
    write_json(run / "summary.json", {**summary(run), "evaluation": {"mean": 3.0}, "minutes": 2.0})
    with make_run(tmp_path, stop_score=14.0, max_env_steps=110, resume=str(run)) as again:
        again.track(learner=Count())
        assert again.over()
    ended = summary(run)
    assert (ended["reason"], ended["solved"], ended["evaluation"], ended["minutes"]) == (
        "solved",
        True,
        {"mean": 3.0},
        2.0,
    )
    assert json.loads((run / "config.json").read_text())["run"]["stop_score"] == 14.0


def test_what_came_after_the_checkpoint_goes_once_the_run_goes_on(tmp_path: Path) -> None:
    """Games, checkpoints, weights, and what says how it has ended; not before."""
    with make_run(tmp_path, max_env_steps=110, checkpoint_env_steps=104) as made:
        made.track(learner=Count())
        made.weights.tensors = {"layer": torch.zeros(2)}
        while not made.over():
            made.played(game(15.0), epsilon=0.02)
            made._checkpointing.ended(lambda: None, wait=True)
        made.weights.tensors["layer"] += 1.0
    run = made.folder
    for name in ("trial.json", "trial.png", "sessions.png"):
        (run / name).write_text("{}")
    write_json(run / "summary.json", {**summary(run), "evaluation": {"mean": 3.0}})
    before = files(run)
    (earlier, _) = sorted((run / "checkpoints").glob("*.checkpoint"))
    words: dict[str, Any] = {"resume": str(run), "resume_previous": True}
    with pytest.raises(CheckpointError), make_run(tmp_path, **words) as again:
        again.track(learner=Count(ValueError("of another version")))
    assert files(run) == before
    with make_run(tmp_path, max_env_steps=106, **words) as again:
        again.weights.tensors = {"layer": torch.full((2,), 5.0)}
        again.track(learner=Count())
        assert {name: content for name, content in files(run).items() if name in before} == before
        assert not again.over()
        assert sorted((run / "checkpoints").glob("*.checkpoint")) == [earlier]
        assert len(records(run, "episodes.jsonl")) == again.env_steps == 104
        assert not {"summary.json", "trial.json", "trial.png", "sessions.png"} & set(files(run))
        assert files(run)["weights.safetensors"] != before["weights.safetensors"]
        while not again.over():
            again.played(game(15.0), epsilon=0.02)
    assert "evaluation" not in summary(run)
    with make_run(tmp_path, stop_score=14.0, max_env_steps=106, **words) as again:  # solved, where it is resumed
        again.track(learner=Count())
        assert again.over()
    assert (summary(run)["env_steps"], len(records(run, "episodes.jsonl"))) == (104, 104)


def test_files_stay_until_all_ranks_have_loaded(tmp_path: Path) -> None:
    """A run over ranks: another rank fails while it loads."""
    run = finished(tmp_path, 15.0, max_env_steps=110)
    before = files(run)

    class Alone(Two):
        def collect(self, data: bytes) -> list[bytes]:
            raise ZeroDivisionError

        def spare(self, saving: object) -> None: ...

        waited = 0.0

    company = Alone(0)
    made = LeadingRun(company, "01_baseline", options(tmp_path, resume=str(run)), CPU, "classic")
    with pytest.raises(ZeroDivisionError), made:
        made.track(learner=Count())
    assert files(run) == before


def test_a_checkpoint_of_the_end_is_written_where_the_last_round_made_no_env_step(tmp_path: Path) -> None:
    """The step in which a game is reset is none, and may be the one that reports the last game."""
    with make_run(tmp_path, checkpoint_env_steps=99) as made:
        made.track(learner=Count())
        for _ in range(99):
            made.played(game(20.0), epsilon=0.02)
            assert not made.over()
        made._checkpointing.ended(lambda: None, wait=True)
        made.played_many(0, game(20.0).episodes, 1)
        assert made.over()
    assert summary(made.folder)["reason"] == "solved"
    with make_run(tmp_path, resume=str(made.folder)) as again:
        again.track(learner=Count())
        assert again.over()  # the checkpoint has the game, too
    assert again.stop.episodes == 100


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (MemoryError(), "the memory did not suffice"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), "the memory did not suffice"),
        (torch.OutOfMemoryError("CUDA out of memory"), "the memory did not suffice"),
        (OSError(28, "No space left on device"), "No space left on device"),
        (RuntimeError("CUDA error: the launch timed out\nCompile with ..."), "CUDA error: the launch timed out"),
        (RuntimeError("can't start new thread"), "can't start new thread"),
    ],
)
def test_a_shortage_is_no_fault_of_the_checkpoint(tmp_path: Path, error: Exception, why: str) -> None:
    """Whoever takes it for one would go back to the checkpoint before, or begin anew."""
    with pytest.raises(RunError) as caught, understood(tmp_path):
        raise error
    assert str(caught.value) == f"{tmp_path} could not be resumed: {why}; nothing is lost."
    with pytest.raises(CheckpointError), understood(tmp_path):
        raise RuntimeError("shapes differ")
    with pytest.raises(CheckpointError, match=r"or of ale-py: ValueError\.$"), understood(tmp_path):
        raise ValueError("\n")


@pytest.mark.parametrize("had", [None, 7.0])
def test_the_best_weights_are_those_of_the_checkpoint_once_the_run_goes_on(tmp_path: Path, had: float | None) -> None:
    stop = StopTest(Limits(18.0, 1000, None))
    layer = torch.zeros(2)
    best = Best(tmp_path, {"layer": layer})
    for score in (had, 9.0):
        if score is not None:
            stop = StopTest(Limits(18.0, 1000, None))
            for _ in range(100):
                stop.play(1)
                stop.add(score, 0)
            layer.fill_(score)
            best.look(stop)
        if score == had:
            state = from_bytes(to_bytes(best.state()))
    best.save()
    again = Best(tmp_path, {"layer": layer})
    again.load(state)
    again.save()  # at the end of a run that did not go on
    assert read_best(tmp_path)["layer"].tolist() == [9.0, 9.0]
    again.look(StopTest(Limits(18.0, 1000, None)))
    if had is None:
        assert not (tmp_path / FILE).exists()
    else:
        assert read_best(tmp_path)["layer"].tolist() == [7.0, 7.0]


def test_best_weights_for_which_there_is_no_room_are_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    best = Best(tmp_path, {"layer": torch.ones(2)})
    best._kept = {"layer": torch.ones(2)}
    monkeypatch.setattr("fastdqn.runs.best.write_weights", full)
    with pytest.raises(RunError, match="No space left on device"):
        best.save()
    with pytest.raises(OSError, match="No space left on device"):  # a checkpoint that cannot be written
        best.state()


def test_a_checkpoint_without_a_replay_cannot_leave_it_out(tmp_path: Path) -> None:
    said: list[str] = []

    class Large(Count):
        asked = 0

        def state(self) -> dict[str, Any]:
            self.asked += 1
            raise MemoryError("too little")

    for names in (("sessions",), ("sessions", "replay")):
        made = Checkpointing(options(tmp_path).run, tmp_path, {}, 0, said.append)
        part = Large()
        made.parts = {name: part if name == "sessions" else Count() for name in names}
        with pytest.raises(MemoryError):
            made.begin(10, {})
        assert part.asked == len(names)
    assert len(said) == 1
    assert "leave the replay out" in said[0]


@pytest.mark.parametrize(
    "error", [MemoryError("too little"), RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes.\nError 12")]
)
def test_a_checkpoint_for_which_there_is_no_memory_leaves_the_replay_out(tmp_path: Path, error: Exception) -> None:
    """PyTorch says so by an error of its own."""
    said: list[str] = []

    class Large(Count):
        def state(self) -> dict[str, Any]:
            raise error

    made = Checkpointing(options(tmp_path).run, tmp_path, {}, 0, said.append)
    made.parts = {"learner": Count(), "replay": Large()}
    made.begin(10, {})
    made.ended(lambda: None, wait=True)
    why = "too little" if isinstance(error, MemoryError) else "the memory did not suffice"
    assert said[0] == f"the checkpoint could not be written ({why}); checkpoints now leave the replay out"
    assert len(checkpoints_in(tmp_path)) == 1


@pytest.mark.parametrize(("error", "kind"), [(MemoryError(), OSError), (KeyError("nope"), KeyError)])
def test_a_fault_in_a_checkpoint_is_no_shortage(tmp_path: Path, error: Exception, kind: type[Exception]) -> None:
    """A replay may be left out for want of memory; a mistake of the program is shown as it is."""

    def read() -> Any:
        raise error

    files = Checkpoints(tmp_path, {}, 0)
    files.begin(10, lambda: {"frames": Later(read, lambda: None)})
    with pytest.raises(kind):
        files.ended(wait=True)


def test_an_old_run_writes_its_records_each_minute(tmp_path: Path) -> None:
    """Speed and losses on the terminal come with them; a thousandth of a week is ten minutes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "_began", process._began - 7 * 86_400.0)
        with make_run(tmp_path) as made:
            now = 5.0
            made._record(now)
            assert made._next_record == now + 60.0
