"""Steps of many games in which points are won and lost."""

from __future__ import annotations

import numpy as np

from fastdqn.types import VectorStep


def points(won: int, lost: int, worth: float = 1.0) -> VectorStep:
    """A step of many games, in which a point that is won is worth so much; three of them have no point, and one of
    these was reset.
    """
    reward = np.array([worth] * won + [-1.0] * lost + [0.0] * 3, np.float32)
    none = np.zeros(len(reward), bool)
    reset = none.copy()
    reset[-1] = True
    return VectorStep(np.zeros((len(reward), 1, 1), np.uint8), reward, none, none, reset, ())
