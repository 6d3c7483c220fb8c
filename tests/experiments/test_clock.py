"""The clock's rules, on Pong itself: the hundred games of a record are a hundred different games."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from fastdqn import process
from fastdqn.algorithms import freeze_trial
from fastdqn.algorithms.dqn import DQNLearner
from fastdqn.envs.vector import AtariVector
from fastdqn.types import VectorStep
from tests.helpers.scripts import records, summary, train

FROZEN = (
    *(
        "--device",
        "cpu",
        "--network",
        "narrow",
        "--freeze-slack",
        "1",
        "--replay-initial",
        "1100",
        "--replay-size",
        "5008",
    ),
    *("--no-crop", "--frame-size", "84"),  # as `follow` reads them
    *("--max-frames", "3600", "--checkpoint-minutes", "None", "--threads", "1"),
)


def follow(frames: np.ndarray) -> np.ndarray:
    """Actions (N,) of a player that moves its paddle to the height of the ball, from frames (N, 84, 84)."""
    lit = np.abs(frames[:, 14:77].astype(np.int16) - 87) > 30
    rows = np.arange(lit.shape[1])

    def height(columns: slice) -> np.ndarray:
        there = lit[:, :, columns].any(axis=2)
        return (there * rows).sum(axis=1) / np.maximum(there.sum(axis=1), 1)

    own, ball = height(slice(73, 76)), height(slice(14, 72))
    return np.where(ball < own - 1, 2, np.where(ball > own + 1, 3, 1))


class Scorer:
    """Takes down at which env step of each game a point was scored, and by whom."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.games: list[tuple[tuple[int, float], ...]] = []
        self.points: dict[tuple[int, int], list[tuple[int, float]]] = {}
        self.time: dict[tuple[int, int], int] = {}
        recv = AtariVector.recv

        def noted(games: AtariVector) -> VectorStep:
            step = recv(games)
            for i in range(games.num_envs):
                place = (id(games), i)
                if step.reset[i]:
                    self.games.append(tuple(self.points.pop(place, [])))
                    self.time[place] = 0
                self.time[place] = self.time.get(place, 0) + 1
                if step.reward[i]:
                    self.points.setdefault(place, []).append((self.time[place], float(step.reward[i])))
            return step

        monkeypatch.setattr(AtariVector, "recv", noted)


@pytest.mark.slow
def test_a_frozen_agents_hundred_games_are_different_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """11 as it is, with an agent that always acts in the same way and is frozen after the first point."""
    monkeypatch.setattr(freeze_trial, "POINTS", 1)
    monkeypatch.setattr(freeze_trial, "LIMIT", -float("inf"))

    def values(obs: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.one_hot(torch.from_numpy(follow(obs[:, -1].numpy())), 6)

    monkeypatch.setattr(DQNLearner, "act", lambda _, obs, __=None: values(obs).argmax(dim=1))
    monkeypatch.setattr(DQNLearner, "still_values", lambda _: values)
    monkeypatch.setattr(process, "cores", lambda: 1)  # so that all games are played here
    scorer = Scorer(monkeypatch)
    run = train("11_pong_in_seconds", tmp_path, *FROZEN, "--stop-score", "-22", "--fresh-games", "0")
    result, episodes = summary(run), records(run, "episodes.jsonl")
    assert result["reason"] == "solved"
    counted = [line for line in episodes if line["began"] > result["episodes"] - 100]
    assert min(line["epsilon"] for line in episodes) >= 0.02
    assert len(counted) >= 84  # of 16 at once those that began last have not ended
    assert len(scorer.games) >= 100
    assert len(set(scorer.games[-100:])) >= 90
    trials = [report for report in records(run, "reports.jsonl") if "freeze/frozen" in report]
    assert trials[-1]["freeze/frozen"] == 1.0
    assert result["updates"] < 60  # nothing was learnt meanwhile
