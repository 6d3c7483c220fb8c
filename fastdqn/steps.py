"""What whoever learns, and whoever carries it out, change of an optimiser: learning rate, and where it continues."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def set_learning_rate(optimizer: torch.optim.Optimizer, learning_rate: float) -> None:
    """Change the learning rate of all later steps, those of a graph too; does not wait for the device."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(learning_rate)
        else:
            group["lr"] = learning_rate


def learning_rate_of(optimizer: torch.optim.Optimizer) -> Tensor:
    """Return the learning rate of the next step, () float64, or float32 where graphs read it from the device; does not
    wait for it.
    """
    rate = optimizer.param_groups[0]["lr"]
    return rate.detach().clone() if isinstance(rate, Tensor) else torch.tensor(rate, dtype=torch.float64)


def load_optimizer(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Continue with the moments and the learning rate of `state`; how a step is carried out stays this device's choice,
    and moments lie as their weights do, which optimisers in one kernel take for granted.
    """
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state["state"], "param_groups": groups})
    for weight, moments in optimizer.state.items():
        for name, moment in moments.items():
            if isinstance(moment, Tensor) and moment.shape == weight.shape and moment.stride() != weight.stride():
                moments[name] = torch.empty_like(weight, dtype=moment.dtype).copy_(moment)
    set_learning_rate(optimizer, float(state["param_groups"][0]["lr"]))
