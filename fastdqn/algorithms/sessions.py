"""Sessions of soft actor-critic: each plays, stores and learns by itself, and shares only what its descent shares."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fastdqn.algorithms.sac import ControlPolicy, SACLearner
from fastdqn.envs.vector import VectorEnv
from fastdqn.replay.boxes import BoxReplay
from fastdqn.schedules import updates_due
from fastdqn.seam import Group
from fastdqn.states import fetched
from fastdqn.steps import load_optimizer
from fastdqn.types import EpisodeEnd, SessionPiece

OWN = ("temperature",)
"""Groups of soft actor-critic of which each session has its own."""
PIECE = 32
"""Env steps after which a session says what it has done, unless that takes longer than `PIECE_SECONDS`."""
PIECE_SECONDS = 0.5
"""Whoever waits for all sessions to stand, say after Ctrl-C, does not wait long."""


class Joins(Protocol):
    """How a session's descent shares."""

    def refresh(self, groups: Sequence[Group]) -> None:
        """Let the session's weights be the shared ones as they are now."""
        ...

    def state(self) -> dict[str, Any]:
        """Return all that `load` needs."""
        ...

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from there."""
        ...


class Owned(NamedTuple):
    """What a session has for itself."""

    games: VectorEnv
    learner: SACLearner  # whose descent shares its steps
    replay: BoxReplay  # of these games
    policy: ControlPolicy  # that plays, with the learner's actor


class ControlSession:
    """One of several sessions: N games, a replay, target networks, a temperature and random numbers of its own.

    Args:
        build: makes what it has for itself, from the env steps that it has been counted with so far, 0 for a new run;
            random numbers follow from them.
        joins: the learner's descent.
        batch_size: transitions of an update.
        every: env steps for each update.
        initial: env steps before the first update.
        share: env steps that it is to make.
        keeps_replay: whether its state has the replay.
    """

    def __init__(
        self,
        build: Callable[[int], Owned],
        joins: Joins,
        batch_size: int,
        every: int,
        initial: int,
        share: float,
        keeps_replay: bool = True,
    ) -> None:
        self._build, self._joins = build, joins
        self._batch_size, self._every, self._initial = batch_size, every, initial
        self._share, self._keeps_replay = share, keeps_replay
        self._env_steps = 0
        self._updates = 0
        self._emptied_at = 0  # env steps at which the replay was last left empty
        self._new = True
        self._have(0)

    def piece(self) -> SessionPiece:
        """Play and learn for some env steps; return what is to be said of them."""
        if self._new:  # a run that is resumed has other weights now than when this process began
            self._joins.refresh(self._learner.groups())
            self._learner.follow()
            self._new = False
        begin, updates = self._env_steps, self._updates
        scalars: Mapping[str, Any] = {}
        episodes: list[EpisodeEnd] = []
        end, until = min(self._share, begin + PIECE), time.monotonic() + PIECE_SECONDS
        while self._env_steps < end and (self._env_steps == begin or time.monotonic() < until):
            before = self._env_steps
            actions = self._policy.act(self._games.newest, before)
            self._games.send(actions)
            step = self._games.recv()
            self._replay.add(actions, step)
            self._env_steps += len(step.reset) - int(step.reset.sum())
            episodes += step.episodes
            for _ in updates_due(before, self._env_steps, self._every, self._initial + self._emptied_at):
                scalars = self._learner.update(self._replay.sample(self._batch_size)).scalars
                self._updates += 1
        said = {name: float(value) for name, value in scalars.items()}
        played, done = self._env_steps - begin, self._env_steps >= self._share
        made = self._updates - updates
        return SessionPiece(said, played, self._env_steps, made, self._updates, tuple(episodes), done)

    def state(self) -> dict[str, Any]:
        """Return all that is this session's own; the optimisers of what it shares are not."""
        learner = self._learner.state()
        learner["optimizers"] = {name: learner["optimizers"][name] for name in OWN if name in learner["optimizers"]}
        return {
            "begun": self._begun,
            "env_steps": self._env_steps,
            "updates": self._updates,
            "emptied_at": self._emptied_at,
            "new": self._new,
            "games": self._games.state(),
            "learner": learner,
            "policy": self._policy.state(),
            "joins": self._joins.state(),
            "replay": fetched(self._replay.state()) if self._keeps_replay else None,
        }

    def load(self, state: Mapping[str, Any]) -> NDArray[np.bool_]:
        """Continue from there; return which games, (N,), begin anew.

        Where the state has `begun`, `env_steps` and `updates` alone, all do, and the session fills a new replay before
        it learns.
        """
        if state["begun"] != self._begun:
            self._have(state["begun"])
        self._env_steps, self._updates = state["env_steps"], state["updates"]
        if "games" not in state:
            self._emptied_at = self._env_steps
            return np.ones(self._games.num_envs, bool)
        self._emptied_at, self._new = state["emptied_at"], state["new"]
        self._learner.load_networks(state["learner"])
        for group in self._learner.groups():
            if group.name in OWN:
                load_optimizer(group.optimizer, state["learner"]["optimizers"][group.name])
        self._policy.load(state["policy"])
        self._joins.load(state["joins"])
        anew = self._games.load(state["games"])
        if state["replay"] is None:
            self._replay.discard(None)
            self._emptied_at = self._env_steps
        else:
            self._replay.load(state["replay"])
        return anew

    def discard(self, envs: NDArray[np.bool_] | None) -> None:
        """Drop what is unfinished of these games, (N,), which begin anew."""
        self._replay.discard(envs)

    def _have(self, begun: int) -> None:
        self._begun = begun
        self._games, self._learner, self._replay, self._policy = self._build(begun)
        self._replay.reset(self._games.reset())
