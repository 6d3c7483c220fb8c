"""Folders of runs on the command line."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from fastdqn.cli.folders import folder_of, folders_of, runs_of
from fastdqn.errors import UserError
from fastdqn.tools import reading
from tests.helpers.folders import make_folder


def test_a_run_a_sweep_and_a_folder_of_runs_and_sweeps(tmp_path: Path) -> None:
    alone = make_folder(tmp_path / "alone")
    sweep = [make_folder(tmp_path / "sweep" / "runs" / f"pong-{seed}" / "run", seed=seed) for seed in range(2)]
    assert folders_of([alone], tmp_path) == [alone]
    for named in (tmp_path / "sweep", tmp_path / "sweep" / "runs"):
        assert folders_of([named], tmp_path) == sweep
    assert folders_of([tmp_path], tmp_path) == [alone, *sweep]
    assert folders_of([alone, tmp_path / "sweep" / ".." / "alone", tmp_path], tmp_path) == [
        alone,
        *sweep,
    ]  # each once


def test_latest_is_the_newest_run_also_in_a_sweep(tmp_path: Path) -> None:
    old, new = make_folder(tmp_path / "old"), make_folder(tmp_path / "sweep" / "runs" / "pong-0" / "run")
    os.utime(old / "config.json", (1e9, 1e9))
    assert folder_of(Path("latest"), tmp_path) == new
    with pytest.raises(UserError, match=r"There is no run in the folder .*none; .* --runs-dir"):
        folder_of(Path("latest"), tmp_path / "none")


def test_what_cannot_be_read_is_named_and_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_folder(tmp_path / "good")
    make_folder(tmp_path / "young", scores=(), ended=None)
    (make_folder(tmp_path / "bad") / "episodes.jsonl").write_text("{\n")
    assert [run.folder.name for run in runs_of([tmp_path], tmp_path)] == ["good"]
    said = capsys.readouterr().err.splitlines()
    assert [line.startswith("left out: ") for line in said] == [True, True]
    assert [run.folder.name for run in runs_of([tmp_path], tmp_path, games=False)] == ["good", "young"]
    with pytest.raises(UserError, match="No game has finished"):
        runs_of([tmp_path / "young"], tmp_path)
    with pytest.raises(UserError, match="there is no such folder"):
        runs_of([tmp_path, tmp_path / "moon"], tmp_path)


def test_a_folder_that_may_not_be_entered_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The superuser may enter all."""
    closed, real, read = make_folder(tmp_path / "closed"), Path.exists, reading.read_run

    def refused(path: Path, **words: Any) -> bool:
        if path.parent == closed:
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(path, **words)

    make_folder(tmp_path / "open")
    monkeypatch.setattr(Path, "exists", refused)
    monkeypatch.setattr(reading, "read_run", lambda folder: read(folder) if refused(folder / "config.json") else None)
    assert [run.folder.name for run in runs_of([closed, tmp_path / "open"], tmp_path)] == ["open"]
    assert f"{closed} cannot be read: Permission denied" in capsys.readouterr().err
