"""What tests of networks measure."""

from __future__ import annotations

from torch import eye, nn


def apart(layer: nn.Linear | nn.Conv2d, gain: float) -> float:
    """Return how far the rows or columns, whichever are fewer, are from being orthogonal and as long as `gain`."""
    weight = layer.weight.detach().flatten(1)
    weight = weight if weight.shape[0] <= weight.shape[1] else weight.T
    return float((weight @ weight.T - gain**2 * eye(len(weight))).abs().max())
