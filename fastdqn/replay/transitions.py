"""The list replay: a list of transitions, and the copies that make a batch of them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastdqn.seeds import set_state, state_of
from fastdqn.states import Later, pack, unpack
from fastdqn.types import Batch, Frame, LazyFrames, Observation, Transition

_PIECE = 2_000  # frames compressed at once


class TransitionList:
    """A ring of the last `capacity` transitions, sampled uniformly with replacement (Mnih et al. 2015).

    It stores references: observations that share frames (LazyFrames) go on sharing them, so that a frame that is
    part of eight stacks is in memory once.
    """

    def __init__(self, capacity: int, rng: np.random.Generator) -> None:
        self.capacity = capacity
        self._rng = rng
        self._items: list[Transition] = []
        self._oldest = 0  # where the next transition goes once the list is full

    def __len__(self) -> int:
        return len(self._items)

    def append(self, transition: Transition) -> None:
        """Store one transition, in place of the oldest once the replay is full."""
        if len(self._items) < self.capacity:
            self._items.append(transition)
            return
        self._items[self._oldest] = transition
        self._oldest = (self._oldest + 1) % self.capacity

    def extend(self, transitions: Sequence[Transition]) -> None:
        """Store several transitions, the oldest first."""
        for transition in transitions:
            self.append(transition)

    def state(self) -> dict[str, Any]:
        """Return all transitions and where the draws stand; they are put together later, in another thread."""
        items = list(self._items)
        return {"items": Later(lambda: _packed(items)), "oldest": self._oldest, "rng": state_of(self._rng)}

    def load(self, state: Mapping[str, Any]) -> None:
        """Hold what a replay of the same size held.

        Raises:
            ValueError: it had another size.
        """
        items = _unpacked(state["items"])
        if len(items) > self.capacity or (state["oldest"] and len(items) < self.capacity):
            raise ValueError(f"{len(items)} transitions are not those of a replay of {self.capacity}")
        self._items, self._oldest = items, state["oldest"]
        set_state(self._rng, state["rng"])

    def discard(self, envs: NDArray[np.bool_] | None) -> None:
        """Drop nothing, as the windows that are open are the player's; with None everything."""
        if envs is None:
            self._items.clear()
            self._oldest = 0

    def sample(self, count: int) -> list[Transition]:
        """Return `count` transitions drawn uniformly with replacement.

        Raises:
            IndexError: if the replay is empty.
        """
        if not self._items:
            raise IndexError("the replay is empty")
        indices: list[int] = self._rng.integers(len(self._items), size=count).tolist()
        items = self._items
        return [items[index] for index in indices]


def _packed(items: Sequence[Transition]) -> dict[str, Any]:
    """Return transitions to be stored: every frame once, and what each observation is made of. Observations that are no
    stacks of frames are one frame each.
    """
    number: dict[int, int] = {}  # of a frame, by its identity
    frames: list[Frame] = []
    pieces: list[dict[str, Any]] = []
    depth = len(_frames_of(items[0].obs)) if items else 0
    stacks = np.zeros((2 * len(items), depth), np.int32)
    packed = 0
    for row, item in enumerate(items):
        for side, obs in enumerate((item.obs, item.next_obs)):
            for place, frame in enumerate(_frames_of(obs)):
                if id(frame) not in number:
                    number[id(frame)] = len(frames)
                    frames.append(frame)
                stacks[2 * row + side, place] = number[id(frame)]
        if len(frames) - packed >= _PIECE or row + 1 == len(items):
            if len(frames) > packed:
                pieces.append(_piece_of(np.stack(frames[packed:])))
            packed = len(frames)
            time.sleep(0.001)  # the run's own thread wants to go on
    return {
        "frames": pieces,
        "stacks": torch.from_numpy(stacks),
        "whole": bool(items) and not hasattr(items[0].obs, "frames"),
        "action": _actions_of(items),
        "reward": torch.tensor([item.reward for item in items], dtype=torch.float64),
        "discount": torch.tensor([item.discount for item in items], dtype=torch.float64),
    }


def _unpacked(said: Mapping[str, Any]) -> list[Transition]:
    """Return the transitions that were stored; they share frames as they did."""
    frames = [frame for piece in said["frames"] for frame in _read(piece)]
    stacks: list[list[int]] = said["stacks"].tolist()
    actions: Any = said["action"].tolist() if said["action"].ndim == 1 else list(said["action"].numpy())
    numbers: list[list[Any]] = [actions, said["reward"].tolist(), said["discount"].tolist()]
    observations: list[Any] = [
        frames[stack[0]] if said["whole"] else LazyFrames(tuple(frames[i] for i in stack)) for stack in stacks
    ]
    return [
        Transition(obs, action, reward, discount, next_obs)
        for obs, next_obs, action, reward, discount in zip(observations[::2], observations[1::2], *numbers, strict=True)
    ]


def _frames_of(obs: Observation) -> tuple[NDArray[Any], ...]:
    """Return the frames of a stack, each (1, H, W), the oldest first; of what is no stack, itself."""
    frames: tuple[Frame, ...] | None = getattr(obs, "frames", None)
    return (np.asarray(obs),) if frames is None else frames


def _piece_of(frames: NDArray[Any]) -> dict[str, Any]:
    """Return frames, (K, ...), to be stored; bytes are compressed."""
    return pack(frames) if frames.dtype == np.uint8 else {"plain": torch.from_numpy(frames)}


def _read(piece: Mapping[str, Any]) -> NDArray[Any]:
    """Return the frames that were stored, (K, ...)."""
    return (piece["plain"] if "plain" in piece else unpack(piece)).numpy()


def _actions_of(transitions: Sequence[Transition]) -> torch.Tensor:
    """Return the actions, (B,) int64, or of continuous ones, (B, A) float32."""
    if transitions and np.ndim(transitions[0].action):
        return torch.from_numpy(np.stack([np.asarray(t.action, np.float32) for t in transitions]))
    return torch.tensor([t.action for t in transitions], dtype=torch.int64)


def collate(transitions: Sequence[Transition], device: torch.device) -> Batch:
    """Stack transitions into one batch on `device`, by copies that wait for their end."""
    obs = np.stack([np.asarray(t.obs) for t in transitions])
    next_obs = np.stack([np.asarray(t.next_obs) for t in transitions])
    return Batch(
        torch.from_numpy(obs).to(device),
        _actions_of(transitions).to(device),
        torch.tensor([t.reward for t in transitions], dtype=torch.float32).to(device),
        torch.tensor([t.discount for t in transitions], dtype=torch.float32).to(device),
        torch.from_numpy(next_obs).to(device),
    )


class AsyncCollator:
    """Stacks transitions in page-locked memory and copies them to the device without waiting.

    Two sets of buffers take turns, so that one can be filled while the other is still being copied. Both
    halves matter: `non_blocking=True` from pageable memory waits all the same. On the CPU there is nothing to
    copy and this is `collate` (lasting buffers would fragment the heap there).
    """

    def __init__(self, batch_size: int, obs_shape: tuple[int, int, int], device: torch.device) -> None:
        self._device = device
        self._on_cuda = device.type == "cuda"
        self._slots = [empty_batch(batch_size, obs_shape, pin=True) for _ in range(2)] if self._on_cuda else []
        self._copied = [torch.cuda.Event() for _ in self._slots]
        self._turn = 0

    def __call__(self, transitions: Sequence[Transition]) -> Batch:
        """Return the batch; on CUDA its copies may still be under way on the current stream."""
        if not self._on_cuda:
            return collate(transitions, self._device)
        turn = self._turn
        self._turn = 1 - turn
        slot = self._slots[turn]
        self._copied[turn].synchronize()  # the copy of two calls ago has long ended
        fill(slot, transitions)
        batch = Batch._make(None if part is None else part.to(self._device, non_blocking=True) for part in slot)
        self._copied[turn].record()
        return batch


def fill(batch: Batch, transitions: Sequence[Transition]) -> None:
    """Write transitions into the CPU tensors of `batch`."""
    obs, next_obs = batch.obs.numpy(), batch.next_obs.numpy()
    for row, transition in enumerate(transitions):
        _write(transition.obs, obs[row])
        _write(transition.next_obs, next_obs[row])
    batch.action.numpy()[:] = [t.action for t in transitions]
    batch.reward.numpy()[:] = [t.reward for t in transitions]
    batch.discount.numpy()[:] = [t.discount for t in transitions]


def _write(obs: Observation, out: Frame) -> None:
    """Write one observation; a stack's frames go straight to their place, without being put together first."""
    frames: tuple[Frame, ...] | None = getattr(obs, "frames", None)
    if frames is None:
        out[...] = obs
    else:
        np.concatenate(frames, axis=0, out=out)


def empty_batch(batch_size: int, obs_shape: tuple[int, int, int], pin: bool = False) -> Batch:
    """Return a batch of uninitialised CPU tensors, page-locked with `pin`."""

    def empty(*shape: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, pin_memory=pin)

    return Batch(
        empty(batch_size, *obs_shape, dtype=torch.uint8),
        empty(batch_size, dtype=torch.int64),
        empty(batch_size, dtype=torch.float32),
        empty(batch_size, dtype=torch.float32),
        empty(batch_size, *obs_shape, dtype=torch.uint8),
    )
