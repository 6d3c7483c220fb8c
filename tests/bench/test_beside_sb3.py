"""bench/beside_sb3.py: what is read of both sides, and one whole run where Stable-Baselines3 is installed."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from bench import beside_sb3
from bench.sides import Side
from fastdqn import process
from fastdqn.errors import RunError, UserError
from tests.helpers.scripts import ROOT, parse


def main_with(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["beside_sb3.py", *words])
    return beside_sb3.main()


@pytest.mark.parametrize(
    "words", [("--max-env-steps", "0"), ("--only", "both", "--seconds", "0"), ("--evaluation-games", "0")]
)
def test_bad_input_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    assert main_with(monkeypatch, *words) == 2
    assert "must be above 0" in capsys.readouterr().err


def test_what_is_not_installed_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert main_with(monkeypatch, "--out", str(tmp_path / "results")) == 2
    assert "pip install 'fastdqn[sb3]'" in capsys.readouterr().err
    assert not (tmp_path / "results").exists()


def test_a_line_that_is_being_written_is_not_read(tmp_path: Path) -> None:
    code = 'import sys; sys.stdout.write(\'noise\\n{"kind": "speed", "updates": 1}\\n{"kind": "sp\')'
    side = Side("one", [sys.executable, "-c", code], tmp_path, None)
    side.process.wait()
    assert side.lines() == [{"kind": "speed", "updates": 1}]
    side.end()


def test_a_side_that_fails_is_named_with_its_words(tmp_path: Path) -> None:
    side = Side("one", [sys.executable, "-c", "raise SystemExit('no such thing')"], tmp_path, None)
    side.process.wait()
    with pytest.raises(RunError, match="one failed with exit code 1:\nno such thing"):
        side.check()
    side.end()


def test_a_side_by_hand() -> None:
    """300 updates in the 3 s from the first record that counts to the last."""
    speeds = [{"env_steps": 100 + 100 * i, "updates": 100 * i, "elapsed": 10.0 + i} for i in range(7)]
    games = [{"env_steps": 200, "elapsed": 11.0, "score": -5.0, "place": 3}]
    found = beside_sb3.side_of(games, speeds, [1.0, 2.0], "one")
    assert (found["updates_per_s"], found["env_steps"], found["minutes"]) == (100.0, 700, 16.0 / 60.0)
    assert found["episodes"] == [{"env_steps": 200, "elapsed": 11.0, "score": -5.0}]


def test_theirs_has_the_settings_of_ours() -> None:
    """Those of a game with settings of its own, and a sentence where they cannot be had."""
    ours = parse("31_sac", "--game", "MountainCarContinuous-v0")
    config = {"sac": dataclasses.asdict(ours.sac)}
    asked = json.loads(beside_sb3.theirs(beside_sb3.Options(), config, 1, 2)[-1])
    same = ("learning_rate", "batch_size", "gamma", "replay_size", "replay_initial", "target_average")
    same += ("hidden", "temperature", "initial_temperature", "target_entropy")
    assert {name: asked[name] for name in same} == {name: config["sac"][name] for name in same}
    assert (asked["hidden"], asked["temperature"], asked["batch_size"]) == (64, 0.1, 512)
    with pytest.raises(UserError, match="Stable-Baselines3 cannot be told --max-norm"):
        beside_sb3.theirs(beside_sb3.Options(), {"sac": {**config["sac"], "max_norm": 0.5}}, 1, 2)


def test_turns_begin_with_the_other_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """None always follows the same one; theirs has settings of ours also where it comes first."""
    asked: list[Any] = []

    def turn_of_ours(_: beside_sb3.Options, threads: int) -> tuple[float, dict[str, Any]]:
        asked.append("31")
        return 30.0 * threads, {"sac": len(asked)}

    def turn_of_theirs(_: beside_sb3.Options, _threads: int, config: dict[str, Any]) -> float:
        asked.append(config)
        return 10.0

    monkeypatch.setattr(beside_sb3, "turn_of_ours", turn_of_ours)
    monkeypatch.setattr(beside_sb3, "turn_of_theirs", turn_of_theirs)
    written: list[dict[str, Any]] = []
    options = beside_sb3.Options(only="speed", threads=2)
    beside_sb3.time_both(options, Console(quiet=True), lambda kind, **values: written.append(values))
    assert asked == ["31", {"sac": 1}, {"sac": 1}, "31", "31", {"sac": 5}]
    assert written[-1] == {"threads": 2, "ratios": [6.0, 6.0, 6.0], "ratio": 6.0}


@pytest.mark.engines
def test_turns_of_both() -> None:
    pytest.importorskip("stable_baselines3")
    options = beside_sb3.Options(only="speed", seconds=1.0, repeats=2, threads=1)
    written: list[dict[str, Any]] = []
    with process.running():
        beside_sb3.time_both(options, Console(quiet=True), lambda kind, **values: written.append(values))
    assert len(written) == 3
    assert all(line["ours"] > 1.0 < line["theirs"] for line in written[:-1])


@pytest.mark.engines
def test_a_whole_run(tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3")
    command = [sys.executable, str(ROOT / "bench" / "beside_sb3.py"), "--out", str(tmp_path)]
    command += ["--max-env-steps", "600", "--evaluation-games", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr
    (lines,) = tmp_path.glob("*.jsonl")
    rows: dict[str, Any] = {}
    for line in map(json.loads, lines.read_text(encoding="utf-8").splitlines()):
        rows |= {line["name"]: line} if line["kind"] == "row" else {}
    assert set(rows) == {"31", "Stable-Baselines3"}
    for row in rows.values():
        assert (row["env_steps"], len(row["evaluation"]), len(row["episodes"])) == (600, 2, 3)
        assert row["updates_per_s"] > 1
    assert len(list(tmp_path.glob("*.png"))) == 1
