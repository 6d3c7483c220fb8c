"""Centred RMSProp, with its epsilon under the root."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fastdqn.foreach import centered_rmsprop_all


class CenteredRMSProp(torch.optim.Optimizer):
    """Divides each gradient g by sqrt(E[g^2] - E[g]^2 + epsilon); the means forget 5% at each step (Graves 2013, eq. 38
    to 41, without momentum; Mnih et al. 2015, extended data table 1 and the authors' code).

    PyTorch's RMSprop adds its epsilon outside the root, which is another step where the gradient hardly varies.

    Args:
        parameters: all on one device.
        lr: learning rate; on the device, () float32, if it may change between two replays of a CUDA graph.
        epsilon: as above.
        decay: share of the means that is kept at each step.
    """

    def __init__(self, parameters: Sequence[Tensor], lr: float | Tensor, epsilon: float, decay: float = 0.95) -> None:
        super().__init__(parameters, {"lr": lr, "epsilon": epsilon, "decay": decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:  # noqa: ARG002 - as every optimiser's
        """Make a step with all gradients."""
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            for parameter in parameters:
                if not self.state[parameter]:
                    self.state[parameter] = {name: torch.zeros_like(parameter) for name in ("mean", "square")}
            means, squares = ([self.state[parameter][name] for parameter in parameters] for name in ("mean", "square"))
            gradients = [parameter.grad for parameter in parameters]
            centered_rmsprop_all(parameters, gradients, means, squares, group["lr"], group["epsilon"], group["decay"])
