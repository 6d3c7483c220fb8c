"""When a run is over: solved, or at one of its limits."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

WINDOW_EPISODES = 100  # "solved" looks at the mean score of this many finished games


@dataclass(frozen=True)
class Limits:
    """What ends a run besides a signal. `deadline` is on the clock of `time.time`, the same in every process."""

    stop_score: float | None
    max_env_steps: int | None
    deadline: float | None

    @staticmethod
    def of(
        stop_score: float | None, max_env_steps: int | None, max_minutes: float | None, process_start: float
    ) -> Limits:
        """Return these limits, minutes counted from `process_start`."""
        deadline = None if max_minutes is None else process_start + 60.0 * max_minutes
        return Limits(stop_score, max_env_steps, deadline)


class StopTest:
    """Keeps the scores of the last 100 finished games and says when and why the run is over."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.episodes = 0
        self._scores: deque[float] = deque(maxlen=WINDOW_EPISODES)

    def state(self) -> dict[str, Any]:
        """Return the scores that count."""
        return {"episodes": self.episodes, "scores": list(self._scores)}

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from there."""
        self.episodes = state["episodes"]
        self._scores = deque(state["scores"], maxlen=WINDOW_EPISODES)

    def add(self, score: float) -> None:
        """Count a finished game's raw score."""
        self.episodes += 1
        self._scores.append(score)

    @property
    def mean_score(self) -> float | None:
        """Mean raw score of the last 100 finished games (of fewer while there are fewer; None before the first)."""
        return sum(self._scores) / len(self._scores) if self._scores else None

    @property
    def solved(self) -> bool:
        """Whether 100 games have finished and their mean is above the stop score."""
        mean, bound = self.mean_score, self.limits.stop_score
        return bound is not None and mean is not None and len(self._scores) == WINDOW_EPISODES and mean > bound

    def reason(self, env_steps: int) -> str | None:
        """Return why the run is over after `env_steps`, or None while it is not."""
        if self.solved:
            return "solved"
        if self.limits.max_env_steps is not None and env_steps >= self.limits.max_env_steps:
            return "max-env-steps"
        if self.limits.deadline is not None and time.time() >= self.limits.deadline:
            return "max-minutes"
        return None
