"""A recorder: what the agent sees is shown at once, and stored in the replay, unless the recorder is paused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fastdqn.replay.newest import NewestStacks
from fastdqn.replay.prioritized import DeviceReplay
from fastdqn.replay.stored_returns import StoredReturns
from fastdqn.states import copied
from fastdqn.types import Came, Frame, VectorStep


class Recorder:
    """Stores the steps of N games in a replay until it is paused: an agent that is frozen plays on and on, and its
    games would push out those that it is to learn from.

    The stacks that the agent acts on come from a few rows of frames of their own, so that they are the same whether
    anything is stored or not, and are there before it is stored: `show` is called as soon as the games have made a
    step, `add` may wait until they play again. After a pause the replay continues as after a truncation: its last
    windows bootstrap from the last observation before the pause, and the first stacks after it are filled up with
    zeros.

    Args:
        replay: that is learnt from.
        shown: the newest frames of the same games.
        least: env steps that the replay must hold before a pause takes effect.
    """

    def __init__(self, replay: DeviceReplay, shown: NewestStacks, least: int) -> None:
        self.replay = replay
        self.returns = StoredReturns(replay)
        """Those of the replay; `note` calls theirs."""
        self._shown = shown
        self._least = least
        self._paused = False
        self._missed: Frame | None = None  # (N, H, W), the newest of the frames that were not stored

    def reset(self, frames: Frame) -> None:
        """Begin with the games' first frames, (N, H, W) uint8."""
        self._missed = None
        self.replay.reset(frames)
        self._shown.reset(frames)

    def pause(self, paused: bool) -> None:
        """Store nothing from the next step on, or store again."""
        self._paused = paused

    @property
    def resting(self) -> bool:
        """Whether nothing is stored."""
        return self._paused and len(self.replay) >= self._least

    def show(self, came: Came) -> None:
        """Show what came of the actions of all games in the newest observations."""
        self._shown.add(*came)

    def add(self, came: Came) -> None:
        """Store what came of the actions of all games; it has been shown."""
        if self.resting:
            self._missed = came.step.frames.copy()
        else:
            self.replay.add(*came)

    def note(self) -> None:
        """Keep the values of the newest observations, where returns are learnt: to be called after each `add`, once
        these observations are evaluated.
        """
        if self._missed is not None and self._paused:
            return
        if self._missed is not None:  # the pause is over
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
        missed = [] if self._missed is None else [copied(self._missed)]
        # first, as it is to be fetched: its few rows are soon to be written over
        shown = self._shown.state()
        return {"shown": shown, "replay": self.replay.state(), "paused": self._paused, "missed": missed}

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from there."""
        self.replay.load(state["replay"])
        self._shown.load(state["shown"])
        self._paused = bool(state["paused"])
        self._missed = state["missed"][0].numpy() if state["missed"] else None

    def discard(self, envs: NDArray[np.bool_] | None) -> None:
        """Let the newest transition of these games, (N,), be the last before a truncation; with None, begin with the
        games' newest frames.
        """
        self.replay.discard(envs)
        if envs is None:
            self._missed = None
            self._shown.discard(None)
