"""Rollouts: T steps of N games, with the advantages of what was done in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastdqn.algorithms.a2c import Policy
from fastdqn.algorithms.ppo import PolicySamples, Rollout, picked
from fastdqn.algorithms.returns import generalised_advantages
from fastdqn.envs.vector import VectorEnv
from fastdqn.replay.ring import FrameReplay
from fastdqn.replay.stacks import GameStacks
from fastdqn.states import set_generator
from fastdqn.types import EpisodeEnd


class RolloutPlayer:
    """Plays N games at once, T steps at a time.

    The observation after an env step is the next row's, also after the last one of an episode: the game is reset a step
    later, in a row that is no sample. So its value is always that of what really followed.

    Args:
        games: N of them.
        stacks: what makes observations of these games.
        newest: returns the newest of them, (N, C, H, W) uint8 or (N, D) float32, where the policy is.
        policy: that plays.
        steps: T.
        gamma: discount of future rewards for each env step.
        trace_decay: lambda of the advantages.
        look: called before each step: others may want something where a rollout takes long.
    """

    def __init__(
        self,
        games: VectorEnv,
        stacks: GameStacks | FrameReplay,
        newest: Callable[[], Tensor],
        policy: Policy,
        steps: int,
        gamma: float,
        trace_decay: float,
        look: Callable[[], None] = lambda: None,
    ) -> None:
        self.num_envs = games.num_envs
        self._games = games
        self._stacks = stacks
        self._newest = newest
        self._policy = policy
        self._steps = steps
        self._gamma = gamma
        self._trace_decay = trace_decay
        self._look = look
        stacks.reset(games.reset())

    def rollout(self) -> Rollout:
        """Play T steps of every game; return their samples, those of the first step first."""
        device = self._policy.device
        rows: list[tuple[Tensor, Tensor, Tensor]] = []  # obs, action, log probability of each step
        values: list[Tensor] = []
        played: list[NDArray[np.float32]] = []  # reward, discount, continues, real of each step, (4, N)
        episodes: tuple[EpisodeEnd, ...] = ()
        for row in range(self._steps):
            self._look()
            obs = self._newest()
            action, log_probability, value = self._policy.draw(obs)
            actions = action.cpu().numpy()
            self._games.send(actions)
            step = self._games.recv()
            self._stacks.add(actions, step)
            rows.append((obs, action, log_probability))
            values.append(value)
            discount = np.where(step.terminated, 0.0, self._gamma)
            over = step.terminated | step.truncated
            played.append(np.stack([step.reward, discount, ~over, ~step.reset]).astype(np.float32))
            episodes += tuple(end._replace(row=row) for end in step.episodes)
        values.append(self._policy.values(self._newest()))
        value = torch.stack(values).cpu()  # (T + 1, N); a GPU would be asked for each row
        reward, discount, continues, real = torch.from_numpy(np.stack(played, axis=1))  # (T, N) each
        advantage = generalised_advantages(reward, discount, value[:-1], value[1:], continues, self._trace_decay)
        kept = real.flatten().nonzero().squeeze(1).to(device)
        obs, *columns = (torch.cat(column) for column in zip(*rows, strict=True))
        flat = (*columns, *torch.stack((advantage, advantage + value[:-1])).flatten(1).to(device))
        samples = PolicySamples(picked(obs, kept), *(column[kept] for column in flat))
        return Rollout(samples, len(kept), episodes, len(real.flatten()))

    def state(self) -> dict[str, Any]:
        """Return the running games, and where the random numbers of the actions stand."""
        parts = {"games": self._games.state(), "stacks": self._stacks.state()}
        return {**parts, "noise": self._policy.noise.get_state()}

    def load(self, state: Mapping[str, Any]) -> NDArray[np.bool_]:
        """Continue from there; return which games, (N,), could not be repeated and begin anew."""
        anew = self._games.load(state["games"])
        self._stacks.load(state["stacks"])
        set_generator(self._policy.noise, state["noise"])
        return anew

    def discard(self, envs: NDArray[np.bool_] | None) -> None:
        """Drop the open windows of these games, (N,), which will not continue; of all with None."""
        self._stacks.discard(envs)
