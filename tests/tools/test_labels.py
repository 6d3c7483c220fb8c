"""Labels: what a run is called, in a person's words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fastdqn.tools import labels
from fastdqn.tools.labels import grouped, in_order, one_by_one, shared_agent
from fastdqn.tools.reading import RunData
from tests.helpers.folders import make_run


def labels_of(folder: Path, *runs: dict[str, Any]) -> list[str]:
    """Return what Pong's runs with these changes are called, in the order of the labels."""
    made = [make_run(folder / str(i), **what) for i, what in enumerate(runs)]
    return list(grouped(made)["pong"])


PARTS = {"dueling": False, "noisy": False, "prioritized": False, "distributional": False}


@pytest.mark.parametrize(
    ("runs", "labels"),
    [
        ([{}], ["09"]),
        ([{}, {"seed": 1}], ["09"]),
        ([{}, {"script": "01_baseline"}], ["01", "09"]),
        ([{}, {"script": "09_my_own"}], ["09_cuda_graph", "09_my_own"]),
        ([{"script": "mine"}], ["mine"]),
        (
            [{"dqn": {"learning_rate": 5e-4}}, {"dqn": {"learning_rate": 1e-5}}],
            ["09, learning rate 1e-05", "09, learning rate 0.0005"],
        ),
        ([{"dqn": {"double": True}}, {}], ["09, with double", "09, without double"]),
        ([{"update": {"precision": "fp32"}}, {}], ["09", "09, without bf16"]),
        ([{"dqn": {"n_step": 5}}, {}], ["09, 1-step returns", "09, 5-step returns"]),
        ([{"dqn": {"replay_size": 100_000}}, {"dqn": {"replay_size": 9_000}}],
         ["09, replay size 9,000", "09, replay size 100,000"]),
        ([{"agent": {"target_average": 0.005}}, {"agent": {"target_average": None}}],
         ["09, target average 0.005", "09, without target average"]),
        ([{"agent": {"network": "narrow"}}, {"agent": {"network": "nature"}}],
         ["09, Nature's network", "09, narrow network"]),
        (
            [
                {"script": "11_pong_in_seconds", "agent": {"network": "narrow"}},
                {"script": "11_pong_in_seconds", "agent": {"network": "nature"}},
            ],
            ["11, Nature's network", "11, narrow network"],
        ),
        (
            [
                {"script": "10_rainbow", "variant": {"variant": "dqn"}, "parts": PARTS},
                {"script": "10_rainbow", "series": {"variant": "noisy"}, "parts": {**PARTS, "noisy": True}},
            ],
            ["10 dqn", "10 noisy"],
        ),
        (
            [{"script": "10_rainbow", "series": {"variant": "dueling"}, "parts": {**PARTS, "noisy": True}}],
            ["10 dueling, without dueling, with noisy layers"],
        ),
        (
            [
                {"parts": {"noisy": True}, "dqn": {"epsilon_start": 0.0, "epsilon_final": 0.0}},
                {"parts": {"noisy": False}},
            ],
            ["09, with noisy layers", "09, without noisy layers"],
        ),
        ([{"dqn": {"agent": "nature"}}, {"dqn": {"agent": "rainbow"}}], ["09, nature", "09, rainbow"]),
        ([{"update": {"random_shift": 0}}, {"update": {}}], ["09"]),
        ([{"agent": {"small": False}}, {"agent": {}}], ["09"]),
        ([{"update": {"random_shift": 4}}, {"update": {}}], ["09, random shift 0", "09, random shift 4"]),
        ([{"agent": {"small": True}}, {"agent": {}}], ["09", "09, with small"]),
        ([{"agent": {"gradient_threads": 1}}, {"agent": {}}], ["09"]),
        ([{"turns": {"game_groups": 1}}, {}], ["09"]),
        (
            [
                {"script": "10_rainbow", "series": {"variant": "dqn", "seeds": 1}},
                {"script": "10_rainbow", "variant": {"variant": "dqn"}},
            ],
            ["10 dqn"],
        ),
        ([{"game": {"name": "pong-fast"}}, {}], ["09", "09, pong-fast"]),
        ([{"game": {"name": "Pong"}}, {"game": {"name": "pong"}}], ["09"]),
    ],
)  # fmt: skip
def test_labels_say_what_differs(tmp_path: Path, runs: list[dict[str, Any]], labels: list[str]) -> None:
    assert labels_of(tmp_path, *runs) == labels


def test_an_agent_of_all_runs_stands_in_the_title(tmp_path: Path) -> None:
    agent = {"dqn": {"agent": "nature"}}
    runs = [make_run(tmp_path / "a", **agent), make_run(tmp_path / "b", game={"name": "breakout"}, **agent)]
    assert shared_agent(runs) == "nature"
    assert {game: list(labels) for game, labels in grouped(runs).items()} == {"breakout": ["09"], "pong": ["09"]}


def test_settings_of_one_game_are_not_told_from_those_of_another(tmp_path: Path) -> None:
    runs = [
        make_run(tmp_path / "a", game={"name": "seaquest"}, dqn={"learning_rate": 0.1}),
        make_run(tmp_path / "b", game={"name": "breakout"}, dqn={"learning_rate": 0.2}),
        make_run(tmp_path / "c", game={"name": "breakout"}, dqn={"learning_rate": 0.3}),
    ]
    assert {game: list(labels) for game, labels in grouped(runs).items()} == {
        "breakout": ["09, learning rate 0.2", "09, learning rate 0.3"],
        "seaquest": ["09"],
    }


def test_limits_differ_only_where_a_run_came_to_one(tmp_path: Path) -> None:
    short = {"run": {"max_env_steps": 100_000}}
    assert labels_of(tmp_path / "solved", {}, {"seed": 1, **short}) == ["09"]
    assert labels_of(tmp_path / "running", {}, {"seed": 1, "ended": "interrupted", **short}) == ["09"]
    assert labels_of(
        tmp_path / "limit", {"ended": "max-env-steps"}, {"seed": 1, "ended": "max-env-steps", **short}
    ) == [
        "09, until 100,000 env steps",
        "09, until 3,000,000 env steps",
    ]
    lower = {"run": {"stop_score": 10.0}}  # what runs that were solved came to
    assert labels_of(tmp_path / "goals", {}, {"seed": 1, **lower}) == [
        "09, until a mean of 10",
        "09, until a mean of 18",
    ]


def test_runs_one_by_one(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / "a"), make_run(tmp_path / "b"), make_run(tmp_path / "c", seed=1)]
    assert list(one_by_one(grouped(runs))["pong"]) == ["09, seed 0 (a)", "09, seed 0 (b)", "09, seed 1"]
    runs = [make_run(tmp_path / name) for name in ("before/s", "after/s", "after/t")]
    assert list(one_by_one(grouped(runs))["pong"]) == [
        "09, seed 0 (before/s)",
        "09, seed 0 (after/s)",
        "09, seed 0 (t)",
    ]


def test_numbers_are_in_order() -> None:
    labels = ["11, batch size 1,000", "11, batch size 32", "09, rate 1e-05", "09, rate 0.1", "10 dqn"]
    assert sorted(labels, key=in_order) == [
        "09, rate 1e-05",
        "09, rate 0.1",
        "10 dqn",
        "11, batch size 32",
        "11, batch size 1,000",
    ]


def test_what_runs_learn_by_is_read_once_for_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no more often where there are many: a sweep has hundreds of one game."""
    runs = [make_run(tmp_path / str(i), seed=i, dqn={"n_step": 1 + i % 3}) for i in range(30)]
    read: list[RunData] = []
    learnt = labels._learnt
    monkeypatch.setattr(labels, "_learnt", lambda run: (read.append(run), learnt(run))[1])
    found = grouped(runs)["pong"]
    assert [len(members) for members in found.values()] == [10, 10, 10]
    assert read == runs
