"""Comparing runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fastdqn.tools.compare import left_out, means_of, notes_of, show, table_of
from fastdqn.tools.labels import grouped
from fastdqn.tools.reading import read_run
from tests.helpers.folders import make_run


def compared(capsys: pytest.CaptureFixture[str], folder: Path, *runs: dict[str, Any]) -> str:
    """Return what is printed of such runs."""
    groups = grouped([make_run(folder / str(i), **what) for i, what in enumerate(runs)])
    show(table_of(groups), notes_of(groups))
    return capsys.readouterr().out


def cells(said: str, row: str, nth: int = 0) -> list[str]:
    """Return the words of the nth line that has `row` in it."""
    return [line for line in said.splitlines() if row in line][nth].split()


def test_unfinished_runs_and_seeds_run_twice_are_named_and_do_not_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = compared(
        capsys,
        tmp_path,
        {"seed": 0, "scores": (10.0, 10.0)},
        {"seed": 1, "scores": (20.0, 20.0, 20.0)},
        {"seed": 1, "scores": (-500.0,), "time": "2020-01-01T00:00:00+00:00"},
        {"seed": 2, "scores": (-700.0,), "ended": "interrupted"},
        {"seed": 3, "scores": (-800.0,), "ended": None, "running": True},
        {"seed": 4, "scores": (), "ended": None},
    )
    assert cells(said, "mean of 2 runs")[4:] == ["2/2", "solved", "1.5", "150,000", "1,000.0", "15.00", "101%"]
    assert cells(said, "  lowest")[1:] == ["10.00", "87%"]
    assert cells(said, "  highest")[1:] == ["20.00", "115%"]
    assert "solved *" in said
    assert "interrupted *" in said
    assert "running *" in said
    assert cells(said, "broken off *")[-5:] == ["-"] * 5
    assert f"* {tmp_path / '2'} has seed 1, as the newer {tmp_path / '1'} has: it does not count." in said
    assert f"* {tmp_path / '3'} was interrupted: it does not count." in said
    assert f"* {tmp_path / '4'} is still running: it does not count." in said
    assert f"* {tmp_path / '5'} broke off without a summary: it does not count." in said


def test_one_run_has_no_interquartile_mean(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = compared(capsys, tmp_path, {"ended": "interrupted"}, {"game": {"name": "mod:Catch"}})
    assert "IQM" not in said
    assert "mean of" not in said
    assert "*" not in said
    assert cells(said, "interrupted")[-1] == "64%"  # a mean of 2, where -20.7 is random play and 14.6 a person
    assert cells(said, "solved")[-1] == "-"  # nobody has measured people at Catch


def test_sections_of_games_scripts_and_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rate = {"dqn": {"learning_rate": 5e-4}}
    said = compared(
        capsys,
        tmp_path,
        {},
        rate,
        {"script": "01_baseline"},
        {"game": {"name": "invaders"}},
        {"game": {"name": "Qbert"}},
    )
    lines = [line.strip() for line in said.splitlines()]
    games = [lines.index(game) for game in ("Pong", "Q*bert", "Space Invaders")]
    assert games == sorted(games)
    assert cells(said, "09, learning rate 0.0001")[4] == "0"
    assert cells(said, "09, learning rate 0.0005")[4] == "0"
    assert cells(said, "01 ")[1:3] == ["0", "solved"]


def test_examinations_after_the_training_are_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fresh = {"games": 100, "epsilon": 0.02, "mean": 18.25, "standard_error": 0.125}
    said = compared(capsys, tmp_path, {}, {"seed": 1, "summary": {"fresh": fresh, "nature": {"mean": 16.5}}})
    assert cells(said, "fresh")[-2:] == ["fresh", "Nature's"]
    assert cells(said, "18.25")[-4:] == ["18.25", "±", "0.12", "16.50"]
    assert "±: the standard error over the games of one run" in said
    assert cells(said, "mean of 2")[-2:] == ["-", "-"]  # one of the two has none
    lone = {"evaluation": {"mean": 12.5, "standard_error": None}}  # one game
    assert cells(compared(capsys, tmp_path / "lone", {"summary": lone}), "12.50")[-1] == "12.50"
    found = {"evaluation": {"mean": 12.5, "standard_error": 0.25}}
    said = compared(capsys, tmp_path / "100k", {"summary": found}, {"seed": 1, "summary": found})
    assert cells(said, "mean-100")[-1] == "games"
    assert cells(said, "12.50")[-3:] == ["12.50", "±", "0.25"]
    assert cells(said, "mean of 2")[-1] == "12.50"
    assert cells(said, "12.50", 1)[-4:] == ["94%", "12.50", "±", "0.25"]  # of these games, not of the training's 2.00
    assert "human: of the final games where a run has them, else of mean-100." in " ".join(said.split())
    said = compared(capsys, tmp_path / "none", {})
    assert "human: of" not in said
    assert "fresh" not in said
    assert "±" not in said
    assert "final" not in said


def test_an_agent_of_all_runs_and_machines_that_differ(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = compared(capsys, tmp_path, {"dqn": {"agent": "nature"}}, {"dqn": {"agent": "nature"}, "cpu": "another"})
    assert "Pong, agent nature" in said
    assert "The runs had different machines or numbers of cores" in said
    assert "different machines" not in compared(capsys, tmp_path / "one", {}, {"seed": 1})
    runs = [make_run(tmp_path / "two" / str(seed), seed=seed) for seed in (0, 1)]
    stamp = json.loads((runs[0].folder / "environment.json").read_text())
    stamp["earlier"] = [{**stamp, "cpu": "where it began"}]
    (runs[0].folder / "environment.json").write_text(json.dumps(stamp))
    again = read_run(runs[0].folder)
    assert "different machines" in " ".join(notes_of(grouped([again, runs[1]])))


def test_a_label_that_looks_like_markup_is_printed_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "mine[bold]" in compared(capsys, tmp_path, {"script": "mine[bold]"})


def test_means_of_evaluations_are_over_runs_that_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [make_run(tmp_path / str(i), seed=i) for i in range(3)]
    runs.append(make_run(tmp_path / "3", seed=3, ended="failed", script="01_baseline"))
    groups = grouped(runs)
    show(means_of(groups, {run.folder: 10.0 * i for i, run in enumerate(runs)}), left_out(groups, lone=True))
    said = capsys.readouterr().out
    assert cells(said, "09 ") == ["09", "3", "10.00", "0.00", "20.00", "87%"]
    assert "01 " not in said
    assert f"* {tmp_path / '3'} failed: it does not count." in said


def test_a_run_that_fresh_games_do_not_confirm_is_not_solved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    confirmed, not_so = {"summary": {"confirmed": True}}, {"seed": 1, "summary": {"confirmed": False}}
    said = compared(capsys, tmp_path, confirmed, not_so)
    assert cells(said, "mean of 2 runs")[4:8] == ["1/2", "solved", "-", "-"]  # the other one took for ever
    assert said.count("not confirmed") == 1
    assert "not confirmed" in compared(capsys, tmp_path / "lone", not_so)


def test_a_run_that_was_not_solved_took_for_ever(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its limit is no time to solve: the median counts it as longer than any."""
    limit = {"ended": "max-minutes", "summary": {"elapsed": 6.0, "env_steps": 60}}
    runs = [{"seed": seed, "scores": (10.0 * seed,) * (seed + 1)} for seed in range(3)]
    said = compared(capsys, tmp_path, *runs, {**limit, "seed": 3, "scores": (30.0, 30.0)})
    assert cells(said, "IQM of 4 runs")[4:8] == ["3/4", "solved", "1.5", "150,000"]
    assert cells(said, "IQM of 4 runs")[-2] == "15.00"
    assert cells(said, "95% from")[2:3] == ["0.00"]
    said = compared(capsys, tmp_path / "none", limit, {**limit, "seed": 1})
    assert cells(said, "mean of 2 runs")[4:8] == ["0/2", "solved", "0.1", "60"]  # as long as they were given


def test_what_is_rounded_to_0_has_no_sign(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Pong's random play is -20.7."""
    assert "-0%" not in compared(capsys, tmp_path, {"scores": [-20.8] * 100})
