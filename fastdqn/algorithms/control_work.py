"""Soft actor-critic in two places: who plays, and what a trainer does, which stores steps and updates at their pace."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastdqn.algorithms.sac import ControlPolicy, SACLearner
from fastdqn.envs.vector import VectorEnv
from fastdqn.replay.boxes import BoxReplay
from fastdqn.types import EpisodeEnd, Made, VectorStep


class Acted(NamedTuple):
    """A step of N games, and the actions that led to it."""

    actions: NDArray[np.float32]  # (N, A)
    step: VectorStep

    @property
    def env_steps(self) -> int:
        """Games that were not reset in it."""
        return len(self.step.reset) - int(self.step.reset.sum())

    @property
    def episodes(self) -> tuple[EpisodeEnd, ...]:
        """Games that have finished."""
        return self.step.episodes


class ControlPlayer:
    """Plays N games step by step.

    Args:
        games: N of them.
        policy: that plays.
    """

    def __init__(self, games: VectorEnv, policy: ControlPolicy) -> None:
        self.num_envs = games.num_envs
        self._games, self._policy = games, policy

    def play(self, env_steps: int, version: int) -> Acted:  # noqa: ARG002 - a replay does not ask who has played
        """Play a step of all games, after so many env steps."""
        actions = self._policy.act(self._games.newest, env_steps)
        self._games.send(actions)
        return Acted(actions, self._games.recv())

    def state(self) -> dict[str, Any]:
        """Return the running games, and where the random numbers of the actions stand."""
        return {"games": self._games.state(), "policy": self._policy.state()}

    def load(self, state: Mapping[str, Any]) -> NDArray[np.bool_]:
        """Continue from there; return which games, (N,), begin anew."""
        self._policy.load(state["policy"])
        return self._games.load(state["games"])

    def discard(self, envs: NDArray[np.bool_] | None) -> None:
        """Drop nothing: what is unfinished is the replay's."""


class ControlWork:
    """Stores steps and learns from the replay. As a part of checkpoints it is the replay: who leaves that out begins to
    count anew, and plays as long before the next update as at first.

    Args:
        learner: on its device.
        replay: of the games, which has their first observations.
        batch_size: transitions of an update.
        every: env steps for each update; less than 1 for several updates an env step.
        initial: env steps before the first update.
    """

    name = "replay"
    """Of this part in checkpoints."""

    def __init__(self, learner: SACLearner, replay: BoxReplay, batch_size: int, every: float, initial: int) -> None:
        self._learner = learner
        self._replay = replay
        self._batch_size = batch_size
        self._every, self._initial = every, initial
        self.env_steps = self.updates = 0  # since the replay was empty

    def take(self, item: Acted) -> None:
        """Store a step of the games."""
        self._replay.add(item.actions, item.step)
        self.env_steps += item.env_steps

    def due(self) -> bool:
        """Tell whether so many env steps allow another update. The first comes with `initial` env steps where there is
        one for each.
        """
        return self.updates < math.floor((self.env_steps - self._initial + 1) / self._every)

    def update(self) -> Made:
        """Make one update."""
        metrics = self._learner.update(self._replay.sample(self._batch_size))
        self.updates += 1
        return Made(metrics.scalars, self._batch_size)

    def state(self) -> dict[str, Any]:
        """Return the replay, and how far it is."""
        return {"env_steps": self.env_steps, "updates": self.updates, "replay": self._replay.state()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from there."""
        self.env_steps, self.updates = state["env_steps"], state["updates"]
        self._replay.load(state["replay"])

    def discard(self, envs: NDArray[np.bool_] | None) -> None:
        """Drop what is unfinished of these games, (N,), which begin anew; everything with None."""
        self._replay.discard(envs)
        if envs is None:
            self.env_steps = self.updates = 0
