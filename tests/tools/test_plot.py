"""Learning curves: what is drawn of which runs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fastdqn.errors import UserError
from fastdqn.tools.plot import common_grid, draw_curves, grouped, read_run
from tests.helpers.scripts import TOY_CATCH
from tests.helpers.trained import TrainedRuns


def test_learning_curve_of_a_run(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    episodes = [{"elapsed": 6.0 * i, "env_steps": 100 * i, "score": i - 21, "mean_100": i / 2 - 21} for i in range(30)]
    (folder / "episodes.jsonl").write_text("".join(json.dumps(episode) + "\n" for episode in episodes) + '{"cut')
    config = {"format": 3, "script": "09", "wrappers": "vector", "run": {"seed": 3}, "game": {"name": "pong"}}
    (folder / "config.json").write_text(json.dumps(config))
    run = read_run(folder)
    assert run.episodes == episodes  # but for the line that is cut off
    env_steps, means = run.curve("env_steps", games=10)
    assert env_steps.tolist() == [100.0 * i for i in range(30)]
    assert means.tolist() == pytest.approx([np.mean(range(max(0, i - 9), i + 1)) - 21 for i in range(30)])
    draw_curves({"a run": [run]}, tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(UserError, match="not the folder of a run"):
        read_run(tmp_path / "none")
    with pytest.raises(UserError, match="cannot be written"):
        draw_curves({"a run": [run]}, tmp_path / "curve.xyz")


def test_a_label_names_script_agent_and_game(runs: TrainedRuns) -> None:
    run = read_run(runs["catch0"])
    assert list(grouped([run])) == [f"09_cuda_graph, nature, {TOY_CATCH}"]
    named = run._replace(config={**run.config, "dqn": {"agent": "rainbow"}, "series": {"variant": "rainbow"}})
    assert list(grouped([named])) == [f"09_cuda_graph, rainbow, {TOY_CATCH}"]


def test_runs_are_grouped_by_what_differs(runs: TrainedRuns) -> None:
    first, second = read_run(runs["catch0"]), read_run(runs["catch1"])
    assert [len(group) for group in grouped([first, second]).values()] == [2]
    other = second._replace(config={**second.config, "dqn": {**second.config["dqn"], "n_step": 7}})
    assert [label.rsplit(", ", 1)[-1] for label in grouped([first, other])] == ["n-step 1", "n-step 7"]


def test_common_grid_by_hand() -> None:
    a = (np.array([0.0, 10.0]), np.array([0.0, 10.0]))
    b = (np.array([5.0, 20.0]), np.array([1.0, 1.0]))
    grid, curves = common_grid([a, b])
    assert (grid[0], grid[-1]) == (5.0, 20.0)
    assert curves[0, 0] == 5.0
    assert curves[0, -1] == 10.0  # a run that has ended counts on with its last value
    assert curves[1].tolist() == [1.0] * len(grid)
