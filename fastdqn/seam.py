"""The seam between what is learnt and how it is carried out.

A learner computes gradients, and a descent says what becomes of them. An update is, for each of the learner's groups in
their order, `gradient(group, batch)`, then `descent.step(group)`, then `stepped(group)`: a later group may need the
weights of an earlier one as they are after its step. Algorithms and ways to carry them out know this file and not each
other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from fastdqn.types import Metrics

BatchT = TypeVar("BatchT", contravariant=True)


class Group(NamedTuple):
    """Parameters that are stepped together."""

    name: str
    parameters: Sequence[Tensor]
    optimizer: torch.optim.Optimizer
    max_norm: float | None = None  # the gradient is clipped to this norm


class Descent(Protocol):
    """What becomes of gradients."""

    def step(self, group: Group) -> None:
        """Take every .grad of `group`; what is left there counts for nothing, and the next `gradient` drops it."""
        ...

    def mean(self, value: Tensor) -> Tensor:
        """Return the mean of `value` over all who decide together."""
        ...


class Learner(Protocol[BatchT]):
    """What learns, whatever carries it out."""

    def act(self, obs: Tensor) -> Tensor:
        """Return the actions (N, ...) for observations (N, ...)."""
        ...

    def groups(self) -> Sequence[Group]:
        """Return the groups in the order in which an update steps them."""
        ...

    def gradient(self, group: Group, batch: BatchT) -> Metrics:
        """Leave the gradient of the loss on `batch` with the parameters of `group`, and with no others.

        What is there from before is dropped, not added to, just before the backward pass: dropped sooner its memory
        would go back to the system, and the next update would have to fetch it anew.
        """
        ...

    def stepped(self, group: Group) -> None:
        """Do what follows the step of `group`, say move a target network."""
        ...

    def tensors(self) -> Mapping[str, Tensor]:
        """Return all that others must share to learn the same: weights, targets, temperatures."""
        ...

    def state(self) -> dict[str, Any]:
        """Return copies of all that `load` needs."""
        ...

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from there; before the first update."""
        ...
