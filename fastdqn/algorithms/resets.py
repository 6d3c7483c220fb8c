"""Resets, and the horizon that grows after each: what happens between two updates (Schwarzer et al. 2023)."""

from __future__ import annotations

import numpy as np

from fastdqn.algorithms.dqn import DQNLearner
from fastdqn.options.dqn import DQNOptions
from fastdqn.options.resets import ResetOptions
from fastdqn.replay.windows import Windows
from fastdqn.schedules import geometric
from fastdqn.seeds import torch_generator


class Resets:
    """Resets a learner and moves a replay's horizon, by the number of updates alone, so that it resumes by itself.

    Args:
        dqn: the horizon in the end.
        options: when there are resets, and the horizon after each.
        seed: of the new weights, a number of the run.
    """

    def __init__(self, dqn: DQNOptions, options: ResetOptions, seed: int) -> None:
        self._options = options
        self._last = (dqn.n_step, dqn.gamma)
        gamma = dqn.gamma if options.first_gamma is None else options.first_gamma
        self._first = (options.first_n_step or dqn.n_step, gamma)
        self._seed = seed
        self._now: tuple[int, float] | None = None
        self.longest = max(self._first[0], dqn.n_step)
        """Env steps of the longest window."""

    def due(self, updates: int) -> bool:
        """Tell whether there is a reset after so many updates."""
        every, until = self._options.reset_updates, self._options.reset_until
        return every is not None and updates > 0 and updates % every == 0 and (until is None or updates <= until)

    def horizon(self, updates: int) -> tuple[int, float]:
        """Return n and gamma of the update that follows after so many.

        n, and 1 - gamma, are multiplied by the same factor in every update since the last reset.
        """
        every, until, over = self._options.reset_updates, self._options.reset_until, self._options.horizon_updates
        if every is not None:
            updates -= (updates if until is None else min(updates, until)) // every * every
        n_step = geometric(updates, self._first[0], self._last[0], over)
        if self._first[1] == self._last[1]:
            return round(n_step), self._last[1]
        return round(n_step), 1.0 - geometric(updates, 1.0 - self._first[1], 1.0 - self._last[1], over)

    def before(self, updates: int, learner: DQNLearner, windows: Windows) -> None:
        """Do what is due after so many updates, before the next one."""
        if self.due(updates):
            learner.reset(self._options.reset_keep, torch_generator(np.random.SeedSequence((self._seed, updates))))
        if self._first == self._last:
            return
        horizon = self.horizon(updates)
        if horizon != self._now:
            self._now = horizon
            windows.set_horizon(*horizon)
