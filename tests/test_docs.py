"""What the documents show works as it stands there."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fastdqn.algorithms.dqn import DQNLearner
from tests.helpers.learners import network, random_batch
from tests.helpers.scripts import ROOT


def test_the_worked_example_learns() -> None:
    """docs/new-idea.md: its code, with errors on both sides of 1."""
    text = (ROOT / "docs" / "new-idea.md").read_text(encoding="utf-8")
    code = text.split("```python\n")[1].split("```")[0]
    names: dict[str, Any] = {}
    exec(code, names)
    batch = random_batch(8)
    learner = DQNLearner(network(), network, objective=names["ClippedObjective"]())
    with torch.no_grad():
        goal = batch.reward + batch.discount * learner.target(batch.next_obs).max(dim=1).values
        delta = (goal - learner.network(batch.obs)[torch.arange(8), batch.action]).abs()
    by_hand = torch.where(delta < 1, delta**2 / 2, delta - 0.5).mean().item()
    assert (delta > 1).any()
    assert (delta < 1).any()
    assert learner.update(batch).scalars["loss"].item() == pytest.approx(by_hand, rel=1e-5)
