"""The moment from which a learning rate falls: when the agent wins."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from fastdqn.states import NothingUnfinished
from fastdqn.types import VectorStep

POINTS = 100
"""Newest points of the agent that say whether a decay begins."""


class DecayStart(NothingUnfinished):
    """Counts env steps from the moment on at which the agent has won a share of its newest points.

    A learning rate that falls at a fixed env step is small before a slow run has found out how to win. This one waits.

    A point is a reward, won if it is above 0 and lost if it is below.

    Args:
        share: of its last `POINTS` points that the agent must win; None to count from the first env step on.
    """

    def __init__(self, share: float | None) -> None:
        self._share = share
        self._recent: deque[bool] = deque(maxlen=POINTS)
        self._begun = False
        self._env_steps = 0  # since then

    def observe(self, steps: Sequence[VectorStep]) -> None:
        """Take the newest steps of an agent that learns."""
        if self._begun:
            self._env_steps += sum(int((~step.reset).sum()) for step in steps)
        elif self._share is not None:
            for step in steps:
                self._recent.extend((step.reward[step.reward != 0.0] > 0.0).tolist())
            self._begun = len(self._recent) == POINTS and sum(self._recent) / POINTS >= self._share

    def elapsed(self, env_steps: int) -> int:
        """Return how many env steps the decay has gone on for, after so many env steps in all."""
        return env_steps if self._share is None else self._env_steps

    def state(self) -> dict[str, Any]:
        """Return what is known of the agent's points."""
        recent = [int(won) for won in self._recent]
        return {"recent": recent, "begun": self._begun, "env_steps": self._env_steps}

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from there."""
        self._recent = deque((bool(won) for won in state["recent"]), maxlen=POINTS)
        self._begun, self._env_steps = bool(state["begun"]), int(state["env_steps"])
