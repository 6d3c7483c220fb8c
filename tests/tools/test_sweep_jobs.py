"""What a sweep finds in the folder of a run that was stopped."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from fastdqn.tools.sweep import jobs


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
