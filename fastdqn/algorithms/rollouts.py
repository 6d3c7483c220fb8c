"""Rollouts: T steps of N games, with the advantages of what was done in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastdqn.algorithms.a2c import Policy
from fastdqn.algorithms.ppo import PolicySamples, Rollout, taken
from fastdqn.algorithms.returns import generalised_advantages
from fastdqn.envs.vector import VectorEnv
from fastdqn.replay.ring import FrameReplay
from fastdqn.replay.stacks import GameStacks
from fastdqn.states import set_generator
from fastdqn.types import EpisodeEnd


class Half(NamedTuple):
    """Games that play at a time, and what makes observations of them."""

    games: VectorEnv
    stacks: GameStacks | FrameReplay
    newest: Callable[[], Tensor]  # the newest observations, (N, C, H, W) uint8 or (N, D) float32, where the policy is


class RolloutPlayer:
    """Plays N games, T steps at a time.

    The emulators of one half of the games play while the policy looks at the other half, if there are two.

    The observation after an env step is the next row's, also after the last one of an episode: the game is reset a step
    later, in a row that is no sample. So its value is always that of what really followed.

    Args:
        halves: one or two of them, N games together.
        policy: that plays.
        steps: T.
        gamma: discount of future rewards for each env step.
        trace_decay: lambda of the advantages.
    """

    def __init__(self, halves: Sequence[Half], policy: Policy, steps: int, gamma: float, trace_decay: float) -> None:
        self._halves = halves
        self._policy = policy
        self._steps = steps
        self._gamma = gamma
        self._trace_decay = trace_decay
        self._begins = np.cumsum([0, *(half.games.num_envs for half in halves)])
        self.num_envs = int(self._begins[-1])
        for half in halves:
            half.stacks.reset(half.games.reset())

    def rollout(self) -> Rollout:
        """Play T steps of every game; return their samples, those of the first half and its first step first."""
        tracks = [
            _Track(half, self._policy, int(begin)) for half, begin in zip(self._halves, self._begins, strict=False)
        ]
        for track in tracks:
            track.act()
        episodes: tuple[EpisodeEnd, ...] = ()
        for left in reversed(range(self._steps)):
            for track in tracks:
                episodes += track.take(self._gamma)
                if left:
                    track.act()
        found = [track.samples(self._trace_decay) for track in tracks]
        samples = found[0] if len(found) == 1 else PolicySamples._make(map(torch.cat, zip(*found, strict=True)))
        return Rollout(samples, len(samples.action), episodes)

    def state(self) -> dict[str, Any]:
        """Return the running games, and where the random numbers of the actions stand."""
        halves = [{"games": half.games.state(), "stacks": half.stacks.state()} for half in self._halves]
        return {"halves": halves, "noise": self._policy.noise.get_state()}

    def load(self, state: Mapping[str, Any]) -> NDArray[np.bool_]:
        """Continue from there; return which games, (N,), could not be repeated and begin anew."""
        anew: list[NDArray[np.bool_]] = []
        for half, said in zip(self._halves, state["halves"], strict=True):
            anew.append(half.games.load(said["games"]))
            half.stacks.load(said["stacks"])
        set_generator(self._policy.noise, state["noise"])
        return np.concatenate(anew)

    def discard(self, envs: NDArray[np.bool_] | None) -> None:
        """Drop the open windows of these games, (N,), which will not continue; of all with None."""
        for half, begin in zip(self._halves, self._begins[:-1], strict=True):
            half.stacks.discard(None if envs is None else envs[begin : begin + half.games.num_envs])


class _Track:
    """What one half of the games does in a rollout."""

    def __init__(self, half: Half, policy: Policy, begin: int) -> None:
        self._half, self._policy, self._begin = half, policy, begin
        self._rows: list[tuple[Tensor, Tensor, Tensor]] = []  # obs, action, log probability of each step
        self._values: list[Tensor] = []
        self._played: list[NDArray[np.float32]] = []  # reward, discount, continues, real of each step, (4, N)
        self._sent = np.zeros(0, np.int64)

    def act(self) -> None:
        """Let the games play what the policy draws; does not wait for them."""
        obs = self._half.newest()
        action, log_probability, value = self._policy.draw(obs)
        self._rows.append((obs, action, log_probability))
        self._values.append(value)
        self._sent = action.cpu().numpy()
        self._half.games.send(self._sent)

    def take(self, gamma: float) -> tuple[EpisodeEnd, ...]:
        """Take what came of it; return the episodes that ended."""
        step = self._half.games.recv()
        self._half.stacks.add(self._sent, step)
        discount = np.where(step.terminated, 0.0, gamma)
        over = step.terminated | step.truncated
        self._played.append(np.stack([step.reward, discount, ~over, ~step.reset]).astype(np.float32))
        return tuple(end._replace(place=end.place + self._begin) for end in step.episodes)

    def samples(self, trace_decay: float) -> PolicySamples:
        """Return all samples; rows in which a game was reset are none."""
        self._values.append(self._policy.values(self._half.newest()))
        value = torch.stack(self._values)  # (T + 1, N)
        reward, discount, continues, real = torch.from_numpy(np.stack(self._played, axis=1)).to(value.device)
        advantage = generalised_advantages(reward, discount, value[:-1], value[1:], continues, trace_decay)
        kept = real.flatten().nonzero().squeeze(1)
        obs, *columns = (torch.cat(column) for column in zip(*self._rows, strict=True))
        flat = (*columns, advantage.flatten(), (advantage + value[:-1]).flatten())
        return PolicySamples(taken(obs, kept), *(column[kept] for column in flat))
