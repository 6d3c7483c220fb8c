"""An environment whose running game can be played again, up to where it is, in another process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from fastdqn.envs.build import PlayEnv
from fastdqn.seeds import game_seed
from fastdqn.states import copied
from fastdqn.types import EpisodeEnd, LazyFrames, Observation

RESET = -1
"""Stands, among the actions that were played, for a reset in the middle of a game."""
LONGEST = 1_000_000
"""Env steps of a game that are remembered: a longer one begins anew when a run is resumed, and so does one without an
end.
"""


class Played(NamedTuple):
    """What an env step yields."""

    obs: Observation
    reward: float
    terminated: bool
    truncated: bool


class Rerun:
    """Plays an environment, seeds each whole game anew, and remembers the actions since.

    Emulators cannot all be copied, but they repeat: the same seed and the same actions make the same game, sticky
    actions included.

    Args:
        env: yields whole games in `pop_finished`; a reset in the middle of a game (a lost life) continues it.
        seed: of the first game; the later ones' come from it.
    """

    def __init__(self, env: PlayEnv, seed: int) -> None:
        self.env = env
        self._seed = seed
        self._pop: Any = env.get_wrapper_attr("pop_finished")
        self._game = -1
        self._actions: list[Any] = []
        self._too_long = False  # the running game, whose actions are not kept any more
        self._obs: Observation = LazyFrames((np.zeros((1, 1, 1), np.uint8),))
        self._over = True
        self.repeated = True
        """Whether the game that was played again last was the same."""
        self._finished: tuple[EpisodeEnd, ...] = ()

    def reset(self) -> Observation:
        """Return the first observation of the next learning episode."""
        if not self._over:
            self._remember(RESET)
            return self._reset(None)
        self._game += 1
        self._actions.clear()
        self._too_long = False
        return self._reset(game_seed(self._seed, self._game))

    def step(self, action: Any) -> Played:
        """Play one env step, with the number of an action, or a continuous one (A,) float32."""
        self._remember(action)
        obs, reward, terminated, truncated, _ = self.env.step(action)
        self._obs = obs
        finished = self._pop()
        self._finished += finished
        self._over = bool(finished) and (terminated or truncated)
        return Played(obs, float(reward), terminated, truncated)

    def pop_finished(self) -> tuple[EpisodeEnd, ...]:
        """Return the games that have finished since the last call."""
        finished, self._finished = self._finished, ()
        return finished

    def state(self) -> dict[str, Any]:
        """Return which game this is, and what was played in it; of one that is too long, nothing that it could be
        recognised by.
        """
        return {
            "game": self._game,
            "actions": self._played(),
            "obs": torch.zeros(0) if self._too_long else copied(np.asarray(self._obs)),
        }

    def play_again(self, state: Mapping[str, Any]) -> Iterator[tuple[Any, Observation, Played | None]]:
        """Yield the running game's first observation, then for each thing that was done in it the action, the
        observation there is now, and what the env step yielded (None for a reset).

        If that is not the game that it was (`repeated`), the next reset begins a new one.
        """
        self._game, self._over = state["game"] - 1, True
        yield RESET, self.reset(), None
        said: Any = state["actions"]
        actions = said.numpy() if said.ndim == 2 else said.tolist()
        self.repeated = True
        ended = False
        for action in actions:
            again = said.ndim == 1 and action == RESET
            if ended != again:  # it ended when it had not, or the other way round
                self.repeated = False
                break
            if again:
                yield action, self.reset(), None
                ended = False
            else:
                played = self.step(action)
                ended = played.terminated or played.truncated
                yield action, played.obs, played
        self._finished = ()  # those were counted when they were played first
        self.repeated = self.repeated and np.array_equal(np.asarray(self._obs), state["obs"].numpy())
        self._over = self._over or not self.repeated

    def _remember(self, action: Any) -> None:
        if len(self._actions) == LONGEST:
            self._too_long = True
            self._actions.clear()
        if not self._too_long:
            self._actions.append(action.copy() if isinstance(action, np.ndarray) else action)  # the caller's may change

    def _played(self) -> torch.Tensor:
        """Return what was played in this game, (T,) int32, or of continuous actions, (T, A) float32; of one that is too
        long, nothing.
        """
        if self._actions and isinstance(self._actions[0], np.ndarray):
            return torch.from_numpy(np.stack(self._actions))
        return torch.tensor(self._actions, dtype=torch.int32)

    def _reset(self, seed: int | None) -> Observation:
        obs: Observation = self.env.reset(seed=seed)[0]
        self._finished += self._pop()  # games that ended among the no-ops
        self._over = False
        self._obs = obs
        return obs
