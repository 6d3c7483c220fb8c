"""bench/fresh.py: the fresh games of a run, played later."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from bench import fresh
from fastdqn.tools import fresh as after
from tests.helpers.scripts import summary
from tests.helpers.trained import TrainedRuns


def solved(runs: TrainedRuns, tmp_path: Path, **changes: object) -> Path:
    folder = Path(shutil.copytree(runs["09"], tmp_path / "run"))
    path = folder / "summary.json"
    said = {**json.loads(path.read_text(encoding="utf-8")), "solved": True, **changes}
    path.write_text(json.dumps(said), encoding="utf-8")
    return folder


def test_a_solved_run_gets_the_games_that_it_did_not_play(
    runs: TrainedRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    training, nature = after.EXAMINATIONS
    monkeypatch.setattr(after, "EXAMINATIONS", (training, nature._replace(games=1)))
    folder = solved(runs, tmp_path)
    assert fresh.main([str(folder), "--games", "2"]) == 0
    assert "2 fresh games at epsilon 0.02: mean" in capsys.readouterr().out
    found = summary(folder)
    assert (found["fresh"]["games"], found["nature"]["games"], found["confirmed"]) == (2, 1, False)
    assert fresh.main([str(folder)]) == 0
    assert capsys.readouterr().out.endswith("It has its fresh games.\n")


@pytest.mark.parametrize("own", [False, True])
def test_other_runs_are_one_sentence(
    runs: TrainedRuns, tmp_path: Path, capsys: pytest.CaptureFixture[str], own: bool
) -> None:
    """One that was not solved, and one whose files name code that is to be loaded."""
    folder = solved(runs, tmp_path, solved=own)
    if own:
        path = folder / "config.json"
        path.write_text(path.read_text(encoding="utf-8").replace('"pong"', '"somewhere:Game"'), encoding="utf-8")
    assert fresh.main([str(folder)]) == 2
    assert ("for games of Atari's" if own else "was not solved") in capsys.readouterr().err


def test_games_that_cannot_be_played_are_one_sentence(
    runs: TrainedRuns, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = solved(runs, tmp_path)
    assert fresh.main([str(folder), "--games", "0"]) == 2
    assert "--games must be at least 1, not 0" in capsys.readouterr().err
    (folder / "weights.safetensors").unlink()
    assert fresh.main([str(folder)]) == 2
    assert "has no fresh games, for the reason above" in capsys.readouterr().err
    (folder / "summary.json").unlink()
    assert fresh.main([str(folder)]) == 2
    assert "was not solved" in capsys.readouterr().err


def test_ctrl_c_ends_all_of_it(
    runs: TrainedRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fresh.process, "stop_signal", lambda: 2)
    monkeypatch.setattr(fresh.process, "exit_code", lambda: 130)
    folder = solved(runs, tmp_path)
    assert fresh.main([str(folder), str(tmp_path / "another"), "--games", "2"]) == 130
    assert "were stopped" in capsys.readouterr().out
