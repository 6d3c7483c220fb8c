"""The learner: networks, optimiser, and what one update does."""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from torch import nn

from fastdqn.config import DQNOptions
from fastdqn.losses import mean_squared_td_error, q_learning_target, taken_values
from fastdqn.types import Batch, Metrics


class DQNLearner:
    """Deep Q-learning as in the 2017 post: mean squared TD error, Adam, a target network copied now and then.

    Args:
        network: the online network, on its device.
        make_network: makes another one of the same shape, for the target.
        options: learning rate.
    """

    def __init__(self, network: nn.Module, make_network: Callable[[], nn.Module], options: DQNOptions) -> None:
        self.network = network
        device = next(network.parameters()).device
        self.target = make_network().to(device).requires_grad_(False)
        self.sync_target()
        _keep_compiler_out()
        self.optimizer = torch.optim.Adam(network.parameters(), lr=options.learning_rate)

    def update(self, batch: Batch) -> Metrics:
        """Make one optimiser step on `batch` (B transitions on the learner's device); does not wait for it."""
        with torch.no_grad():
            q_t = self.target(batch.next_obs)  # (B, A)
            target = q_learning_target(batch.reward, batch.discount, q_t, q_t)  # (B,)
        qa_tm1 = taken_values(self.network(batch.obs), batch.action)  # (B,)
        loss = mean_squared_td_error(qa_tm1, target)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return Metrics(loss.detach(), qa_tm1.detach().mean())

    def sync_target(self) -> None:
        """Copy the online network into the target network (Mnih et al. 2015)."""
        self.target.load_state_dict(self.network.state_dict())


def _keep_compiler_out() -> None:
    """Make an optimiser without importing torch's compiler, which takes 1.5 s of every start.

    PyTorch marks four methods of its optimisers as not to be compiled, and imports the compiler at their first call in
    order to say so. Nothing is compiled here, so each is handed back as it is; once the compiler has been
    imported anyway, nothing is changed.
    """
    if "torch._dynamo" in sys.modules:
        return
    for name in ("add_param_group", "zero_grad", "state_dict", "load_state_dict"):
        method = getattr(getattr(torch.optim.Optimizer, name, None), "__wrapped__", None)
        if method is not None and not hasattr(method, "__dynamo_disable"):
            setattr(method, "__dynamo_disable", method)
