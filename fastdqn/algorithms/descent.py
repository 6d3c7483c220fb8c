"""Descent in one place: gradients are clipped and stepped where they were computed. And optimisers, without PyTorch's
detours.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils import _foreach_utils

from fastdqn.algorithms.rmsprop import CenteredRMSProp
from fastdqn.foreach import clip
from fastdqn.seam import Group


class Local:
    """Clips the gradient to its group's largest norm, if it has one, and makes the optimiser's step."""

    def step(self, group: Group) -> None:
        """Take every .grad of `group`."""
        if group.max_norm is not None:
            clip(group.parameters, group.max_norm)
        group.optimizer.step()

    def mean(self, value: Tensor) -> Tensor:
        """Return `value`: nobody else decides."""
        return value


def build_adam(
    parameters: Sequence[Tensor],
    learning_rate: float,
    epsilon: float,
    fused: bool,
    capturable: bool,
    decay: float = 0.0,
) -> torch.optim.Optimizer:
    """Return Adam (Kingma & Ba 2015), or AdamW where weights decay (Loshchilov & Hutter 2019).

    Args:
        parameters: all on one device.
        learning_rate: at the start.
        epsilon: added to the root of the second moment.
        fused: whether a step is one kernel.
        capturable: whether a step reads its size from the device, so that it may change between two replays of a graph.
        decay: a step takes off the learning rate times this of each weight of two dimensions or more.
    """
    _keep_compiler_out()
    lr, kind = _step_size(parameters, learning_rate, capturable), torch.optim.AdamW if decay else torch.optim.Adam
    groups: Any = parameters
    if decay:
        weights, biases = [p for p in parameters if p.dim() > 1], [p for p in parameters if p.dim() <= 1]
        groups = [{"params": weights, "weight_decay": decay}, {"params": biases, "weight_decay": 0.0}]
    return _without_compiler(kind)(groups, lr=lr, eps=epsilon, fused=fused or None, capturable=capturable)


def build_rmsprop(
    parameters: Sequence[Tensor], learning_rate: float, epsilon: float, capturable: bool
) -> CenteredRMSProp:
    """Return centred RMSProp as in Mnih et al. 2015; `epsilon` is added under the root, the rest is as for Adam."""
    _keep_compiler_out()
    return CenteredRMSProp(parameters, _step_size(parameters, learning_rate, capturable), epsilon)


def fused_adam_on(device: torch.device) -> bool:
    """Tell whether this PyTorch has Adam in one kernel on `device`; 2.4 has none on mps."""
    return device.type in cast(Any, _foreach_utils)._get_fused_kernels_supported_devices()


def _step_size(parameters: Sequence[Tensor], learning_rate: float, capturable: bool) -> float | Tensor:
    return torch.tensor(learning_rate, device=parameters[0].device) if capturable else learning_rate


def _without_compiler(kind: Any) -> Any:
    """Return this kind of Adam with a step that does not import torch's compiler, which would slow every start down.

    PyTorch's own step is wrapped into a function that imports the compiler in order to turn gradients off, which is
    done here. Once the compiler has been imported anyway, nothing is changed.
    """
    inner: Any = inspect.unwrap(kind.step)
    if "torch._dynamo" in sys.modules or inner is kind.step:
        return kind

    class Adam(kind):
        def step(self, closure: Any = None) -> Any:
            with torch.no_grad():
                return inner(self, closure)

    return Adam


def _keep_compiler_out() -> None:
    """Make an optimiser without importing torch's compiler either.

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
