"""Reading the folders of runs: what they say, and which of them count."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fastdqn.errors import UserError
from fastdqn.tools import reading
from fastdqn.tools.reading import chosen, read_run
from tests.helpers.folders import make_folder, make_run


def test_the_mean_of_100_games_is_the_recorded_one(tmp_path: Path) -> None:
    """Which games the window holds, the run knows: a mean that is made from the lines would be another."""
    folder = make_folder(tmp_path / "run", scores=(21.0, -21.0))
    lines = [
        {"score": 21.0, "mean_100": None, "env_steps": 10, "elapsed": 1.0},
        {"score": -21.0, "mean_100": -7.0, "env_steps": 20, "elapsed": 2.0},
    ]
    (folder / "episodes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"cut')
    run = read_run(folder)
    assert run.episodes == lines  # but for the line that is cut off
    x, mean = run.curve("env_steps")
    assert (x.tolist(), mean.tolist()) == ([20.0], [-7.0])


def test_other_means_are_of_games_in_the_order_in_which_they_began(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", scores=(1.0, 2.0, 6.0, 0.0))
    assert run.curve("elapsed", 2)[1].tolist() == [1.0, 1.5, 4.0, 3.0]
    for line, began in zip(run.episodes, (2, 1, 3, 4), strict=True):
        line["began"] = began
    x, mean = run.curve("elapsed", 2)
    assert mean.tolist() == [2.0, 1.5, 3.5, 3.0]
    assert x.tolist() == [60.0, 60.0, 120.0, 180.0]  # a game counts once all are over that began before it
    assert run.curve("elapsed", 1)[1].tolist() == [1.0, 2.0, 6.0, 0.0]


@pytest.mark.parametrize(
    ("what", "ended", "finished"),
    [
        ({"ended": "solved"}, "solved", True),
        ({"ended": "max-env-steps"}, "max-env-steps", True),
        ({"ended": "max-minutes"}, "max-minutes", True),
        ({"ended": "interrupted"}, "interrupted", False),
        ({"ended": "failed"}, "failed", False),
        ({"ended": None}, "broken off", False),
        ({"ended": None, "running": True}, "running", False),
        ({"ended": "max-env-steps", "running": True}, "running", False),  # resumed: the summary is of before
    ],
)
def test_how_a_run_ended(tmp_path: Path, what: dict[str, object], ended: str, finished: bool) -> None:
    run = make_run(tmp_path / "run", **what)
    assert (run.ended, run.finished) == (ended, finished)


def test_the_newest_finished_run_of_each_seed_counts(tmp_path: Path) -> None:
    def run(name: str, day: int, **what: object) -> object:
        return make_run(tmp_path / name, time=f"2026-11-{day:02}T00:00:00+00:00", **what)

    runs = [
        run("old", 1),
        run("new", 2),
        run("newer-but-failed", 3, ended="failed"),
        run("alone", 1, seed=1, ended="interrupted"),
        run("alone-and-older", 1, seed=1, ended=None),
        run("other", 1, seed=2, ended="max-minutes"),
    ]
    runs[4] = runs[4]._replace(written=0.0)  # type: ignore[attr-defined]
    kind = chosen(runs)  # type: ignore[arg-type]
    assert [one.folder.name for one in kind.finished] == ["new", "other"]
    assert [one.folder.name for one in kind.unfinished] == ["alone"]
    assert {folder.name: why for folder, why in kind.left_out.items()} == {
        "old": f"has seed 0, as the newer {tmp_path / 'new'} has",
        "newer-but-failed": f"failed, and {tmp_path / 'new'} has its seed, 0",
        "alone": "was interrupted",
        "alone-and-older": f"broke off without a summary, and {tmp_path / 'alone'} has its seed, 1",
    }


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("episodes.jsonl", '{"score": 1}\n', "its episodes.jsonl is damaged"),
        ("episodes.jsonl", "[1]\n", "its episodes.jsonl is damaged"),
        ("episodes.jsonl", "{1\n", "its episodes.jsonl is damaged"),
        ("episodes.jsonl", "", "its episodes.jsonl has 0 games, and its summary.json says 3: one of them is damaged"),
        ("summary.json", "{", "its summary.json is damaged"),
        ("summary.json", "[]", "its summary.json is damaged"),
        ("summary.json", '{"elapsed": "x"}', "its summary.json is damaged"),
        ("summary.json", '{"reason": "[/x]"}', "its summary.json is damaged"),
        ("summary.json", '{"fresh": 3}', "its summary.json is damaged"),
        ("summary.json", '{"median_env_steps_per_s": "fast"}', "its summary.json is damaged"),
        (
            "episodes.jsonl",
            '{"score": 1' + "0" * 400 + ', "mean_100": 1, "env_steps": 1, "elapsed": 1}\n',
            "is damaged",
        ),
    ],
)
def test_damage_is_a_sentence(tmp_path: Path, name: str, text: str, said: str) -> None:
    folder = make_folder(tmp_path / "run")
    (folder / name).write_text(text)
    with pytest.raises(UserError, match=said):
        read_run(folder)


def test_games_by_any_name_and_folders_without_a_stamp(tmp_path: Path) -> None:
    one, other = make_run(tmp_path / "a", game={"name": "ALE/SpaceInvaders-v5"}), tmp_path / "b"
    assert one.game == "space_invaders"
    assert make_run(other, game={"name": "space_hamsters"}).game == "space_hamsters"  # another ale_py may have it
    (other / "environment.json").unlink()
    assert read_run(other).written == (other / "config.json").stat().st_mtime


def test_a_run_that_ends_while_it_is_read_is_read_once_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its games were read before the last one was over, its summary afterwards."""
    folder = make_folder(tmp_path / "run", scores=(1.0, 2.0, 3.0))
    whole = (folder / "episodes.jsonl").read_text()
    (folder / "episodes.jsonl").write_text("".join(whole.splitlines(keepends=True)[:2]))
    lines_of = reading.whole_lines

    def lines(text: str) -> list[dict[str, Any]]:
        (folder / "episodes.jsonl").write_text(whole)
        return lines_of(text)

    with pytest.raises(UserError, match=r"has 2 games, and its summary\.json says 3"):
        read_run(folder)
    monkeypatch.setattr(reading, "whole_lines", lines)
    assert len(read_run(folder).episodes) == 3


def test_what_is_odd_in_a_run_is_one_sentence(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "run")
    (folder / "environment.json").write_text("[" * 100_000)
    assert read_run(folder).machine is None
    (folder / "environment.json").write_text(json.dumps({"cores": 2, "cpu": "\x1b[31m", "gpu": None, "time": ""}))
    assert not read_run(folder).machine
    line = json.loads((folder / "episodes.jsonl").read_text().splitlines()[0])
    for wrong in ({"began": None}, {"score": 1e308}, {"elapsed": 10**400}):
        (folder / "episodes.jsonl").write_text(json.dumps({**line, **wrong}) + "\n")
        with pytest.raises(UserError, match=r"its episodes\.jsonl is damaged"):
            read_run(folder)
