"""Pieces of experience: many games, played by an actor-critic, and what it learns from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastdqn.algorithms.a2c import A2CLearner, Policy
from fastdqn.algorithms.exploration import actions_for
from fastdqn.algorithms.returns import bootstrapped_returns
from fastdqn.envs.vector import VectorEnv
from fastdqn.replay.stacks import GameStacks
from fastdqn.replay.transitions import collate
from fastdqn.states import copied, set_generator
from fastdqn.types import EpisodeEnd, Piece, Samples, SentGradient, Transition


class PiecePlayer:
    """Plays N games at once, and yields pieces of samples whose returns are bootstrapped.

    Every env step begins a window of n env steps, or fewer at the end of an episode. Once a piece is complete, its
    windows are bootstrapped with the values of now.

    Args:
        games: N of them.
        stacks: for these games, which also makes the windows.
        policy: that plays.
        size: B, samples of a piece.
    """

    def __init__(self, games: VectorEnv, stacks: GameStacks, policy: Policy, size: int) -> None:
        self.num_envs = games.num_envs
        self._games = games
        self._stacks = stacks
        self._policy = policy
        self._size = size
        self._windows: list[Transition] = []  # complete, and in no piece yet
        stacks.reset(games.reset())

    def piece(self) -> Piece:
        """Play until there are B more samples, and return them."""
        env_steps = 0
        episodes: tuple[EpisodeEnd, ...] = ()
        while len(self._windows) < self._size:
            obs = torch.from_numpy(self._stacks.obs()).to(self._policy.device)
            actions = actions_for(self._policy.act, obs)
            self._games.send(actions)
            step = self._games.recv()
            self._windows += self._stacks.add(actions, step)
            env_steps += len(step.reset) - int(step.reset.sum())
            episodes += step.episodes
        batch = collate(self._windows[: self._size], self._policy.device)
        del self._windows[: self._size]
        target = bootstrapped_returns(batch.reward, batch.discount, self._policy.values(batch.next_obs))
        obs, action, target = (tensor.cpu().numpy() for tensor in (batch.obs, batch.action, target))
        return Piece(obs, action, target, env_steps, episodes)

    def state(self) -> dict[str, Any]:
        """Return the running games, all windows, and where the random numbers of the actions stand."""
        windows = [
            (copied(np.asarray(one.obs)), one.action, one.reward, one.discount, copied(np.asarray(one.next_obs)))
            for one in self._windows
        ]
        parts = {"games": self._games.state(), "stacks": self._stacks.state()}
        return {**parts, "windows": windows, "noise": self._policy.noise.get_state()}

    def load(self, state: Mapping[str, Any]) -> NDArray[np.bool_]:
        """Continue from there; return which games, (N,), could not be repeated and begin anew."""
        anew = self._games.load(state["games"])
        self._stacks.load(state["stacks"])
        kept = self._stacks.kept
        self._windows = [
            Transition(kept(obs.numpy()), action, reward, discount, kept(next_obs.numpy()))
            for obs, action, reward, discount, next_obs in state["windows"]
        ]
        set_generator(self._policy.noise, state["noise"])
        return anew

    def discard(self, envs: NDArray[np.bool_] | None) -> None:
        """Drop the open windows of these games, (N,), which will not continue; everything with None."""
        self._stacks.discard(envs)
        if envs is None:
            self._windows.clear()


class GradientPlayer:
    """Plays N games at once, and learns from every piece with a descent that leaves the gradient to somebody else.

    Args:
        player: of the games.
        learner: of the same network, whose descent sends gradients away.
    """

    def __init__(self, player: PiecePlayer, learner: A2CLearner) -> None:
        self._player = player
        self._learner = learner
        self.state, self.load, self.discard = player.state, player.load, player.discard

    def piece(self) -> SentGradient:
        """Play until there are B more samples, and send their gradient away; return what is to be said of it."""
        piece = self._player.piece()
        metrics = self._learner.update(samples_of([piece], self._learner.device))
        scalars = {name: float(value) for name, value in metrics.scalars.items()}
        return SentGradient(scalars, piece.env_steps, piece.episodes)


def samples_of(pieces: Sequence[Piece], device: torch.device) -> Samples:
    """Return the samples of all pieces, one piece after the other, on `device`."""
    columns = ([piece[i] for piece in pieces] for i in range(len(Samples._fields)))
    return Samples._make(torch.from_numpy(np.concatenate(column)).to(device) for column in columns)
