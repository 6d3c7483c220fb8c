"""The replay of vectors: every observation once, with what was done in it, in one table of numbers.

Time runs in rows, one for each step of the N games, as in the ring of frames. The slot of game i of row t holds what
was observed at time t, the action that was then taken, its reward and the discount of what follows; what followed is
the observation in the next row's slot. A row in which a game was reset is no transition, and is never drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastdqn.cgroup import available_memory
from fastdqn.errors import UserError
from fastdqn.replay.memory import refuse_unfit
from fastdqn.replay.saving import RowSaver
from fastdqn.seeds import set_state, state_of
from fastdqn.states import Later, copied, unpack
from fastdqn.types import Batch, VectorStep


class BoxReplay:
    """The transitions of the last `capacity` env steps of N games, drawn uniformly with replacement.

    The order of calls is `reset`, then `add` for each step of the games. Resets of games take room as env steps do.

    Args:
        capacity: env steps to hold, of all games together.
        num_envs: N.
        obs_size: D.
        num_actions: A.
        gamma: discount for each env step; that of one that terminated is 0, a truncated one keeps gamma.
        device: where everything is kept, and batches are handed out.
        rng: of the draws.
        newest_in_batch: whether the newest transition is the last of every batch (Zhang & Sutton 2017, "combined
            experience replay").
        newest: returns the games' newest observations, (N, D): what a replay begins with that a checkpoint has left
            out.

    Raises:
        UserError: the capacity is too small for N games, or does not fit into the memory.
    """

    def __init__(
        self,
        capacity: int,
        num_envs: int,
        obs_size: int,
        num_actions: int,
        gamma: float,
        device: torch.device,
        rng: np.random.Generator,
        newest_in_batch: bool = False,
        newest: Callable[[], NDArray[np.float32]] | None = None,
    ) -> None:
        check_capacity(capacity, num_envs)
        check_box_memory(capacity, obs_size, num_actions, device, beside=False)
        self.num_envs = num_envs
        self._rows = capacity // num_envs + 1  # the newest one holds observations alone
        self._size = self._rows * num_envs
        self._obs, self._beside = slice(0, obs_size), slice(obs_size, obs_size + num_actions + 2)
        self._gamma = gamma
        self._device = device
        self._rng = rng
        self._newest_in_batch = newest_in_batch
        self._newest = newest
        self._table = torch.zeros(self._size, obs_size + num_actions + 2, device=device)
        self._staged = np.zeros((num_envs, num_actions + 2), np.float32)  # action, reward, discount
        self._starts = np.zeros(self._size, np.int64)  # slots of transitions in their order, itself a ring
        self._real = np.zeros(self._rows, np.int64)  # transitions of each row
        self._first = self._end = 0  # of those that are held, counted since the first
        self._head = 0  # row of the newest observations, counted since the first
        self._saving = RowSaver(self._rows, num_envs)

    def __len__(self) -> int:
        """Transitions that may be drawn."""
        return self._end - self._first

    def reset(self, obs: NDArray[np.float32]) -> None:
        """Begin with the games' first observations, (N, D)."""
        self._first = self._end = self._head = 0
        self._real[:] = 0
        self._write(0, self._obs, obs)

    def add(self, actions: NDArray[np.float32], step: VectorStep) -> None:
        """Store what was done in the newest observations, (N, A), what came of it, and the next observations."""
        self._saving.wait_for(self._head + 1 - self._rows)
        row = self._head % self._rows
        staged = self._staged
        staged[:, :-2] = actions
        staged[:, -2] = step.reward
        staged[:, -1] = np.where(step.terminated, 0.0, self._gamma)
        self._write(row, self._beside, staged)
        real = np.flatnonzero(~step.reset)
        self._starts[(self._end + np.arange(len(real))) % self._size] = row * self.num_envs + real
        self._real[row] = len(real)
        self._end += len(real)
        self._head += 1
        row = self._head % self._rows
        self._first += int(self._real[row])  # what began there is overwritten
        self._real[row] = 0
        self._write(row, self._obs, step.frames)

    def sample(self, batch_size: int) -> Batch:
        """Return B transitions, drawn uniformly from all that are held: obs (B, D), action (B, A), float32.

        Raises:
            IndexError: there are none yet.
        """
        if self._first == self._end:
            raise IndexError("the replay holds no transition yet")
        drawn = self._rng.integers(self._first, self._end, size=batch_size)
        if self._newest_in_batch:
            drawn[-1] = self._end - 1
        slot = self._starts[drawn % self._size]
        rows = self._at(slot)
        after = self._at((slot + self.num_envs) % self._size)
        return Batch(
            rows[:, self._obs],
            rows[:, self._beside.start : -2],
            rows[:, -2],
            rows[:, -1],
            after[:, self._obs],
        )

    def state(self) -> dict[str, Any]:
        """Return everything that is held. The table stays where it is until it is compressed, later, in another thread;
        meanwhile a step that would overwrite one of its rows waits.

        Raises:
            MemoryError: the table of a CUDA device does not fit into the host's memory.
        """
        first, last = max(0, self._head - self._rows + 1), self._head
        table = self._table
        if self._device.type != "cpu":
            table = table[: min(last + 1, self._rows) * self.num_envs]
            if table.nbytes > available_memory():
                raise MemoryError(f"{table.nbytes / 1e9:.1f} GB of transitions do not fit into the host's memory")
            table = table.cpu()
        table = table.view(torch.uint8)
        starts = copied(self._starts[np.arange(self._first, self._end) % self._size])
        if self._device.type == "cpu":
            self._saving.begin(first)
        return {
            "head": last,
            "first": self._first,
            "starts": starts,
            "rng": state_of(self._rng),
            "table": Later(lambda: self._saving.packed(table, first, last), self._saving.end),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Hold what a replay of the same size held."""
        starts: NDArray[np.int64] = state["starts"].numpy()
        self._head, self._first = int(state["head"]), int(state["first"])
        self._end = self._first + len(starts)
        self._starts[np.arange(self._first, self._end) % self._size] = starts
        self._real[:] = np.bincount(starts // self.num_envs, minlength=self._rows)
        table = self._table.view(torch.uint8)
        for begin, packed in state["table"]:
            rows = unpack(packed)
            table[begin : begin + len(rows)] = rows.to(self._device)
        set_state(self._rng, state["rng"])

    def discard(self, envs: NDArray[np.bool_] | None) -> None:
        """Drop nothing of games that begin anew, whose next row is a reset; with None, begin with the games' newest
        observations.
        """
        if envs is None and self._newest is not None:
            self.reset(self._newest())

    def _at(self, slot: NDArray[np.int64]) -> torch.Tensor:
        return self._table.index_select(0, torch.from_numpy(slot).to(self._device))

    def _write(self, row: int, columns: slice, values: NDArray[np.float32]) -> None:
        begin = row * self.num_envs
        self._table[begin : begin + self.num_envs, columns] = torch.from_numpy(values)


def box_replay_bytes(capacity: int, obs_size: int, num_actions: int) -> int:
    """Return the memory that `capacity` env steps need: four bytes for each number, and eight for their order."""
    return capacity * (4 * (obs_size + num_actions + 2) + 8)


def check_capacity(capacity: int, num_envs: int) -> None:
    """Check that a replay holds an env step of each game.

    Raises:
        UserError: it does not.
    """
    if capacity < num_envs:
        raise UserError(
            f"--replay-size {capacity} is too small for {num_envs} games at once; it must be at least {num_envs}."
        )


def check_box_memory(
    capacity: int,
    obs_size: int,
    num_actions: int,
    device: torch.device,
    available_bytes: int | None = None,
    replays: int = 1,
    copies: int = 0,
    beside: bool = True,
) -> None:
    """Refuse, before the run, a replay that does not fit, or as many as there are to be.

    Args:
        capacity: env steps of each.
        obs_size: D.
        num_actions: A.
        device: where they are to be.
        available_bytes: by default what is free there now.
        replays: as many as there are to be.
        copies: of what they hold that there are while a checkpoint is written; vectors are hardly compressed.
        beside: whether there is to be room for what a run needs beside them.

    Raises:
        UserError: with the number of env steps that would.
    """
    available = available_bytes
    if available is None and device.type == "cuda":
        available = torch.cuda.mem_get_info(device)[0]
    elif available is None:
        available = available_memory()
    each = box_replay_bytes(1, obs_size, num_actions)
    refuse_unfit(capacity, "env steps", each, replays, available, device, copies, beside)


def describe_box_replay(capacity: int, obs_size: int, num_actions: int, device: torch.device) -> str:
    """Return one line that says where the replay is and how much memory it needs."""
    needed = box_replay_bytes(capacity, obs_size, num_actions)
    return f"replay: {capacity:,} env steps, {needed / 1e9:.2g} GB on {device}"
