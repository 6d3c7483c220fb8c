"""bench/beside_dopamine.py: means by hand, Dopamine's numbers, runs that cannot be compared."""

from __future__ import annotations

import json
import shutil
import statistics
from pathlib import Path
from typing import Any

import pytest

from bench import beside_dopamine
from bench.dopamine import published
from fastdqn.options.agents import AGENTS
from tests.helpers.trained import TrainedRuns

GAMES = ((100.0, 1000), (300.0, 250_000), (50.0, 250_001), (70.0, 490_000), (1e6, 500_008))
"""Scores, and the env steps in which games ended: two in each of two millions, one in the third, which is not over."""


def krull(runs: TrainedRuns, folder: Path, group: str = "game", **changes: Any) -> Path:
    """Return a run of 09 whose files say that it was dopamine-dqn on Krull, but for `changes` in a group."""
    shutil.copytree(runs["09"], folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config |= beside_dopamine.as_dopamine("krull", "dopamine-dqn")
    config[group].update(changes)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "summary.json").unlink()
    write_games(folder, GAMES)
    return folder


def write_games(folder: Path, games: tuple[tuple[float, int], ...]) -> None:
    lines = [
        json.dumps({"score": score, "env_steps": ended, "elapsed": ended / 100, "mean_100": None})
        for score, ended in games
    ]
    (folder / "episodes.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def test_means_of_millions_that_are_over(runs: TrainedRuns, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also of a run that is not; the same seed takes the place of what it had, another one a line of its own."""
    folder, out = krull(runs, tmp_path / "run"), tmp_path / "out"
    assert beside_dopamine.main([str(folder), "--out", str(out)]) == 0
    (line,) = map(json.loads, (out / "curves.jsonl").read_text(encoding="utf-8").splitlines())
    assert (line["game"], line["agent"], line["seed"]) == ("krull", "dopamine-dqn", 0)
    assert (line["means"], line["ended"]) == ([200.0, 60.0], [2, 2])
    assert line["minutes"] == round(490_000 / 100 / 60, 1)
    assert (out / "curves.png").read_bytes()[:4] == b"\x89PNG"
    write_games(folder, (*GAMES, (2.0, 800_000)))
    write_games(krull(runs, tmp_path / "begun"), ((1.0, 1000),))
    other = krull(runs, tmp_path / "other")
    config = json.loads((other / "config.json").read_text(encoding="utf-8"))
    config["run"]["seed"] = 1
    (other / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert beside_dopamine.main([str(tmp_path), "--out", str(out)]) == 0
    assert "left out: " in capsys.readouterr().err
    lines = [json.loads(line) for line in (out / "curves.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [(line["seed"], len(line["means"])) for line in lines] == [(0, 3), (1, 2)]


@pytest.mark.parametrize(
    ("group", "change", "said"),
    [
        ("game", {"sticky_actions": 0.0}, "was not trained as Dopamine's agents: sticky_actions is 0.0, not 0.25"),
        ("game", {"episodic_life": True}, "episodic_life is True, not False"),
        ("game", {"name": "alien"}, "there are no curves of dopamine-dqn on Alien, only of Breakout, Freeway, Krull"),
        ("agent", {"network": "nature"}, "network is nature, not dopamine"),
        ("agent", {"init": "pytorch"}, "init is pytorch, not xavier"),
        ("parts", {"priority_measure": "kl", "prioritized": True}, "prioritized is True, not False"),
        ("dqn", {"learning_rate": 1e-4}, "learning_rate is 0.0001, not 6.25e-05"),
        ("update", {"random_shift": 4}, "random_shift is 4, not 0"),
    ],
)
def test_other_runs_are_one_sentence(
    runs: TrainedRuns, tmp_path: Path, capsys: pytest.CaptureFixture[str], group: str, change: dict[str, Any], said: str
) -> None:
    folder = krull(runs, tmp_path / "run", group, **change)
    assert beside_dopamine.main([str(folder), "--out", str(tmp_path / "out")]) == 2
    assert said in capsys.readouterr().err


def test_what_agents_are_compared_by() -> None:
    """Everything that an agent by paper sets, and what neither agents nor games are made of is free."""
    rainbow = beside_dopamine.as_dopamine("krull", "dopamine-rainbow")
    agent = AGENTS["dopamine-rainbow"]
    named = {
        (group, name): value
        for changes in (agent.settings, agent.parts)  # parts last: 3 steps instead of 1
        for group, options in changes.items()
        for name, value in options.items()
        if group != "run" and name != "importance_decay"
    }
    assert ("parts", "priority_measure") in named
    assert named == {(group, name): rainbow[group][name] for group, name in named}
    assert not {name for _, name in named} & set(beside_dopamine.BESIDE)
    assert rainbow["game"]["sticky_actions"] == 0.25


def test_a_run_without_a_million_frames_and_damaged_lines_are_one_sentence(
    runs: TrainedRuns, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = krull(runs, tmp_path / "run")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps({key: config[key] for key in config if key != "dqn"}))
    assert beside_dopamine.main([str(folder), "--out", str(tmp_path)]) == 2
    assert "there are no curves of None on Krull" in capsys.readouterr().err
    (folder / "config.json").write_text(json.dumps(config))
    write_games(folder, ((1.0, 249_999),))
    assert beside_dopamine.main([str(folder), "--out", str(tmp_path)]) == 2
    assert "has not played a million frames to their end" in capsys.readouterr().err
    (tmp_path / "curves.jsonl").write_text("{}\n", encoding="utf-8")
    assert beside_dopamine.main([str(folder), "--out", str(tmp_path)]) == 2
    assert "curves.jsonl is damaged" in capsys.readouterr().err
    assert beside_dopamine.main(["--out", str(tmp_path / "nothing")]) == 2
    assert "Name the folder of at least one run" in capsys.readouterr().err


def test_dopamine_s_numbers_at_ten_million_frames() -> None:
    """As its five seeds have them on average."""
    at_ten = {
        (game, agent): round(statistics.fmean(of[9]), 1)
        for game, agents in published().items()
        for agent, of in agents.items()
    }
    assert at_ten == {
        ("breakout", "dopamine-dqn"): 51.9,
        ("breakout", "dopamine-rainbow"): 43.8,
        ("freeway", "dopamine-dqn"): 18.7,
        ("freeway", "dopamine-rainbow"): 32.1,
        ("krull", "dopamine-dqn"): 3061.4,
        ("krull", "dopamine-rainbow"): 6855.1,
        ("road_runner", "dopamine-dqn"): 31644.1,
        ("road_runner", "dopamine-rainbow"): 32698.8,
    }
    assert all(len(of) == 10 and {len(seeds) for seeds in of} == {5} for of in _all_curves())


def _all_curves() -> list[list[list[float]]]:
    return [of for agents in published().values() for of in agents.values()]
