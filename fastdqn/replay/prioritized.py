"""Prioritized experience replay on the device: frames stored once, drawn in proportion to their priorities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastdqn.replay.arrivals import needs_staging
from fastdqn.replay.priorities import Priorities
from fastdqn.replay.ring import FrameReplay
from fastdqn.types import Batch, Frame, VectorStep

MEDIAN_OF = 1_000_000
"""Priorities, at most, of which a report's median is taken."""


class PrioritizedReplay:
    """A frame replay whose transitions are drawn in proportion to priority^exponent (Schaul et al. 2016, section 3.3).

    Each batch takes one draw from each of B equal parts of the total (appendix B.2.1). New transitions get the largest
    priority there is now, so that each is drawn soon, unless the frames' replay knows TD errors from the values that
    the agent gave while it played. The importance weights are (P(i) / min P)^-beta, those of the paper's algorithm 1
    with the maximum over the batch instead of all weights; beta is 0, and so all are 1, until `set_beta` is called.

    Args:
        frames: the storage; its uniform draws are not used.
        exponent: alpha; 0 draws uniformly.
        floor: added to every priority, so that none is ever 0.
    """

    def __init__(self, frames: FrameReplay, exponent: float = 0.6, floor: float = 1e-6) -> None:
        self.frames = frames
        self.windows = frames.windows
        self.device, self.generator = frames.device, frames.generator
        self.priorities = Priorities(frames.size, frames.device)
        self._exponent = exponent
        self._floor = floor
        self._beta = torch.zeros((), device=frames.device)
        self._one = torch.ones((), device=frames.device)
        self._zeros = torch.zeros(frames.num_envs, device=frames.device)
        frames.afterwards = self._forget_gone if needs_staging(frames.device) else None
        self._filled = frames.starts()[1] + 1  # rows whose transitions have had their first priorities

    def __len__(self) -> int:
        """Env steps stored, resets included."""
        return len(self.frames)

    def stacks(self) -> Tensor:
        """Return the newest observation of every game, (N, C, H, W) uint8 on the learner's device."""
        return self.frames.stacks()

    def mean_frame(self) -> Tensor:
        """Return the mean of all stored frames, (H, W) float32."""
        return self.frames.mean_frame()

    def observations(self, count: int, generator: torch.Generator) -> Tensor:
        """Return `count` stored observations, (count, C, H, W) uint8, drawn uniformly with `generator`."""
        return self.frames.observations(count, generator)

    def reset(self, frames: Frame) -> None:
        """Begin with the games' first frames, (N, H, W) uint8."""
        self.frames.reset(frames)
        self._clear()

    def add(self, actions: NDArray[np.int64], step: VectorStep) -> None:
        """Store a step of the games; the transitions that are complete now get their first priorities."""
        self.frames.add(actions, step)
        gone, complete = self.frames.starts()
        if gone >= 0 and self.frames.afterwards is None:
            self.priorities.fill(self.frames.begin_of(gone), self._zeros)
        for begin, real in self.frames.spans(self._filled, complete + 1):
            errors = self.frames.errors(begin, begin + len(real))
            self.priorities.fill(begin, real * (self._largest() if errors is None else self._priority(errors)))
        self._filled = max(0, complete + 1)

    def state(self) -> dict[str, Any]:
        """Return everything that is stored, as the frames' replay does, and the priorities."""
        return {
            "frames": self.frames.state(),
            "priorities": self.priorities.state(),
            "beta": float(self._beta),
            "filled": self._filled,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Hold what a replay of the same size held."""
        self.frames.load(state["frames"])
        self.priorities.load(state["priorities"])
        self._filled = int(state["filled"])
        self.set_beta(state["beta"])

    def discard(self, envs: NDArray[np.bool_] | None) -> None:
        """Let the newest transition of these games, (N,), be the last before a truncation; with None, begin with the
        games' newest frames.
        """
        self.frames.discard(envs)
        if envs is None:
            self._clear()

    def set_beta(self, beta: float) -> None:
        """Set the exponent of the importance weights, for graphed draws too; does not wait for the device."""
        self._beta.fill_(beta)

    def sample(self, batch_size: int) -> Batch:
        """Return B transitions drawn by priority, with importance weights and where each is kept.

        Raises:
            IndexError: there are none yet.
        """
        if self._filled == 0:
            raise IndexError("the replay holds no whole window yet")
        uniform = torch.rand(batch_size, dtype=torch.float64, generator=self.generator, device=self.device)
        return self.draw(uniform)

    def draw(self, uniform: Tensor) -> Batch:
        """Return the transitions that B numbers in [0, 1), (B,) float64, stand for, one in each B-th of the total."""
        count = len(uniform)
        strata = torch.arange(count, dtype=torch.float64, device=self.device)
        slot, leaf = self.priorities.find((strata + uniform) / count)
        weight = ((leaf / leaf.min()) ** -self._beta).to(self.frames.learner_device)
        return self.frames.transitions(*self.frames.time_and_game(slot))._replace(weight=weight, slot=slot)

    def write_back(self, batch: Batch, priority: Tensor) -> None:
        """Give the transitions of `batch` their new priorities (B,) >= 0; one below 0, or no number, counts as 0.
        Those that steps since the draw have put out of reach stay there.

        A run whose loss is no number any more continues until somebody looks at the loss.

        Raises:
            ValueError: the batch does not say where they are kept.
        """
        if batch.slot is None:
            raise ValueError("the batch does not say where its transitions are kept: it was drawn from another replay")
        old = self.priorities.leaves().index_select(0, batch.slot)
        self.priorities.put(batch.slot, torch.where(old > 0, self._priority(priority.to(self.device)), old))

    def _forget_gone(self) -> None:
        """Let nothing be drawn any more that the last step put out of reach."""
        self.priorities.put(self.frames.gone(), self._zeros)

    def renew(self) -> None:
        """Let the priorities of all that can be drawn follow from the errors of now, if the frames know them."""
        errors = self.frames.errors(0, self.frames.size)
        if errors is not None:
            leaves = self.priorities.leaves()
            self.priorities.fill(0, torch.where(leaves > 0, self._priority(errors), leaves))

    def spread(self) -> dict[str, float]:
        """Return how far apart the priorities are: their smallest, median and largest, with beta; nothing while none
        can be drawn, or all are drawn alike. Of a replay of more than a million the median is that of a sample: at most
        a million, evenly spaced. Waits for the device.
        """
        leaves = self.priorities.leaves()
        drawable = leaves[leaves > 0]
        if len(drawable) == 0 or self._exponent == 0:
            return {}
        sample = drawable[:: -(-len(drawable) // MEDIAN_OF)].cpu().numpy().astype(np.float64)
        power = 1.0 / self._exponent
        return {
            "priority/min": float(drawable.min()) ** power,
            "priority/median": float(np.median(sample**power)),
            "priority/max": float(drawable.max()) ** power,
            "priority/beta": float(self._beta),
        }

    def _priority(self, errors: Tensor) -> Tensor:
        return (torch.nan_to_num(errors, nan=0.0).clamp(min=0.0) + self._floor) ** self._exponent

    def _largest(self) -> Tensor:
        top = self.priorities.largest()
        return torch.where(top > 0, top, self._one)

    def _clear(self) -> None:
        self.priorities.clear()
        self._filled = 0


DeviceReplay = FrameReplay | PrioritizedReplay
"""Frames on the device, drawn from uniformly or by priority."""


def frames_of(replay: DeviceReplay) -> FrameReplay:
    """Return what stores the frames of a replay, however transitions are drawn from it."""
    return replay.frames if isinstance(replay, PrioritizedReplay) else replay
