"""Weights & Biases and Trackio, as stand-ins that note what they are told; neither is there unless it is asked for."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fastdqn.errors import UserError
from fastdqn.types import EpisodeEnd, PlayedStep
from tests.helpers.runs import NOTHING, make_run
from tests.helpers.scripts import ROOT, TOY_CATCH, command


class Noted:
    """What a tracker's `init` was given, and what its run was told."""

    def __init__(self) -> None:
        self.given: dict[str, Any] = {}
        self.lines: list[tuple[dict[str, Any], int | None]] = []
        self.summary: dict[str, Any] = {}
        self.finished = 0

    def init(self, **given: Any) -> Noted:
        self.given = given
        return self

    def log(self, values: dict[str, Any], step: int | None = None) -> None:
        assert not self.finished
        self.lines.append((values, step))

    def define_metric(self, *names: str, **options: Any) -> None: ...

    def finish(self) -> None:
        self.finished += 1

    def Settings(self, **said: Any) -> Any:  # noqa: N802 - wandb's name
        return SimpleNamespace(**said)


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> dict[str, Noted]:
    """Stand-ins in the place of both packages."""
    stand_ins = {"wandb": Noted(), "trackio": Noted()}
    real = importlib.import_module
    monkeypatch.setattr("fastdqn.runs.trackers.importlib.import_module", lambda name: stand_ins.get(name) or real(name))
    monkeypatch.delenv("WANDB_MODE", raising=False)
    return stand_ins


def play(folder: Path, **run: Any) -> Path:
    with make_run(folder, max_env_steps=2, **run) as running:
        running.played(PlayedStep((), (EpisodeEnd(7.0, 400, False),)), epsilon=0.5)
        running.played(NOTHING, epsilon=0.5)
        assert running.over()
    return running.folder


def test_both_hear_what_tensorboard_hears(tmp_path: Path, modules: dict[str, Noted]) -> None:
    folder = play(tmp_path, wandb=True, trackio=True, project="mine")
    wandb, trackio = modules["wandb"], modules["trackio"]
    assert wandb.given["project"] == trackio.given["project"] == "mine"
    assert wandb.given["name"] == trackio.given["name"] == folder.name
    assert wandb.given["config"]["dqn"]["gamma"] == trackio.given["config"]["dqn"]["gamma"] == 0.99
    assert {"episode/score": 7.0, "episode/mean_100": 7.0, "env_steps": 1} in [line for line, _ in wandb.lines]
    assert ({"episode/score": 7.0, "episode/mean_100": 7.0}, 1) in trackio.lines
    assert any("train/epsilon" in line for line, _ in trackio.lines)
    assert wandb.summary["reason"] == "max-env-steps"
    assert trackio.lines[-1][0]["summary/env_steps"] == 2
    assert (wandb.finished, trackio.finished) == (1, 1)


def test_offline_unless_told_otherwise(
    tmp_path: Path, modules: dict[str, Noted], monkeypatch: pytest.MonkeyPatch
) -> None:
    play(tmp_path, wandb=True)
    assert os.environ["WANDB_MODE"] == "offline"
    monkeypatch.setenv("WANDB_MODE", "online")
    modules["wandb"].finished = 0
    play(tmp_path, wandb=True)
    assert os.environ["WANDB_MODE"] == "online"
    assert modules["trackio"].lines == []


def test_one_that_fails_does_not_end_the_run(
    tmp_path: Path, modules: dict[str, Noted], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise ConnectionError("no network")

    monkeypatch.setattr(modules["wandb"], "log", fail)
    monkeypatch.setattr(modules["trackio"], "finish", fail)
    folder = play(tmp_path, wandb=True, trackio=True)
    out = capsys.readouterr().out
    assert "WandbTracker has failed and hears no more of this run: no network" in out
    assert "TrackioTracker could not be closed: no network" in out
    assert (folder / "summary.json").exists()
    assert len(modules["trackio"].lines) > 3


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_what_is_not_installed_is_one_sentence(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UserError, match=rf"--{name} needs a package that is not installed: pip install 'fastdqn"):
        play(tmp_path / "runs", **{name: True})
    assert not (tmp_path / "runs").exists()


def test_neither_is_imported_unless_asked_for(tmp_path: Path) -> None:
    code = "import os, sys, runpy; sys.argv = sys.argv[1:]; sys.path.insert(0, os.path.dirname(sys.argv[0]))\n"
    code += "try: runpy.run_path(sys.argv[0], run_name='__main__')\n"
    code += "except SystemExit as end: assert not end.code, end.code\n"
    code += "assert not {'wandb', 'trackio'} & set(sys.modules)"
    words = ("--game", TOY_CATCH, "--replay-initial", "5", "--replay-size", "50", "--max-env-steps", "8")
    subprocess.run([sys.executable, "-c", code, *command("01_baseline", tmp_path, *words)], cwd=ROOT, check=True)
