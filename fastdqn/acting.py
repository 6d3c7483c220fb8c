"""Acting: from observations to actions, and a player that turns actions into transitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import gymnasium
import numpy as np
import torch
from torch import Tensor

from fastdqn.config import DQNOptions, Options
from fastdqn.envs.make import spaces_of
from fastdqn.replay.nstep import NStep
from fastdqn.schedules import linear_epsilon
from fastdqn.seeding import as_int, seeds_of
from fastdqn.types import EpisodeEnd, Observation, PlayedStep


class Policy(Protocol):
    """Chooses an action for one observation."""

    def act(self, obs: Observation, epsilon: float) -> int: ...


class EpsilonGreedy:
    """A random action with probability epsilon, else the action of the largest value (Watkins 1989).

    The network is evaluated on `device` for the greedy actions only.
    """

    def __init__(
        self,
        network: Callable[[Tensor], Tensor],
        num_actions: int,
        device: torch.device,
        rng: np.random.Generator,
    ) -> None:
        self._network = network
        self._num_actions = num_actions
        self._device = device
        self._rng = rng

    def act(self, obs: Observation, epsilon: float) -> int:
        """Return an action in [0, A) for one observation (C, H, W)."""
        if self._rng.random() < epsilon:
            return int(self._rng.integers(self._num_actions))
        with torch.inference_mode():
            batch = torch.from_numpy(np.asarray(obs)).unsqueeze(0).to(self._device)  # (1, C, H, W)
            return int(self._network(batch).argmax(dim=1).item())


class Player:
    """Plays one environment, one env step at a time, and resets it when an episode is over."""

    def __init__(self, env: gymnasium.Env[Any, Any], policy: Policy, n_step: NStep, seed: int) -> None:
        self._env = env
        self._policy = policy
        self._n_step = n_step
        self._pop_finished: Callable[[], tuple[EpisodeEnd, ...]] = env.get_wrapper_attr("pop_finished")
        self._obs: Observation = env.reset(seed=seed)[0]

    def step(self, epsilon: float) -> PlayedStep:
        """Play one env step; return the transitions and finished games that come of it."""
        obs = self._obs
        action = self._policy.act(obs, epsilon)
        next_obs, reward, terminated, truncated, _ = self._env.step(action)
        transitions = self._n_step.add(obs, action, float(reward), next_obs, terminated, truncated)
        if terminated or truncated:
            next_obs, _ = self._env.reset()
        self._obs = next_obs
        return PlayedStep(transitions, self._pop_finished())


def make_player(
    env: gymnasium.Env[Any, Any],
    network: Callable[[Tensor], Tensor],
    device: torch.device,
    options: Options,
) -> Player:
    """Return the epsilon-greedy player of `env` that `options` describe; `network` lives on `device`."""
    seeds = seeds_of(options.run.seed)
    _, num_actions = spaces_of(env)
    policy = EpsilonGreedy(network, num_actions, device, np.random.default_rng(seeds.policy))
    return Player(env, policy, NStep(options.dqn.n_step, options.dqn.gamma), as_int(seeds.env))


def epsilon_at(env_step: int, dqn: DQNOptions) -> float:
    """Return the epsilon of env step `env_step` (the first is 1)."""
    return linear_epsilon(env_step, dqn.epsilon_start, dqn.epsilon_final, dqn.epsilon_decay)
