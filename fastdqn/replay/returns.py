"""Lambda-returns in the replay: what a transition was worth, by the values that the network gave while it played."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastdqn.replay.prioritized import PrioritizedReplay
from fastdqn.replay.ring import FrameReplay
from fastdqn.replay.wrapper import ReplayWrapper
from fastdqn.types import Batch, Frame, VectorStep, parts_of


class ReturnReplay(ReplayWrapper):
    """A frame replay that hands out lambda-returns to learn, instead of rewards and what was seen after them.

    G_t = r_t + gamma * ((1 - lambda) * max_a Q(s_t+1, a) + lambda * G_t+1), Peng & Williams 1996, "Incremental
    Multi-Step Q-Learning", whatever actions were explored. Q is what the network that chose the action at t + 1 said
    then, which costs nothing: there is no target network, and no second evaluation in an update. The returns of a block
    of rows are computed once, when its last one is over, as Daley & Amato 2019, "Reconciling Lambda-Returns with
    Experience Replay", do it for the blocks of their cache. Where an episode was truncated, and at the end of a block,
    the return is r_t + gamma * max_a Q(s_t+1, a); where it terminated, r_t.

    They grow old with their transitions, so a short replay suits them.

    Args:
        frames: the storage, with windows of one env step.
        decay: lambda; 0 is one-step Q-learning.
        gamma: discount for each env step.
        block: rows, steps of all games, in a block.
    """

    def __init__(self, frames: FrameReplay, decay: float, gamma: float, block: int) -> None:
        super().__init__(frames)
        self.values = torch.zeros(frames.num_envs, device=frames.learner_device)
        """(N,) float32: the largest values of the newest observations, to be written by whoever evaluates them."""
        self._decay, self._gamma, self._block = decay, gamma, block
        self._value = torch.zeros(frames.size, device=frames.device)
        self._return = torch.zeros(frames.size, device=frames.device)
        self._known = torch.zeros((), dtype=torch.int64, device=frames.device)  # rows with returns
        self._host_known = 0

    def reset(self, frames: Frame) -> None:
        """Begin with the games' first frames, (N, H, W) uint8."""
        self.frames.reset(frames)
        self._know(0)

    def note(self) -> None:
        """Keep `values` as those of the observations stored last; to be called before the step that follows them."""
        head = self.frames.head
        begin, _ = self.frames.row(head)
        self._value[begin : begin + self.frames.num_envs] = self.values.to(self.device)
        if head - self._host_known >= self._block:
            self._look_back(head)

    def add(self, actions: NDArray[np.int64], step: VectorStep) -> None:
        """Store what was done in the newest observations, what came of it, and the next frames."""
        self.frames.add(actions, step)

    def sample(self, batch_size: int) -> Batch:
        """Return B observations, actions and returns, drawn uniformly from the blocks that are over. The discount is 0:
        nothing follows.

        Raises:
            IndexError: no block is over yet.
        """
        if self._host_known == 0:
            raise IndexError("the replay holds no whole block yet")
        time, game = self.frames.draw(batch_size, end=self._known)
        obs, action = self.frames.seen(time, game)
        there = self.frames.learner_device
        returns = self._return[self.frames.slots(time, game)].to(there)
        return Batch(obs, action, returns, torch.zeros_like(returns), obs)

    def sample_each(self, count: int, batch_size: int) -> list[Batch]:
        """Return `count` batches as `sample` does, drawn at once."""
        return parts_of(self.sample(count * batch_size), count)

    def write_back(self, batch: Batch, priority: Tensor) -> None:
        """Do nothing: draws do not depend on how surprising a transition was."""

    def state(self) -> dict[str, Any]:
        """Return everything that is stored, as the frames' replay does, with values and returns."""
        stored = {"value": self._value, "return": self._return, "values": self.values}
        tensors = {name: tensor.cpu().clone() for name, tensor in stored.items()}
        return {"frames": self.frames.state(), "known": self._host_known, **tensors}

    def load(self, state: Mapping[str, Any]) -> None:
        """Hold what a replay of the same size held."""
        self.frames.load(state["frames"])
        for name, tensor in (("value", self._value), ("return", self._return), ("values", self.values)):
            tensor.copy_(state[name])
        self._know(int(state["known"]))

    def discard(self, envs: NDArray[np.bool_] | None) -> None:
        """Let the newest transition of these games, (N,), be the last before a truncation; with None, begin with the
        games' newest frames.
        """
        self.frames.discard(envs)
        if envs is None:
            self._know(0)

    def _know(self, rows: int) -> None:
        self._host_known = rows
        self._known.fill_(rows)

    def _look_back(self, head: int) -> None:
        """Compute the returns of the rows from the last block's end up to, but without, row `head`."""
        count = self.frames.num_envs
        after, _ = self.frames.row(head)
        value = returns = self._value[after : after + count]
        for time in range(head - 1, self._host_known - 1, -1):
            begin, _ = self.frames.row(time)
            place = slice(begin, begin + count)
            reward, terminated, ended = self.frames.outcome(place)
            ahead = torch.where(ended, value, torch.lerp(value, returns, self._decay))
            returns = reward + self._gamma * ahead.masked_fill(terminated, 0.0)
            self._return[place] = returns
            value = self._value[place]
        self._know(head)


DeviceReplay = FrameReplay | PrioritizedReplay | ReturnReplay
"""Frames on the device, drawn from uniformly or by priority, or with returns."""
