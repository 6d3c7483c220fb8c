"""Published scores on Atari-100k: the data file of this package, which says where each figure comes from."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastdqn.envs.scores import human_normalised
from fastdqn.tools.sweep.plan import PUBLISHED

REFERENCES = ("random", "human")
"""Which of them are no agents: the ends of the scale."""
ENV_STEPS = 100_000
"""Of every agent there."""
GAMES = 100
"""Of an evaluation."""


class Published(NamedTuple):
    """What is known of an agent."""

    key: str
    label: str
    mark: str  # R, 2 or M: how the figures were come by (`about`)
    source: str
    runs: int | None  # a game; None where only means were published
    of_runs: dict[str, float]  # aggregates over them, as far as they are known
    cost: str | None
    cost_mark: str | None
    scores: dict[str, float]  # raw means by ROM

    def normalised(self, games: tuple[str, ...]) -> dict[str, NDArray[np.float64]]:
        """Return the normalised means in these games, one each."""
        return {game: np.array([normalised(game, self.scores[game])]) for game in games}


@cache
def published() -> dict[str, Published]:
    """Return all that the data file holds, by key, random and human first."""
    said = _said()["agents"]
    return {key: Published(key, **one) for key, one in said.items()}


def about() -> str:
    """Return what the data file says of itself: the protocol, and what its marks mean."""
    return str(_said()["about"])


def normalised(game: str, score: float) -> float:
    """Return a score as 0 for random play and 1 for a person; KeyError if `game` is none of the 26."""
    found = human_normalised(game, score)
    if found is None:
        raise KeyError(game)
    return found


@cache
def _said() -> dict[str, Any]:
    return json.loads(Path(PUBLISHED).read_text(encoding="utf-8"))
