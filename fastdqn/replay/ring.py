"""The ring: every frame once, on the device that learns, and transitions put together by index.

Time runs in rows, one for each step of the N games. Row t holds, for each game, the newest frame at time t, the action
that was then taken, and what came of it. A stack is `stack` rows of one game, an n-step return n rows; neither is
ever stored. Nothing but new frames and a few numbers crosses to the device, and drawing a batch is a fixed series of
tensor operations without a decision on the host, so that a CUDA graph can hold it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastdqn.cgroup import available_memory
from fastdqn.errors import UserError
from fastdqn.replay.arrivals import Arrivals, needs_staging
from fastdqn.replay.interleaved import interleaved
from fastdqn.replay.memory import empty_frames, replay_device
from fastdqn.replay.saving import RowSaver
from fastdqn.replay.windows import Windows
from fastdqn.states import Later, copied, set_generator, unpack
from fastdqn.types import Batch, Frame, VectorStep

CANDIDATES = 4
"""Starts that are drawn for each transition, of which the first that can be used is taken."""
MOST_ACTIONS = 256
"""That a byte can tell apart."""


class FrameReplay:
    """A ring of the last `capacity` env steps of N games, sampled uniformly with replacement (Mnih et al. 2015).

    A window starts at any env step and ends n env steps later or at its episode's end, whichever is first; a window
    of k env steps uses gamma^k (Sutton 1988; Hessel et al. 2017, section 3). It never crosses an end, a truncation or
    the write head, and no start near an end is lost. Frames from before a game's first are zero.

    The order of calls is `reset`, then `add` for each step of the games; in between `stacks` and `sample`, also
    between an `env.send` and its `env.recv`.

    Args:
        capacity: env steps to hold, of all games together.
        num_envs: N.
        frame_shape: (H, W).
        stack: frames that make up an observation.
        n_step: longest window.
        gamma: discount for each env step.
        device: of the learner, where batches are handed out; everything lives there, too, if `replay_device` says so.
        seed: of the draws.
        channels_last: whether stacks are laid out as (B, H, W, C), as a CPU's convolutions want them; the CPU only.
        newest: returns the games' newest frames, (N, H, W) uint8: what a replay begins with that a checkpoint has left
            out.

    Raises:
        UserError: the device refuses so much memory, or the capacity is too small for N games.
    """

    def __init__(
        self,
        capacity: int,
        num_envs: int,
        frame_shape: tuple[int, int],
        stack: int,
        n_step: int,
        gamma: float,
        device: torch.device,
        seed: int,
        channels_last: bool = False,
        newest: Callable[[], Frame] | None = None,
    ) -> None:
        rows = capacity // num_envs
        least = (stack + n_step + 2) * num_envs
        if capacity < least:
            raise UserError(
                f"--replay-size {capacity} is too small for {num_envs} games at once; it must be at least {least}."
            )
        self.learner_device, device = device, replay_device(device)
        self.num_envs = num_envs
        self.size = rows * num_envs  # slots; game i of row t is in slot t % rows * N + i
        self.device = device
        self.generator = torch.Generator(device).manual_seed(seed)
        self._rows = rows
        self._stack = stack
        self._n = n_step
        self._newest = newest
        self._channels_last = channels_last and self.learner_device.type == "cpu" and stack > 1
        self._reach = rows - stack - 1  # how far back a transition may start
        self._shape = frame_shape
        size = self.size
        self._frames = empty_frames((size + 1, frame_shape[0] * frame_shape[1]), device)
        self._frames[size] = 0  # what stands before a game's first frame
        self._bytes = torch.zeros(4, size, dtype=torch.uint8, device=device)  # in one piece, to be written at once
        self._action = self._bytes[0]
        self._terminated = self._bytes[1].view(torch.bool)
        self._ended = self._bytes[2].view(torch.bool)  # terminated or truncated
        self._void = self._bytes[3].view(torch.bool)  # the action was ignored: a reset
        self._reward = torch.zeros(size, dtype=torch.float32, device=device)
        self._age = torch.zeros(size, dtype=torch.uint8, device=device)  # earlier frames of the game, at most stack - 1
        self._head = torch.zeros((), dtype=torch.int64, device=device)  # row of the newest frames
        self._host_head = 0
        self._host_age = np.zeros(num_envs, np.uint8)
        self._games = torch.arange(num_envs, device=device)
        self._zero = torch.tensor(size, device=device)
        self._back = torch.arange(stack - 1, -1, -1, device=device)  # stack - 1 down to 0
        self.windows = Windows(n_step, gamma, device)
        self._order = torch.arange(CANDIDATES, 0, -1, device=device).unsqueeze(1)
        self._arrivals = Arrivals(num_envs, frame_shape, device) if needs_staging(device) else None
        self.landing: Callable[[], None] | None = None
        """A CUDA graph of `land`, if there is one."""
        self.afterwards: Callable[[], None] | None = None
        """What else changes on a device with each step, a part of `land`."""
        self._saving = RowSaver(rows, num_envs)

    def __len__(self) -> int:
        """Env steps stored, resets included."""
        return min(self._host_head, self._rows) * self.num_envs

    def reset(self, frames: Frame) -> None:
        """Begin with the games' first frames, (N, H, W) uint8."""
        self._host_head = 0
        self._host_age = np.zeros(self.num_envs, np.uint8)
        self._arrive(frames)

    def add(self, actions: NDArray[np.int64], step: VectorStep) -> None:
        """Store what was done in the newest observations, (N,) from 0 to 255, what came of it, and the next frames,
        (N, H, W) uint8.
        """
        self._follow(step)
        self._arrive(step.frames, actions, step)

    def _follow(self, step: VectorStep) -> None:
        """Go on to the next row, whose frames are so and so old in their games."""
        self._saving.wait_for(self._host_head + 1 - self._rows)
        self._host_head += 1
        age = np.minimum(self._host_age + 1, self._stack - 1, dtype=np.uint8)
        age[step.reset] = 0
        self._host_age = age

    def _arrive(self, frames: Frame, actions: NDArray[np.int64] | None = None, step: VectorStep | None = None) -> None:
        """Store the frames of the newest row, and in the one before what led to them, if anything did."""
        if self._arrivals is not None:
            self._arrivals.stage(self._host_head, self._host_age, frames, actions, step)
            (self.landing or self.land)()
            self._arrivals.taken()
            return
        self._head.fill_(self._host_head)
        begins = self.begin_of(self._host_head), self.begin_of(self._host_head - 1)
        new, old = (slice(begin, begin + self.num_envs) for begin in begins)
        self._frames[new].view(self.num_envs, *self._shape).numpy()[...] = frames
        self._age.numpy()[new] = self._host_age
        if actions is not None and step is not None:
            packed = self._bytes.numpy()
            packed[0, old], packed[1, old] = actions, step.terminated
            packed[2, old], packed[3, old] = step.terminated | step.truncated, step.reset
            self._reward.numpy()[old] = step.reward

    def land(self) -> None:
        """Put the step that is staged in place on a device, by operations without a decision on the host; twice is as
        once.
        """
        assert self._arrivals is not None
        come = self._arrivals.here()
        self._head.copy_(come.head)
        new, old = (self.slots(time.expand(self.num_envs), self._games) for time in (self._head, self._head - 1))
        self._frames.index_copy_(0, new, come.frames)
        self._age.index_copy_(0, new, come.age)
        self._bytes.index_copy_(1, old, come.before)
        self._reward.index_copy_(0, old, come.reward)
        if self.afterwards is not None:
            self.afterwards()

    def state(self) -> dict[str, Any]:
        """Return everything that is stored. Frames stay where they are until they are compressed, later, in another
        thread; meanwhile a step that would overwrite one of them waits.

        Raises:
            MemoryError: the frames of a CUDA device do not fit into the host's memory.
        """
        first, last = max(0, self._host_head - self._rows + 1), self._host_head
        frames = self._frames
        if self.device.type != "cpu":
            frames = frames[: min(last + 1, self._rows) * self.num_envs]
            if frames.nbytes > available_memory():
                raise MemoryError(f"{frames.nbytes / 1e9:.1f} GB of frames do not fit into the host's memory")
            frames = frames.cpu()  # at once: one thread uses the device
        small = {name: tensor.cpu().clone() for name, tensor in self._small().items()}
        if self.device.type == "cpu":
            self._saving.begin(first)
        return {
            "head": last,
            "host_age": copied(self._host_age),
            "generator": self.generator.get_state(),
            "frames": Later(lambda: self._saving.packed(frames, first, last), self._saving.end),
            **small,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Hold what a replay of the same size held."""
        self._host_head = int(state["head"])
        self._head.fill_(self._host_head)
        self._host_age = state["host_age"].numpy().copy()
        for name, tensor in self._small().items():
            tensor.copy_(state[name])
        for begin, packed in state["frames"]:
            rows = unpack(packed)
            self._frames[begin : begin + len(rows)] = rows
        set_generator(self.generator, state["generator"])

    def mean_frame(self) -> Tensor:
        """Return the mean of all stored frames, (H, W) float32; until the ring is full, without the newest row."""
        total = torch.zeros(self._frames.shape[1], dtype=torch.int64, device=self.device)
        for begin in range(0, len(self), 1024):
            total += self._frames[begin : min(begin + 1024, len(self))].sum(dim=0)
        return (total.double() / len(self)).float().view(self._shape)

    def stacks(self) -> Tensor:
        """Return the newest observation of every game, (N, C, H, W) uint8 on the learner's device."""
        return self._gather(self._head.expand(self.num_envs), self._games)

    def sample(self, batch_size: int) -> Batch:
        """Return B transitions, drawn uniformly from all env steps whose window is complete.

        An env step that was a reset is drawn again, up to three times; should all four draws be resets, the env
        step before the first of them is taken, which is the end of a game, or if there is none the reset.

        Raises:
            IndexError: there are none yet.
        """
        if self.starts()[1] < 0:
            raise IndexError("the replay holds no whole window yet")
        return self.transitions(*self.draw(batch_size))

    def write_back(self, batch: Batch, priority: Tensor) -> None:
        """Do nothing: draws do not depend on how surprising a transition was."""

    def observations(self, count: int, generator: torch.Generator) -> Tensor:
        """Return `count` stored observations, (count, C, H, W) uint8, drawn uniformly with `generator`, which is on
        `device`.
        """
        return self._gather(*self.draw(count, generator))

    def transitions(self, time: Tensor, game: Tensor) -> Batch:
        """Return the transitions that start at rows `time` (counted since the first) of games `game`, int64 (B,) each.

        The caller makes sure that those are stored and their windows complete.
        """
        row = self.slots(time.unsqueeze(1) + self.windows.ahead, game.unsqueeze(1))  # (B, n)
        reward, discount, steps = self.windows.returns(self._reward[row], self._terminated[row], self._ended[row])
        there = self.learner_device
        return Batch(*self.seen(time, game), reward.to(there), discount.to(there), self._gather(time + steps, game))

    def seen(self, time: Tensor, game: Tensor) -> tuple[Tensor, Tensor]:
        """Return the observations (B, C, H, W) of rows and games, int64 (B,) each, and the actions (B,) taken then."""
        return self._gather(time, game), self._action[self.slots(time, game)].to(self.learner_device, torch.int64)

    def errors(self, begin: int, end: int) -> Tensor | None:
        """Return how wrong the values of these slots are, (end - begin,) >= 0, if that is known."""

    def starts(self) -> tuple[int, int]:
        """Return the row that the last step put out of reach and the row whose windows it completed, counted since the
        first; negative where there is none yet. Transitions may start in the rows between, the second included.
        """
        return self._host_head - self._reach - 1, self._host_head - self._n

    def gone(self) -> Tensor:
        """Return the slots (N,) of the row that the last step put out of reach, int64 on the device; before there is
        one, of a row that holds nothing yet.
        """
        return self.slots((self._head - (self._reach + 1)).expand(self.num_envs), self._games)

    def begin_of(self, time: int) -> int:
        """Return the first of the N slots of row `time`, counted since the first row."""
        return time % self._rows * self.num_envs

    def spans(self, first: int, end: int) -> Iterator[tuple[int, Tensor]]:
        """Yield the first slot of each stretch of the rows from `first` up to, but without, `end` that lies in one
        piece, and which of its env steps were no resets, (slots of the stretch,) bool.
        """
        while first < end:
            begin, count = self.begin_of(first), min(end - first, self._rows - first % self._rows)
            yield begin, ~self._void[begin : begin + count * self.num_envs]
            first += count

    def time_and_game(self, slot: Tensor) -> tuple[Tensor, Tensor]:
        """Return row (counted since the first) and game of slots of stored env steps, int64 (B,) each."""
        row = slot // self.num_envs
        return self._head - (self._head - row) % self._rows, slot % self.num_envs

    def draw(self, batch_size: int, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Return rows (counted since the first) and games of B starts drawn as `sample` says, int64 (B,) each.

        `generator` is the replay's own unless another is given.
        """
        generator = generator or self.generator
        low = (self._head - self._reach).clamp(min=0)  # a start's stack is still there
        high = self._end()
        uniform = torch.rand(CANDIDATES, batch_size, dtype=torch.float64, generator=generator, device=self.device)
        drawn = (uniform * ((high - low) * self.num_envs)).to(torch.int64)
        time = low + drawn // self.num_envs
        game = drawn % self.num_envs
        real = ~self._void[self.slots(time, game)]  # (candidates, B)
        first = (real * self._order).argmax(dim=0, keepdim=True)
        time, game = time.gather(0, first).squeeze(0), game.gather(0, first).squeeze(0)
        return (time - self._void[self.slots(time, game)].to(torch.int64)).clamp(min=0), game

    def _end(self) -> Tensor:
        """Return the first row of which no window is complete, () int64 on the device."""
        return self._head - (self._n - 1)

    def discard(self, envs: NDArray[np.bool_] | None) -> None:
        """Let the newest transition of these games, (N,), be the last before a truncation; with None, begin with the
        games' newest frames.
        """
        if envs is None:
            if self._newest is not None:
                self.reset(self._newest())
            return
        begin = self.begin_of(self._host_head - 1)
        self._ended[begin : begin + self.num_envs] |= torch.from_numpy(envs).to(self.device)

    def _small(self) -> dict[str, Tensor]:
        """Return all that is stored beside the frames."""
        return {
            "action": self._action,
            "reward": self._reward,
            "terminated": self._terminated,
            "ended": self._ended,
            "void": self._void,
            "age": self._age,
        }

    def slots(self, time: Tensor, game: Tensor) -> Tensor:
        """Return where the env steps of rows and games, int64 of any one shape, are stored."""
        return time % self._rows * self.num_envs + game

    def _gather(self, time: Tensor, game: Tensor) -> Tensor:
        """Return the stacks (B, C, H, W) that games showed at their times, on the learner's device."""
        age = self._age[self.slots(time, game)].unsqueeze(1)  # (B, 1)
        where = self.slots(time.unsqueeze(1) - self._back, game.unsqueeze(1))  # (B, C)
        where = torch.where(self._back <= age, where, self._zero)
        if self._channels_last:
            return interleaved(self._frames, where, self._shape)
        stacks = self._frames.index_select(0, where.flatten()).view(len(time), self._stack, *self._shape)
        return stacks.to(self.learner_device)
