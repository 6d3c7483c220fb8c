"""What a sweep finds in the folder of a run that was stopped, and how far it says that runs are."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fastdqn.tools.sweep import cluster, jobs
from fastdqn.tools.sweep.jobs import Job
from fastdqn.tools.sweep.local import LocalWorkers
from fastdqn.tools.sweep.plan import Task
from tests.helpers.scripts import ROOT
from tests.helpers.waiting import wait_until


def run_in(folder: Path, name: str, checkpoints: int) -> Path:
    run = folder / name
    (run / "checkpoints").mkdir(parents=True)
    (run / "config.json").write_text("{}")
    for number in range(checkpoints):
        (run / "checkpoints" / f"{number:012}.checkpoint").touch()
    return run


def test_runs_without_a_checkpoint_go_once_the_others_cannot_be_resumed(tmp_path: Path) -> None:
    kept, gone = run_in(tmp_path, "20260101-000000-a", 2), run_in(tmp_path, "20260101-000001-b", 0)
    (tmp_path / "output.log").touch()
    attempts = jobs._attempts(tmp_path)
    assert [next(attempts), next(attempts)] == [(f"--resume={kept}",), (f"--resume={kept}", "--resume-previous")]
    assert gone.exists()
    assert list(attempts) == [()]
    assert (kept.exists(), gone.exists()) == (True, False)


@pytest.mark.parametrize("place", ["", "20260101-000000-a", "20260101-000000-a/checkpoints"])
def test_a_folder_that_cannot_be_read_is_not_taken_for_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """A glob says nothing of a disk that fails for a moment; the run would be removed as one without a checkpoint."""
    run = run_in(tmp_path, "20260101-000000-a", 1)
    listdir = os.listdir

    def fails(folder: Any) -> list[str]:
        if Path(folder) == tmp_path / place:
            raise OSError(errno.EIO, "Input/output error")
        return listdir(folder)

    monkeypatch.setattr(os, "listdir", fails)
    with pytest.raises(OSError, match="Input/output error"):
        list(jobs._attempts(tmp_path))
    monkeypatch.undo()
    assert len(list((run / "checkpoints").iterdir())) == 1


def test_workers_say_how_far_their_runs_are(tmp_path: Path) -> None:
    task = Task("pong-0", {}, ("--seconds", "4"))
    seen: list[dict[str, tuple[float, float]]] = []
    with LocalWorkers([(0,)]) as workers:
        workers.submit(Job("fake", ROOT / "tests" / "helpers" / "fake.py", task, tmp_path / "pong-0"))

        def half_made() -> bool:
            seen.append(workers.running())
            return seen[-1].get("pong-0", (0.0, 0.0))[1] >= 0.5

        wait_until(half_made, 60.0)
    made = [going["pong-0"] for going in seen if going]
    assert made == sorted(made)
    assert made[0][1] < 0.5
    assert made[-1][0] >= 2.0
    assert workers.running() == {}


def test_a_run_that_is_silent_is_not_shown_as_going_on(monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator, now = cluster._Coordinator(), [100.0]
    monkeypatch.setattr(cluster, "time", SimpleNamespace(monotonic=lambda: now[0]))
    assert not coordinator.tell("a", 1.0, 0.25)
    now[0] += cluster._SILENT_SECONDS - 1.0
    assert not coordinator.tell("b", 2.0, 0.5)
    assert coordinator.going() == {"a": (1.0, 0.25), "b": (2.0, 0.5)}
    now[0] += 2.0
    assert coordinator.going() == {"b": (2.0, 0.5)}
    coordinator.stop()
    assert coordinator.tell("b", 3.0, 0.75)
