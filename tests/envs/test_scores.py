"""Scores from random play to a person."""

from __future__ import annotations

import pytest

from fastdqn.envs.games import rom_names
from fastdqn.envs.scores import REFERENCES, human_normalised


def test_human_normalised_scores_reproduce_published_ones() -> None:
    """DQN of Wang et al. 2016, table 2 (raw) and what van Hasselt et al. 2015 call the normalised score."""
    assert human_normalised("breakout", 385.5) == pytest.approx(13.33, abs=0.01)
    assert human_normalised("pong", 19.5) == pytest.approx(1.139, abs=0.001)
    assert human_normalised("seaquest", 5860.6) == pytest.approx(0.138, abs=0.001)
    for name, reference in REFERENCES.items():
        assert human_normalised(name, reference.human) == 1.0
        assert human_normalised(name, reference.random) == 0.0
    assert len(REFERENCES) == 57
    assert set(REFERENCES) <= set(rom_names())
    assert human_normalised("catch", 1.0) is None
