"""N-step returns: one-step experience in, transitions over windows of n env steps out."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from fastdqn.types import Observation, Transition


class NStep:
    """Turns each env step into transitions over n env steps (Sutton 1988; Hessel et al. 2017, section 3).

    A window starts at every env step. It ends n env steps later or at the end of its episode, whichever is
    first; a shorter window of k env steps uses gamma^k, and no start near the end is lost. A terminated window has
    discount 0; a truncated one bootstraps with gamma^k from the last observation. No window crosses an end.

    Raises:
        ValueError: a window would have less than one env step.
    """

    def __init__(self, n: int, gamma: float) -> None:
        if n < 1:
            raise ValueError(f"a window has at least one env step, not {n}")
        self._n = n
        self._gamma = gamma
        self._window: deque[tuple[Observation, Any, float]] = deque()  # (obs, action, reward) of open windows

    def add(
        self, obs: Observation, action: Any, reward: float, next_obs: Observation, terminated: bool, truncated: bool
    ) -> tuple[Transition, ...]:
        """Take one env step; return the transitions that it completes, the oldest first."""
        if self._n == 1:
            return (Transition(obs, action, reward, 0.0 if terminated else self._gamma, next_obs),)
        self._window.append((obs, action, reward))
        completed: list[Transition] = []
        if len(self._window) == self._n:
            completed.append(self._oldest(next_obs, terminated))
        if terminated or truncated:
            while self._window:
                completed.append(self._oldest(next_obs, terminated))
        return tuple(completed)

    def window(self) -> tuple[tuple[Observation, int, float], ...]:
        """Return the open windows' (obs, action, reward), the oldest first."""
        return tuple(self._window)

    def reopen(self, window: Iterable[tuple[Observation, Any, float]]) -> None:
        """Have these windows open, instead of any other."""
        self._window = deque(window)

    def _oldest(self, next_obs: Observation, terminated: bool) -> Transition:
        obs, action, _ = self._window[0]
        total = 0.0
        for i, (_, _, reward) in enumerate(self._window):
            total += self._gamma**i * reward
        discount = 0.0 if terminated else self._gamma ** len(self._window)
        self._window.popleft()
        return Transition(obs, action, total, discount, next_obs)
