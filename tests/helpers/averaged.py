"""A second way to carry updates out, outside the library: gradients of two halves, computed one by one and averaged."""

from __future__ import annotations

import torch

from fastdqn.algorithms.descent import Local
from fastdqn.seam import Learner
from fastdqn.types import Batch, Metrics


class Averaged:
    """Makes a learner's updates from the mean of two gradients."""

    def __init__(self, learner: Learner[Batch]) -> None:
        self.learner = learner
        self.descent = Local()

    def update(self, batch: Batch) -> Metrics:
        """Make one update on `batch`, of which each half gives a gradient."""
        made: list[Metrics] = []
        for group in self.learner.groups():
            gradients: list[list[torch.Tensor]] = []
            for half in _halves(batch):
                made.append(self.learner.gradient(group, half))
                gradients.append([parameter.grad for parameter in group.parameters if parameter.grad is not None])
            for parameter, first, second in zip(group.parameters, *gradients, strict=True):
                parameter.grad = (first + second) / 2
            self.descent.step(group)
            self.learner.stepped(group)
        scalars = {name: (value + made[1].scalars[name]) / 2 for name, value in made[0].scalars.items()}
        return Metrics(scalars, torch.cat([metrics.priority for metrics in made]))


def _halves(batch: Batch) -> list[Batch]:
    half, rest = divmod(len(batch.action), 2)
    assert not rest
    return [
        Batch._make(None if tensor is None else tensor[part] for tensor in batch)
        for part in (slice(0, half), slice(half, None))
    ]
