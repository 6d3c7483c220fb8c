"""Proximal policy optimisation in two places: who plays, and what a trainer does with a rollout."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fastdqn.algorithms.ppo import PolicySamples, PPOLearner, Rollout
from fastdqn.algorithms.rollouts import RolloutPlayer
from fastdqn.schedules import linear
from fastdqn.states import NothingUnfinished
from fastdqn.types import EpisodeEnd, Made


class Sent(NamedTuple):
    """A rollout, and the version of the weights that it was played with."""

    rollout: Rollout
    version: int

    @property
    def env_steps(self) -> int:
        """Samples in it."""
        return self.rollout.env_steps

    @property
    def episodes(self) -> tuple[EpisodeEnd, ...]:
        """Games that have finished."""
        return self.rollout.episodes


class RolloutSender:
    """Plays N games rollout by rollout, each with weights of one version.

    Args:
        player: of the games, with weights of its own.
    """

    def __init__(self, player: RolloutPlayer) -> None:
        self.num_envs = player.num_envs
        self._player = player
        self.state, self.load, self.discard = player.state, player.load, player.discard

    def play(self, env_steps: int, version: int) -> Sent:  # noqa: ARG002 - its actions are drawn from the first one on
        """Play a rollout with the weights of this version."""
        return Sent(self._player.rollout(), version)


class RolloutWork(NothingUnfinished):
    """Learns from a rollout until it has been learnt from often enough, then from the next one.

    What waits while a checkpoint is made is not part of it.

    Args:
        learner: on its device.
        batch_size: samples of an update.
        epochs: times that each sample is learnt from.
        learning_rate: at the start.
        decay: env steps over which the learning rate falls to 0; None or 0 for never.
    """

    name = "work"
    """Of this part in checkpoints."""

    def __init__(
        self, learner: PPOLearner, batch_size: int, epochs: int, learning_rate: float, decay: int | None
    ) -> None:
        self._learner = learner
        self._batch_size, self._epochs = batch_size, epochs
        self._learning_rate, self._decay = learning_rate, decay
        self._waiting: deque[Sent] = deque()
        self._batches: Iterator[PolicySamples] = iter(())
        self._foreseen = torch.tensor(0.0)
        self._left = 0  # batches
        self._version = 0  # with which the rollout of now was played
        self._made = 0
        self.env_steps = 0
        """Of the rollouts so far, the one that is learnt from among them."""

    def take(self, item: Sent) -> None:
        """Keep a rollout until it is its turn."""
        if item.env_steps:
            self._waiting.append(item)

    def due(self) -> bool:
        """Tell whether there is anything left to learn from."""
        return self._left > 0 or bool(self._waiting)

    def update(self) -> Made | None:
        """Make one update, or none and be done with the rollout, if the learner is stopped. How many updates older than
        these the weights were that played is `policy_age`.
        """
        if self._left == 0:
            self._begin(self._waiting.popleft())
        batch = next(self._batches)
        metrics = self._learner.update(batch)
        if self._learner.stopped:
            self._left = 0
            return None
        age = torch.tensor(float(self._made - self._version))
        self._left -= 1
        self._made += 1
        scalars = {**metrics.scalars, "explained_variance": self._foreseen, "policy_age": age}
        return Made(scalars, len(batch.action))

    def state(self) -> dict[str, Any]:
        """Return how far it is."""
        return {"env_steps": self.env_steps + sum(sent.env_steps for sent in self._waiting)}

    def load(self, state: Mapping[str, Any]) -> NDArray[np.bool_] | None:
        """Continue from there."""
        self.env_steps = state["env_steps"]

    def _begin(self, sent: Sent) -> None:
        if self._decay:
            self._learner.set_learning_rate(linear(self.env_steps, self._learning_rate, 0.0, self._decay))
        self._version, self.env_steps = sent.version, self.env_steps + sent.env_steps
        self._foreseen = sent.rollout.explained_variance()
        self._left = self._epochs * sent.rollout.batches(self._batch_size)
        self._batches = sent.rollout.minibatches(self._batch_size, self._epochs, self._learner.order)
