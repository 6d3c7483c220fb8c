"""An average of a network's weights over its last updates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from fastdqn.foreach import copy_all, lerp_all
from fastdqn.states import NothingUnfinished, Part, on_cpu

EVERY = 10
"""Updates between two looks at the weights."""


class AveragedWeights(NothingUnfinished):
    """A running average of the weights (Polyak & Juditsky 1992), in which those of long ago count less and less. It
    takes no part in learning.

    Args:
        network: whose weights are followed.
        share: of the weights of now in the average, at each look; of the first looks it is the mean. None for no
            average: then `tensors` are the network's own.
    """

    def __init__(self, network: nn.Module, share: float | None) -> None:
        self._share = share
        self.tensors: Mapping[str, Tensor] = network.state_dict()
        """The average, by the names that weights have in the network, and what else belongs to its state."""
        self._weights = [weight.detach() for weight in network.parameters()]
        self._means: list[Tensor] = []
        if share is not None:
            self._means = [weight.clone() for weight in self._weights]
            names = (name for name, _ in network.named_parameters())
            self.tensors = {**self.tensors, **dict(zip(names, self._means, strict=True))}

    @property
    def parts(self) -> dict[str, Part]:
        """What a checkpoint has to hold of it, by name: itself, or nothing without an average."""
        return {} if self._share is None else {"average": self}

    def updated(self, updates: int) -> None:
        """Look at the weights, after so many updates, if it is time to."""
        if self._share is None:
            return
        if updates < EVERY:  # so that a run that ends before the first look does not leave its initial weights
            copy_all(self._means, self._weights)
        elif updates % EVERY == 0:
            lerp_all(self._means, self._weights, max(self._share, EVERY / updates))

    def state(self) -> dict[str, Any]:
        """Return the average."""
        return {"means": on_cpu(self._means)}

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from there."""
        for mean, kept in zip(self._means, state["means"], strict=True):
            mean.copy_(kept)
