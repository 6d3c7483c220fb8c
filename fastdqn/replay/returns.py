"""Lambda-returns in the replay: what a transition was worth, by the values that the network gave while it played."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastdqn.replay.ring import FrameReplay
from fastdqn.types import Batch, Frame


class ReturnReplay(FrameReplay):
    """A frame replay that hands out lambda-returns to learn, instead of rewards and what was seen after them.

    G_t = r_t + gamma * ((1 - lambda) * max_a Q(s_t+1, a) + lambda * G_t+1), Peng & Williams 1996, "Incremental
    Multi-Step Q-Learning", whatever actions were explored. Q is what the network that chose the action at t + 1 said
    then, which costs nothing: there is no second evaluation in an update. The returns of a block of rows are computed
    once, when its last one is over, as Daley & Amato 2019, "Reconciling Lambda-Returns with Experience Replay", do it
    for the blocks of their cache. Where an episode was truncated, and at the end of a block, the return is
    r_t + gamma * max_a Q(s_t+1, a); where it terminated, r_t.

    They grow old with their transitions, so a short replay suits them.

    Args:
        decay: lambda; 0 is one-step Q-learning.
        block: rows, steps of all games, in a block.
        capacity, num_envs, frame_shape, stack, gamma, device, seed, channels_last, newest: as of a frame replay.
    """

    def __init__(
        self,
        decay: float,
        block: int,
        capacity: int,
        num_envs: int,
        frame_shape: tuple[int, int],
        stack: int,
        gamma: float,
        device: torch.device,
        seed: int,
        channels_last: bool = False,
        newest: Callable[[], Frame] | None = None,
    ) -> None:
        super().__init__(capacity, num_envs, frame_shape, stack, 1, gamma, device, seed, channels_last, newest)
        self.values = torch.zeros(num_envs, device=self.learner_device)
        """(N,) float32: the largest values of the newest observations, to be written by whoever evaluates them."""
        self._decay, self._gamma, self._block = decay, gamma, block
        self._value = torch.zeros(self.size, device=self.device)
        self._return = torch.zeros(self.size, device=self.device)
        self._known = torch.zeros((), dtype=torch.int64, device=self.device)  # rows with returns
        self._host_known = 0

    def reset(self, frames: Frame) -> None:
        """Begin with the games' first frames, (N, H, W) uint8."""
        super().reset(frames)
        self._know(0)

    def note(self) -> None:
        """Keep `values` as those of the observations stored last; to be called before the step that follows them."""
        begin, _ = self.row(self._host_head)
        self._value[begin : begin + self.num_envs] = self.values.to(self.device)
        if self._host_head - self._host_known >= self._block:
            self._look_back()

    def starts(self) -> tuple[int, int]:
        """Return the row that the last step put out of reach and the last one of a block that is over."""
        return super().starts()[0], self._host_known - 1

    def transitions(self, time: Tensor, game: Tensor) -> Batch:
        """Return observations, actions and returns of rows and games, int64 (B,) each. The discount is 0: nothing
        follows.
        """
        obs, action = self.seen(time, game)
        returns = self._return[self.slots(time, game)].to(self.learner_device)
        return Batch(obs, action, returns, torch.zeros_like(returns), obs)

    def errors(self, begin: int) -> Tensor:
        """Return how far the values of a row's observations were from their returns, (N,) >= 0."""
        place = slice(begin, begin + self.num_envs)
        return (self._return[place] - self._value[place]).abs()

    def state(self) -> dict[str, Any]:
        """Return everything that is stored, as a frame replay does, and which returns are known."""
        return {**super().state(), "values": self.values.cpu().clone(), "known": self._host_known}

    def load(self, state: Mapping[str, Any]) -> None:
        """Hold what a replay of the same size held."""
        super().load(state)
        self.values.copy_(state["values"])
        self._know(int(state["known"]))

    def discard(self, envs: NDArray[np.bool_] | None) -> None:
        """Let the newest transition of these games, (N,), be the last before a truncation; with None, begin with the
        games' newest frames.
        """
        super().discard(envs)
        if envs is None:
            self._know(0)

    def _small(self) -> dict[str, Tensor]:
        return {**super()._small(), "value": self._value, "return": self._return}

    def _end(self) -> Tensor:
        return self._known

    def _know(self, rows: int) -> None:
        self._host_known = rows
        self._known.fill_(rows)

    def _look_back(self) -> None:
        """Compute the returns of the rows from the last block's end up to, but without, the newest one."""
        after, _ = self.row(self._host_head)
        value = returns = self._value[after : after + self.num_envs]
        for time in range(self._host_head - 1, self._host_known - 1, -1):
            begin, _ = self.row(time)
            place = slice(begin, begin + self.num_envs)
            ahead = torch.where(self._ended[place], value, torch.lerp(value, returns, self._decay))
            returns = self._reward[place] + self._gamma * ahead.masked_fill(self._terminated[place], 0.0)
            self._return[place] = returns
            value = self._value[place]
        self._know(self._host_head)
