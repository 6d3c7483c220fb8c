"""Lambda-returns in the replay: what a transition was worth, by the values that the network gave while it played."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastdqn.errors import UserError
from fastdqn.replay.ring import FrameReplay
from fastdqn.types import Batch, Frame, Pieces, Start

REFRESHED_AT_ONCE = 256
"""Observations whose values are computed at a time, on a CPU."""
REFRESHED_AT_ONCE_ON_CUDA = 4096
SMALLEST = 1e-46
"""What float32 rounds to zero."""


def at_once(pieces: Pieces) -> Callable[[], None]:
    """Do `pieces`, one after the other; return a function that does nothing."""
    for piece in pieces:
        piece()
    return lambda: None


@dataclass
class NewValues:
    """Values of stored observations that do not count yet."""

    due: int  # the row at which they do
    rows: range  # R of them, of all games
    value: Tensor  # (R, N) float32, the largest of an observation
    taken: Tensor  # (R, N) float32, of the action that was taken
    wait: Callable[[], None] = lambda: None
    """Returns once all are computed."""


class ReturnReplay(FrameReplay):
    """A frame replay that hands out lambda-returns to learn, instead of rewards and what was seen after them.

    G_t = r_t + gamma * ((1 - lambda) * max_a Q(s_t+1, a) + lambda * G_t+1), Peng & Williams 1996, "Incremental
    Multi-Step Q-Learning", whatever actions were explored. Q is what the network that chose the action at t + 1 said
    then, which costs nothing: there is no second evaluation in an update. The returns of a block of rows are computed
    once, when its last one is over, as Daley & Amato 2019, "Reconciling Lambda-Returns with Experience Replay", do it
    for the blocks of their cache. Where an episode was truncated, and at the end of a block, the return is
    r_t + gamma * max_a Q(s_t+1, a); where it terminated, r_t.

    They grow old with their transitions, so a short replay suits them, or a `refresh` now and then.

    Args:
        decay: lambda; 0 is one-step Q-learning.
        block: rows, steps of all games, in a block.
        every: env steps after which a refresh is due; None for never.
        capacity, num_envs, frame_shape, stack, gamma, device, seed, channels_last, newest: as of a frame replay.
        limits: a return beyond one of them counts as it, since no more than they can be learnt.
        turns: refreshes in which every row is evaluated once. The first evaluates all rows, a later one each
            `turns`-th; between two evaluated rows returns use rewards alone.
        delay: env steps after which the values of a refresh count, but for those of the first, so that they can be
            computed meanwhile.

    Raises:
        UserError: the capacity is too small for the blocks, or as of a frame replay.
    """

    def __init__(
        self,
        decay: float,
        block: int,
        every: int | None,
        capacity: int,
        num_envs: int,
        frame_shape: tuple[int, int],
        stack: int,
        gamma: float,
        device: torch.device,
        seed: int,
        channels_last: bool = False,
        newest: Callable[[], Frame] | None = None,
        limits: tuple[float, float] = (-math.inf, math.inf),
        turns: int = 1,
        delay: int = 0,
    ) -> None:
        least = (block + stack + 3) * num_envs  # of a block that is over, two transitions of each game are left
        if capacity < least:
            raise UserError(
                f"--replay-size {capacity} is too small for blocks of {block} env steps of {num_envs} games; it must "
                f"be at least {least}."
            )
        super().__init__(capacity, num_envs, frame_shape, stack, 1, gamma, device, seed, channels_last, newest)
        self.values = torch.zeros(num_envs, device=self.learner_device)
        """(N,) float32: the largest values of the newest observations, to be written by whoever evaluates them."""
        self._decay, self._gamma, self._block, self._every = decay, gamma, block, every
        self._limits = limits
        self._value = torch.zeros(self.size, device=self.device)  # the largest of an observation
        self._taken = torch.zeros(self.size, device=self.device)  # of the action that was taken, as far as it is known
        self._return = torch.zeros(self.size, device=self.device)
        self._known = torch.zeros((), dtype=torch.int64, device=self.device)  # rows with returns
        self._host_known = 0
        self._turns, self._delay = turns, delay
        self._new: NewValues | None = None
        self._refreshed = 0  # the newest row when all returns were computed anew
        self._refreshes = 0

    def reset(self, frames: Frame) -> None:
        """Begin with the games' first frames, (N, H, W) uint8."""
        super().reset(frames)
        self._forget()

    def note(self) -> None:
        """Keep `values` as those of the observations stored last; to be called before the step that follows them."""
        begin = self.begin_of(self._host_head)
        for told in (self._value, self._taken):
            told[begin : begin + self.num_envs] = self.values.to(self.device)
        if self._host_head - self._host_known >= self._block:
            self._look_back(self._host_head, self._host_known)
            self._know(self._host_head)

    def set_gamma(self, gamma: float) -> None:
        """Discount by `gamma` in all returns that are computed from now on."""
        self._gamma = gamma

    @property
    def stale(self) -> bool:
        """Whether a refresh is due."""
        return self._every is not None and (self._host_head - self._refreshed) * self.num_envs >= self._every

    def refresh(self, evaluate: Callable[[Tensor], Tensor], start: Start = at_once) -> bool:
        """Compute the values of all observations anew, or of those whose turn it is, and all known returns from these
        (Daley & Amato 2019, section 3.2), now without an end at each block. With a delay `settle` does the second
        part. Return whether there are new returns.

        Where one row of k is evaluated, no return asks the older values of the others, but for one that ends at a
        truncation: with
        G_t = r_t + ... + gamma^(k-1) r_t+k-1 + gamma^k ((1 - lambda^k) max_a Q(s_t+k, a) + lambda^k G_t+k)
        for such rows t, it is a mean of the returns of k, 2k, 3k, ... steps, and looks as far ahead as before.

        Args:
            evaluate: returns the values (B, A) float32 of observations (B, C, H, W), at most `REFRESHED_AT_ONCE` of
                them, or on a GPU `REFRESHED_AT_ONCE_ON_CUDA`; with a delay the same ones whatever is learnt meanwhile.
            start: starts pieces of work, and returns a function that returns once they are done.
        """
        most = REFRESHED_AT_ONCE_ON_CUDA if self.learner_device.type == "cuda" else REFRESHED_AT_ONCE
        oldest, newest, first = self._oldest(), self._host_known, not self._refreshes
        self._refreshed = self._host_head
        if newest <= oldest:
            return False
        # the first time the rows of the block that is not over, too, but for the newest, whose values are yet to be
        # noted: they were seen before frames were centred
        end = max(newest + 1, self._host_head) if first else newest + 1
        turns = 1 if first else self._turns
        rows = range(oldest + (self._refreshes - oldest) % turns, end, turns)
        time, games = self._times(rows).repeat_interleave(self.num_envs), self._games.repeat(len(rows))
        # now: the newest row may get another one
        action = self._action[self.slots(time, games)].to(self.learner_device, torch.int64)
        value, taken = torch.zeros(2, len(time), device=self.device)

        def evaluated(piece: slice) -> None:
            values = evaluate(self._gather(time[piece], games[piece]))
            value[piece] = values.amax(dim=1).to(self.device)
            taken[piece] = values.gather(1, action[piece].unsqueeze(1)).squeeze(1).to(self.device)

        wait = start([partial(evaluated, slice(begin, begin + most)) for begin in range(0, len(time), most)])
        due = self._host_head + (0 if first else -(-self._delay // self.num_envs))
        self._new = NewValues(due, rows, value.view(-1, self.num_envs), taken.view(-1, self.num_envs), wait)
        self._refreshes += 1
        return self.settle()

    def settle(self) -> bool:
        """Let the values of a refresh count, if it is time; return whether there are new returns."""
        new = self._new
        if new is None or self._host_head < new.due:
            return False
        new.wait()
        self._new = None
        oldest = self._oldest()
        time = self._times(new.rows).unsqueeze(1)
        there = time >= oldest  # the others have been written over
        slots = self.slots(time, self._games)  # (R, N)
        for kept, value in ((self._value, new.value), (self._taken, new.taken)):
            kept[slots] = torch.where(there, value, kept[slots])  # which a GPU need not wait for
        self._look_back(self._host_known, oldest, new.rows)
        return True

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

    def errors(self, begin: int, end: int) -> Tensor:
        """Return how far the values of what was done are from its returns, (end - begin,) >= 0, as far as they are
        known: between two refreshes an action that was explored counts as the one of largest value.
        """
        return (self._return[begin:end] - self._taken[begin:end]).abs()

    def state(self) -> dict[str, Any]:
        """Return everything that is stored, as a frame replay does, and which returns are known."""
        mine: dict[str, Any] = {"values": self.values.cpu().clone(), "known": self._host_known}
        new = self._new
        if new is not None:
            new.wait()
            # the others count no more, whatever the thread has seen
            there = self._times(new.rows).unsqueeze(1) >= self._oldest()
            tensors = [(values * there).cpu() for values in (new.value, new.taken)]
            mine |= {"new": tensors, "rows": [new.rows.start, new.rows.stop, new.rows.step], "due": new.due}
        kept = {"refreshed": self._refreshed, "refreshes": self._refreshes, "gamma": self._gamma}
        return {**super().state(), **mine, **kept}

    def load(self, state: Mapping[str, Any]) -> None:
        """Hold what a replay of the same size held."""
        super().load(state)
        self.values.copy_(state["values"])
        self._know(int(state["known"]))
        self._refreshed = int(state["refreshed"])
        self._refreshes = int(state["refreshes"])
        self._gamma = float(state["gamma"])  # before the next block is over, which may be at once
        self._new = None
        if "rows" in state:  # values of a refresh that did not count yet
            value, taken = [tensor.to(self.device) for tensor in state["new"]]
            self._new = NewValues(int(state["due"]), range(*map(int, state["rows"])), value, taken)

    def discard(self, envs: NDArray[np.bool_] | None) -> None:
        """Let the newest transition of these games, (N,), be the last before a truncation; with None, begin with the
        games' newest frames.
        """
        super().discard(envs)
        if envs is None:
            self._forget()

    def _small(self) -> dict[str, Tensor]:
        return {**super()._small(), "value": self._value, "taken": self._taken, "return": self._return}

    def _end(self) -> Tensor:
        return self._known

    def _know(self, rows: int) -> None:
        self._host_known = rows
        self._known.fill_(rows)

    def _forget(self) -> None:
        self._know(0)
        self._refreshed = self._refreshes = 0
        if self._new is not None:
            self._new.wait()
            self._new = None

    def _oldest(self) -> int:
        """Return the first row in which a transition may start."""
        return max(0, self._host_head - self._reach)

    def _times(self, rows: range) -> Tensor:
        begin, end = rows.start, max(rows.start, rows.stop)  # PyTorch knows no empty range that ends before it begins
        return torch.arange(begin, end, rows.step, device=self.device)

    def _look_back(self, newest: int, oldest: int, new: range = range(0)) -> None:
        """Compute the returns of the rows from `oldest` up to, but without, `newest`, whose values are the last. Up to
        the last one of `new` values are asked in these rows alone, and from there on in all.

        A return is its own part and a share of the next one's. Parts and shares of 1, 2, 4, ... rows are put together,
        until a share is too small for a number, so that there is no operation for each row.
        """
        time = torch.arange(oldest, newest + 1, device=self.device).unsqueeze(1)
        slots = self.slots(time, self._games)  # (T + 1, N)
        place, value = slots[:-1], self._value[slots]
        goes_on = ~self._terminated[place]
        share, whole = torch.zeros_like(value), value.clone()  # the last row is its value, and nothing else
        decay, every = self._decay, new.step if new else 1
        if every > 1:
            before = new[-1] - time[1:]  # rows from one to the last that is new, below 0 after it
            decay = torch.where(before % every == 0, self._decay**every, 1.0)
            decay = torch.where(before < 0, self._decay, decay)
        share[:-1] = self._gamma * decay * (goes_on & ~self._ended[place])
        whole[:-1] = self._reward[place] + (self._gamma * goes_on - share[:-1]) * value[1:]
        rows = 1
        while rows <= newest - oldest and self._gamma**rows * self._decay ** (rows // every * every) > SMALLEST:
            whole[:-rows] = torch.addcmul(whole[:-rows], share[:-rows], whole[rows:])
            share[:-rows] = share[:-rows] * share[rows:]
            rows *= 2
        self._return[place] = whole[:-1].clamp(*self._limits)
