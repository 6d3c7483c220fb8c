"""Freeze trials: an agent that wins is left as it is, for as long as it continues to win."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from fastdqn.algorithms.decay_start import DecayStart
from fastdqn.states import NothingUnfinished
from fastdqn.types import VectorStep

POINTS = 24
"""Points that the learning agent must have played since it was last frozen, which say whether to freeze it now."""
LIMIT = -2.5
"""Log-likelihood ratio at which a policy learns again; so do at most one in twelve good ones (e^-2.5)."""
GOOD, BAD = 0.6, 1.5
"""Points that a good and a bad policy lose, for each one that a policy between them loses."""


class FreezeTrial(NothingUnfinished):
    """Stops learning while the agent wins nearly every point, and lets it learn again as soon as it no longer does.

    The score of an agent that plays well wanders while it learns on: each update leaves one good policy for another,
    which may be worse. So once it has won many of its last points it is frozen, as a trial: Wald's sequential
    probability ratio test (1945, "Sequential Tests of Statistical Hypotheses"), without its upper bound, of a policy
    that loses few points against one that loses many. The more a policy wins beyond the share asked for, the likelier
    it stays frozen until the run is over; the less it wins, the fewer points are played before it learns again.

    A point is a reward, won if it is above 0 and lost if it is below. Where none was ever lost nothing is frozen: it
    may be a game in which none can be.

    Args:
        share: of its points that a policy must win so that the test leans neither way; None never to freeze one.
        slack: how much less the share of its last points may be for a trial, which costs little.
        decay_share: of its points that a learning agent must win for a decay to begin; None for one that has begun.
    """

    def __init__(self, share: float | None, slack: float = 0.15, decay_share: float | None = None) -> None:
        self.frozen = False
        self.decay = DecayStart(decay_share)
        self.trials = 0  # so far
        self.won = self.lost = 0  # by the newest of them
        self.frozen_env_steps = 0  # that frozen agents have played
        self._recent: deque[bool] = deque(maxlen=POINTS)
        self._can_lose = False
        self._least = 2.0 if share is None else share - slack
        self._gain, self._loss = (0.0, 0.0) if share is None else evidence(share)

    @property
    def ratio(self) -> float:
        """Log-likelihood ratio of the newest policy that was frozen."""
        return self.won * self._gain + self.lost * self._loss

    def observe(self, steps: Sequence[VectorStep]) -> bool:
        """Take the newest step, or several that were played by an agent that was frozen all the time; from now on
        `frozen` says whether the agent is.

        Returns:
            whether that has changed.
        """
        won = sum(int((step.reward > 0).sum()) for step in steps)
        lost = sum(int((step.reward < 0).sum()) for step in steps)
        before = self.frozen
        self.frozen_env_steps += before * sum(int((~step.reset).sum()) for step in steps)
        self._can_lose |= lost > 0
        if self.frozen:
            self.won += won
            self.lost += lost
            self.frozen = self.ratio >= LIMIT
        else:
            self.decay.observe(steps)
            self._recent.extend([True] * won + [False] * lost)
            if self._can_lose and len(self._recent) == POINTS and sum(self._recent) / POINTS >= self._least:
                self.frozen = True
                self.trials += 1
                self.won = self.lost = 0
                self._recent.clear()
        return self.frozen != before

    def report(self) -> dict[str, float]:
        """Return scalars by their names in TensorBoard: trials so far, whether one goes on now, env steps in them,
        and of the newest of them its points and the share that it has won, once it has a point.
        """
        scalars = {"freeze/trials": float(self.trials), "freeze/frozen": float(self.frozen)}
        scalars["freeze/env_steps"] = float(self.frozen_env_steps)
        points = self.won + self.lost
        return {**scalars, "freeze/points": float(points), "freeze/share": self.won / points} if points else scalars

    def state(self) -> dict[str, Any]:
        """Return what is known of the agent's points."""
        counts = {"frozen": self.frozen, "trials": self.trials, "won": self.won, "lost": self.lost}
        counts["env_steps"] = self.frozen_env_steps
        recent = [int(won) for won in self._recent]
        return {**counts, "can_lose": self._can_lose, "recent": recent, "decay": self.decay.state()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from there."""
        self.frozen, self._can_lose = bool(state["frozen"]), bool(state["can_lose"])
        self.trials, self.won, self.lost = int(state["trials"]), int(state["won"]), int(state["lost"])
        self.frozen_env_steps = int(state["env_steps"])
        self._recent = deque((bool(won) for won in state["recent"]), maxlen=POINTS)
        self.decay.load(state["decay"])


def evidence(share: float) -> tuple[float, float]:
    """Return what a won and a lost point add to the log-likelihood ratio of a good policy against a bad one.

    The good one loses 0.6 and the bad one 1.5 times the points that `share`, above 1/3 and below 1, leaves to lose; a
    policy that wins just `share` adds nearly nothing on average where that is 0.7 or more.
    """
    lost = 1.0 - share
    return math.log((1.0 - GOOD * lost) / (1.0 - BAD * lost)), math.log(GOOD / BAD)
