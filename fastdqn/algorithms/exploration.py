"""Exploration: from observations to actions, and a player that turns actions into transitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastdqn.envs.build import PlayEnv
from fastdqn.envs.rerun import Rerun
from fastdqn.options.dqn import DQNOptions
from fastdqn.replay.nstep import NStep
from fastdqn.schedules import linear_epsilon
from fastdqn.seeds import set_state, state_of
from fastdqn.states import NothingUnfinished
from fastdqn.types import Observation, PlayedStep


class Policy(Protocol):
    """Chooses an action for one observation."""

    def act(self, obs: Observation, epsilon: float) -> int: ...

    def state(self) -> dict[str, Any]: ...

    def load(self, state: Mapping[str, Any]) -> None: ...


class _Exploring(NothingUnfinished):
    """A policy whose state is its random numbers."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def state(self) -> dict[str, Any]:
        """Return where the random numbers stand."""
        return {"rng": state_of(self._rng)}

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue the random numbers from there."""
        set_state(self._rng, state["rng"])


class EpsilonGreedy(_Exploring):
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
        super().__init__(rng)

    def act(self, obs: Observation, epsilon: float) -> int:
        """Return an action in [0, A) for one observation (C, H, W)."""
        if self._rng.random() < epsilon:
            return int(self._rng.integers(self._num_actions))
        with torch.inference_mode():
            batch = torch.from_numpy(np.asarray(obs)).unsqueeze(0).to(self._device)  # (1, C, H, W)
            return int(self._network(batch).argmax(dim=1).item())


class Player(NothingUnfinished):
    """Plays one environment, one env step at a time, and resets it when an episode is over.

    Each game has a seed of its own, the first one `seed`.
    """

    def __init__(self, env: PlayEnv, policy: Policy, n_step: NStep, seed: int) -> None:
        self._env = Rerun(env, seed)
        self._policy = policy
        self._n_step = n_step
        self._obs: Observation = self._env.reset()

    def step(self, epsilon: float) -> PlayedStep:
        """Play one env step; return the transitions and finished games that come of it."""
        obs = self._obs
        action = self._policy.act(obs, epsilon)
        next_obs, reward, terminated, truncated = self._env.step(action)
        transitions = self._n_step.add(obs, action, reward, next_obs, terminated, truncated)
        if terminated or truncated:
            next_obs = self._env.reset()
        self._obs = next_obs
        return PlayedStep(transitions, self._env.pop_finished())

    def state(self) -> dict[str, Any]:
        """Return the running game and where the policy's random numbers stand."""
        return {"game": self._env.state(), "policy": self._policy.state()}

    def load(self, state: Mapping[str, Any]) -> NDArray[np.bool_]:
        """Play the running game again, and continue from there; in a new game if it cannot be repeated. Return whether
        it is new, (1,).
        """
        self._n_step.reopen(())
        for action, obs, played in self._env.play_again(state["game"]):
            if played is not None:
                self._n_step.add(self._obs, action, played.reward, obs, played.terminated, played.truncated)
            self._obs = obs
        if not self._env.repeated:
            self._n_step.reopen(())
            self._obs = self._env.reset()
        self._policy.load(state["policy"])
        return np.array([not self._env.repeated])


def epsilon_at(env_step: int, dqn: DQNOptions) -> float:
    """Return the epsilon of env step `env_step` (the first is 1)."""
    return linear_epsilon(env_step, dqn.epsilon_start, dqn.epsilon_final, dqn.epsilon_decay, dqn.epsilon_delay)


Exploring = tuple[NDArray[np.bool_], NDArray[np.int64]]
"""Which of N games explore, and with which actions they do."""


class VectorEpsilonGreedy(_Exploring):
    """Epsilon-greedy actions for N games at once; one evaluation of the network serves them all.

    Args:
        greedy: returns the N actions of largest value for the newest observations; may be replaced by a faster way.
            It is not asked where all games explore, unless `always` says so.
        num_actions: A.
        rng: decides which games explore, and how.
    """

    def __init__(self, greedy: Callable[[], NDArray[np.int64]], num_actions: int, rng: np.random.Generator) -> None:
        self.greedy = greedy
        self.always = False
        self._num_actions = num_actions
        super().__init__(rng)

    def act(self, epsilon: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return N actions in [0, A), int64, for N probabilities to explore."""
        explore, actions = self.draw(epsilon)
        if explore.all() and not self.always:
            return actions
        return np.where(explore, actions, self.greedy())

    def draw(self, epsilon: NDArray[np.float64]) -> Exploring:
        """Return which of N games explore, for N probabilities, and with which actions: for `act`, and for whoever
        plays many rounds at once.
        """
        return self._rng.random(len(epsilon)) < epsilon, self._rng.integers(self._num_actions, size=len(epsilon))


def actions_for(act: Callable[[Tensor], Tensor], obs: Tensor) -> NDArray[np.int64]:
    """Return what `act` chooses for observations (N, C, H, W), the actions (N,); waits for the device."""
    return act(obs).cpu().numpy()


def epsilons_at(env_steps: int, num_envs: int, dqn: DQNOptions) -> NDArray[np.float64]:
    """Return the epsilons (N,) of the N env steps that follow after `env_steps`."""
    return np.array([epsilon_at(env_steps + i, dqn) for i in range(1, num_envs + 1)])
