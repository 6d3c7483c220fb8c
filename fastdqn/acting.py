"""Acting: from observations to actions, and a player that turns actions into transitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastdqn.config import DQNOptions, Options
from fastdqn.envs.classic import LazyFrames
from fastdqn.envs.frames import FrameStore
from fastdqn.envs.make import spaces_of
from fastdqn.replay.nstep import NStep
from fastdqn.schedules import linear_epsilon
from fastdqn.seeding import as_int, seeds_of
from fastdqn.types import EpisodeEnd, Frame, Observation, PlayedStep, Transition, VectorStep


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


class VectorEpsilonGreedy:
    """Epsilon-greedy actions for N games at once; one evaluation of the network serves them all.

    Args:
        greedy: returns the N actions of largest value for the newest observations.
        num_envs: N.
        num_actions: A.
        rng: decides which games explore, and how.
    """

    def __init__(
        self, greedy: Callable[[], NDArray[np.int64]], num_envs: int, num_actions: int, rng: np.random.Generator
    ) -> None:
        self._greedy = greedy
        self._num_envs = num_envs
        self._num_actions = num_actions
        self._rng = rng

    def act(self, epsilon: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return N actions in [0, A), int64, for N probabilities to explore."""
        explore = self._rng.random(self._num_envs) < epsilon
        actions = self._rng.integers(self._num_actions, size=self._num_envs)
        if explore.all():
            return actions
        return np.where(explore, actions, self._greedy())


def greedy_actions(greedy: Callable[[Tensor], Tensor], obs: Tensor) -> NDArray[np.int64]:
    """Return what `greedy` chooses for observations (N, C, H, W), the actions (N,); waits for the device."""
    return greedy(obs).cpu().numpy()


def epsilons_at(env_steps: int, num_envs: int, dqn: DQNOptions) -> NDArray[np.float64]:
    """Return the epsilons (N,) of the N env steps that follow after `env_steps`."""
    return np.array([epsilon_at(env_steps + i, dqn) for i in range(1, num_envs + 1)])


class GameStacks:
    """Turns the steps of N games into stacks to act on and transitions for a list replay; each frame is kept once."""

    def __init__(self, frames: Frame, stack: int, n_step: int, gamma: float) -> None:
        count, height, width = frames.shape
        self._store = FrameStore((1, height, width))
        self._blank: Frame = np.zeros((1, height, width), np.uint8)  # stands before a game's first frame
        self._stack = stack
        self._windows = [NStep(n_step, gamma) for _ in range(count)]
        self._obs = [self._first(frame) for frame in frames]

    def obs(self) -> Frame:
        """Return the newest observations, (N, C, H, W) uint8."""
        return np.stack([np.asarray(obs) for obs in self._obs])

    def add(self, actions: NDArray[np.int64], step: VectorStep) -> list[Transition]:
        """Take one step of the games; return the transitions that it completes."""
        transitions: list[Transition] = []
        for i, frame in enumerate(step.frames):
            if step.reset[i]:
                self._obs[i] = self._first(frame)
                continue
            obs = self._obs[i]
            self._obs[i] = after = LazyFrames((*obs.frames[1:], self._kept(frame)))
            transitions += self._windows[i].add(
                obs, int(actions[i]), float(step.reward[i]), after, bool(step.terminated[i]), bool(step.truncated[i])
            )
        return transitions

    def _first(self, frame: Frame) -> LazyFrames:
        return LazyFrames((*[self._blank] * (self._stack - 1), self._kept(frame)))

    def _kept(self, frame: Frame) -> Frame:
        kept = self._store.new()
        kept[0] = frame
        return kept
