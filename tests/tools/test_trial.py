"""What a trial leaves behind: curves of its sessions, and the five measures with numbers by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fastdqn.runs.best import Best
from fastdqn.runs.limits import Limits, StopTest
from fastdqn.runs.weights import read_weights
from fastdqn.tools.trial import Curves, curves_of, draw_sessions, draw_trial, measures, moving_average


def line(score: float, steps: int, session: int = 1) -> dict[str, Any]:
    where = {"session": session, "session_env_steps": steps, "session_updates": steps // 2}
    return {"score": score, "env_steps": 2 * steps, **where}


def test_moving_averages_are_of_the_last_games() -> None:
    lines = [line(score, i) for i, score in enumerate([1.0, 3.0, 5.0, 7.0])]
    assert moving_average(lines).tolist() == [1.0, 2.0, 3.0, 4.0]
    assert moving_average(lines, games=2).tolist() == [1.0, 2.0, 4.0, 6.0]


def test_measures_by_hand() -> None:
    """Two sessions, three points, random play at 1: strengths 1, 3, 2 and 3, 3, 4."""
    curves = Curves(
        np.array([10.0, 20.0, 40.0]), np.array([[1.0, 2.0, 4.0]] * 2), np.array([[2.0, 4.0, 3.0], [4.0, 4.0, 5.0]])
    )
    found = measures(curves, 1.0)
    assert found["strength"] == pytest.approx(16 / 6)
    first, second = (0.1 + 0.15 + 0.05) / 6, (0.3 + 0.15 + 0.1) / 10
    assert found["sample_efficiency"] == pytest.approx((first + second) / 2)
    assert found["training_efficiency"] == pytest.approx(10 * (first + second) / 2)
    assert found["stability"] == pytest.approx((1 - 1 / 4 + 1) / 2)
    assert found["consistency"] == pytest.approx(1 - 2 * (1 + 0 + 1) / (2 + 3 + 3))


def test_one_session_has_no_consistency() -> None:
    curves = Curves(np.array([1.0, 2.0]), np.array([[1.0, 2.0]]), np.array([[1.0, 2.0]]))
    assert measures(curves, 0.0)["consistency"] is None
    assert measures(curves, 0.0)["stability"] == 1.0


def test_sessions_weaker_than_random_play_have_strength_alone() -> None:
    curves = Curves(np.array([1.0, 2.0]), np.array([[1.0, 2.0]] * 2), np.array([[1.0, 2.0], [5.0, 6.0]]))
    found = measures(curves, 4.0)
    assert found.pop("strength") == pytest.approx(-0.5)
    assert set(found.values()) == {None}


def test_curves_begin_where_all_sessions_have_games_and_pictures_show_them(tmp_path: Path) -> None:
    sessions = [[line(float(i), 10 * i, number) for i in range(number, 8)] for number in (1, 2)]
    curves = curves_of(sessions)
    assert (curves.env_steps[0], curves.env_steps[-1]) == (20.0, 70.0)
    assert curves.scores[:, 0].tolist() == [1.5, 2.0]
    assert curves.updates[:, -1].tolist() == [35.0, 35.0]
    draw_sessions(sessions, curves, "Pendulum", tmp_path / "sessions.png")
    draw_trial([one for session in sessions for one in session], curves, "Pendulum", tmp_path / "trial.svg")
    assert all(path.stat().st_size > 5_000 for path in tmp_path.iterdir())


def test_the_best_weights_are_those_of_the_best_hundred_games(tmp_path: Path) -> None:
    weights = {"w": torch.zeros(1)}
    best = Best(tmp_path, weights)
    stop = StopTest(Limits(None, None, None))
    for _ in range(99):
        stop.add(50.0)
    best.look(stop)  # of fewer games
    best.save()
    assert not list(tmp_path.iterdir())
    for mean, value in ((1.0, 1.0), (3.0, 2.0), (2.0, 3.0)):
        weights["w"].fill_(value)
        for _ in range(100):
            stop.add(mean)
        best.look(stop)
    state = best.state()
    (tmp_path / "best.safetensors").rename(tmp_path / "weights.safetensors")
    assert read_weights(tmp_path)["w"].tolist() == [2.0]
    other = Best(tmp_path, weights)
    other.load(state)
    other.look(stop)  # a mean of 2
    assert other.mean == 3.0
    assert other.state()["weights"]["w"].tolist() == [2.0]
