"""When a run is over: solved, or at one of its limits."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

WINDOW_EPISODES = 100  # "solved" looks at the mean score of this many games
NEVER = 1 << 62  # the number of a game that does not begin


@dataclass(frozen=True)
class Limits:
    """What ends a run besides a signal.

    `deadline` is on the clock of `time.monotonic`, which counts from when the machine was started, so that it is the
    same in every process, and which nobody sets.
    """

    stop_score: float | None
    max_env_steps: int | None
    deadline: float | None


class StopTest:
    """Keeps the scores of the last 100 games and says when and why the run is over.

    Games count in the order in which they began: each one once all that began before it are over. Of many games at once
    the first to end are the short ones, and counting them as they end would count more of these.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.episodes = 0
        """Games that have finished."""
        self._scores: deque[float] = deque(maxlen=WINDOW_EPISODES)
        self._playing = [0]  # numbers, in the order of beginning, of the games that are being played at once
        self._begun = 1  # games that have begun
        self._waiting: dict[int, float] = {}  # scores of games that have finished before an older one, by number
        self._looked = 0  # the oldest game that may wait
        self._oldest: int | None = 0  # of those that are being played; None where it is yet to be looked for

    def state(self) -> dict[str, Any]:
        """Return the scores that count, and those that wait for a game that began before them."""
        waiting = [[number, score] for number, score in self._waiting.items()]
        counts = {"episodes": self.episodes, "begun": self._begun, "playing": list(self._playing)}
        return {**counts, "scores": list(self._scores), "waiting": waiting}

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from there."""
        self.episodes, self._begun = state["episodes"], state["begun"]
        self._playing = list(state["playing"])
        for place in [i for i, number in enumerate(self._playing) if number == NEVER]:  # they may play on now
            self._playing[place], self._begun = self._begun, self._begun + 1
        self._scores = deque(state["scores"], maxlen=WINDOW_EPISODES)
        self._waiting = {int(number): score for number, score in state["waiting"]}
        self._looked = min(*self._playing, *self._waiting, self._begun)
        self._oldest = None

    def discard(self, envs: NDArray[np.bool_] | None) -> None:
        """Take note that the unfinished games of these places, (N,), are gone, and others have begun there."""
        if envs is not None:
            self.play(max(len(envs), len(self._playing)))  # those of other ranks stand behind one's own
            for place in np.flatnonzero(envs).tolist():
                self._begin(place)

    def begin_anew(self, places: Sequence[int], rank: int, ranks: int) -> None:
        """Take note that the unfinished games of a rank, of so many that play as many games each, are gone, and others
        have begun at these places among its own. Before anybody has played, none were going on.
        """
        each = len(self._playing) // ranks
        for place in places if each > max(places, default=0) else ():
            self._begin(rank * each + place)

    def play(self, count: int) -> None:
        """Take note of how many games are played at once; before the first of them ends."""
        if len(self._playing) != count:
            self._playing, self._begun, self._looked, self._oldest = list(range(count)), count, 0, 0

    def add(self, score: float, place: int = 0) -> int:
        """Count the raw score of the game that finished at `place` of those played at once, where the next one begins.

        Returns:
            the number of the finished game in the order in which games began, from 1 on.
        """
        self.episodes += 1
        number = self._playing[place]
        self._waiting[number] = score
        self._begin(place)
        return number + 1

    def leave(self, places: range) -> None:
        """Take note that nobody plays at these places any more: no game waits for the unfinished ones there."""
        for place in places:
            self._playing[place] = NEVER
        self._count_waiting()

    def _begin(self, place: int) -> None:
        over = self._playing[place]
        self._playing[place] = self._begun
        self._begun += 1
        if self._oldest in (over, None):  # else the oldest is still played, and the same games wait for it
            self._count_waiting()

    def _count_waiting(self) -> None:
        oldest = min(*self._playing, self._begun)
        for number in range(self._looked, oldest):
            if number in self._waiting:
                self._scores.append(self._waiting.pop(number))
        self._looked, self._oldest = max(self._looked, oldest), oldest

    @property
    def mean_score(self) -> float | None:
        """Mean raw score of the last 100 games (of fewer while there are fewer; None before the first)."""
        return sum(self._scores) / len(self._scores) if self._scores else None

    @property
    def whole(self) -> bool:
        """Whether so many games count that `mean_score` is of 100."""
        return len(self._scores) == WINDOW_EPISODES

    @property
    def solved(self) -> bool:
        """Whether 100 games count and their mean is above the stop score."""
        mean, bound = self.mean_score, self.limits.stop_score
        return bound is not None and mean is not None and self.whole and mean > bound

    def reason(self, env_steps: int) -> str | None:
        """Return why the run is over after `env_steps`, or None while it is not."""
        if self.solved:
            return "solved"
        if self.limits.max_env_steps is not None and env_steps >= self.limits.max_env_steps:
            return "max-env-steps"
        if self.limits.deadline is not None and time.monotonic() >= self.limits.deadline:
            return "max-minutes"
        return None
