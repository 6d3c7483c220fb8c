"""A recorder: what the agent sees is shown at once, and stored in the replay, unless the recorder is paused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastdqn.replay.prioritized import DeviceReplay
from fastdqn.replay.ring import NewestStacks
from fastdqn.replay.stored_returns import StoredReturns
from fastdqn.states import copied
from fastdqn.types import Frame, VectorStep


class Recorder:
    """Stores the steps of N games in a replay until it is paused: an agent that is frozen plays on and on, and its
    games would push out those that it is to learn from.

    The stacks that the agent acts on come from a few rows of frames of their own, so that they are the same whether
    anything is stored or not. After a pause the replay continues as after a truncation: its last windows bootstrap from
    the last observation before the pause, and the first stacks after it are filled up with zeros.

    Args:
        replay: that is learnt from.
        shown: the newest frames of the same games, from `few_rows`.
        least: env steps that the replay must hold before a pause takes effect.
    """

    def __init__(self, replay: DeviceReplay, shown: NewestStacks, least: int) -> None:
        self.replay = replay
        self.returns = StoredReturns(replay)
        """Those of the replay; `note` calls theirs."""
        self._shown = shown
        self._least = least
        self._paused = False
        self._latest: tuple[NDArray[np.int64], VectorStep] | None = None  # shown, and to be stored
        self._missed: Frame | None = None  # (N, H, W), the newest of the frames that were not stored

    def reset(self, frames: Frame) -> None:
        """Begin with the games' first frames, (N, H, W) uint8."""
        self._latest = self._missed = None
        self.replay.reset(frames)
        self._shown.reset(frames)

    def pause(self, paused: bool) -> None:
        """Store nothing from the next step on, or store again."""
        self._paused = paused

    def add(self, actions: NDArray[np.int64], step: VectorStep) -> None:
        """Show what came of the actions (N,) in the newest observations; `store` stores it."""
        self.store()
        self._shown.add(actions, step)
        if self._paused and len(self.replay) >= self._least:
            self._missed = step.frames.copy()
        else:
            self._latest = actions.copy(), step

    def store(self) -> None:
        """Store the step that was shown last, if that is still to be done: a good moment is while the games play."""
        if self._latest is not None:
            self.replay.add(*self._latest)
            self._latest = None

    def note(self) -> None:
        """Keep the values of the newest observations, if returns are learnt; to be called once they are evaluated,
        after `store`, and before the step that follows them.
        """
        if self._missed is not None and self._paused:
            return
        if self._missed is not None:
            everyone = np.ones(len(self._missed), bool)
            self.replay.discard(everyone)
            none, nothing = np.zeros(len(everyone), np.int64), np.zeros(len(everyone), np.float32)
            self.replay.add(none, VectorStep(self._missed, nothing, ~everyone, ~everyone, everyone, ()))
            self._missed = None
        self.returns.note()

    def stacks(self) -> Tensor:
        """Return the newest observation of every game, (N, C, H, W) uint8 on the device."""
        return self._shown.stacks()

    def state(self) -> dict[str, Any]:
        """Return everything that is stored or shown."""
        self.store()
        missed = [] if self._missed is None else [copied(self._missed)]
        shown = self._shown.state()  # first, as it is to be fetched: its few rows are soon to be written over
        return {"shown": shown, "replay": self.replay.state(), "paused": self._paused, "missed": missed}

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from there."""
        self._latest = None
        self.replay.load(state["replay"])
        self._shown.load(state["shown"])
        self._paused = bool(state["paused"])
        self._missed = state["missed"][0].numpy() if state["missed"] else None

    def discard(self, envs: NDArray[np.bool_] | None) -> None:
        """Let the newest transition of these games, (N,), be the last before a truncation; with None, begin with the
        games' newest frames.
        """
        self.store()
        self.replay.discard(envs)
        self._shown.discard(envs)
        self._missed = None if envs is None else self._missed


def few_rows(
    num_envs: int,
    obs_shape: tuple[int, int, int],
    device: torch.device,
    channels_last: bool = False,
    newest: Callable[[], Frame] | None = None,
) -> NewestStacks:
    """Return a ring that holds just enough for the newest stacks (C, H, W) of N games."""
    stack, height, width = obs_shape
    rows = stack + 4
    return NewestStacks(rows * num_envs, num_envs, (height, width), stack, 1, 1.0, device, 0, channels_last, newest)
