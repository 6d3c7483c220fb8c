"""What the documents show works as it stands there."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from fastdqn.algorithms.dqn import DQNLearner
from tests.helpers.learners import network, random_batch
from tests.helpers.scripts import ROOT


def test_the_worked_example_learns() -> None:
    """docs/new-idea.md: its code, by the paper's formulas."""
    text = (ROOT / "docs" / "new-idea.md").read_text(encoding="utf-8")
    code = text.split("```python\n")[1].split("```")[0]
    names: dict[str, Any] = {}
    exec(code, names)
    batch = random_batch(8)
    learner = DQNLearner(network(), network, objective=names["SquashedObjective"]())
    with torch.no_grad():
        best = learner.target(batch.next_obs).max(dim=1).values.double()
        value = learner.network(batch.obs)[torch.arange(8), batch.action].double()
    ahead = [math.copysign((abs(q) + 1) ** 2 - 1, q) for q in best.tolist()]
    returns = [r + d * g for r, d, g in zip(batch.reward.tolist(), batch.discount.tolist(), ahead, strict=True)]
    goals = [math.copysign(math.sqrt(abs(g) + 1) - 1, g) for g in returns]
    by_hand = sum((goal - q) ** 2 for goal, q in zip(goals, value.tolist(), strict=True)) / 8
    assert any(g > 0 for g in returns)
    assert any(g < 0 for g in returns)
    assert learner.update(batch).scalars["loss"].item() == pytest.approx(by_hand, rel=1e-5)
