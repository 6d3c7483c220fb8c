"""Stable-Baselines3 over ranks: its `learn` as it is, with the mean of all ranks' gradients in each step.

    model = PPO("MlpPolicy", "CartPole-v1", seed=int(os.environ.get("RANK", 0)))
    average(model)
    model.learn(100_000)

under `torchrun --nproc-per-node 2`, or alone, where it changes nothing. Every rank plays environments of its own, so
give each a seed of its own; what they begin with is rank 0's. A callback that stops one rank must stop all in the same
step: who makes one more waits for the others in vain.
"""

from __future__ import annotations

import atexit
import io
import math
import os
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed

from fastdqn.errors import UserError

dist: Any = torch.distributed  # whose signatures are partly unknown
_NORM = "max_norm_of_the_average"
"""What a model calls its `max_grad_norm` once `average` has taken that over."""


def average(model: Any, timeout: float = 300.0) -> None:
    """Let `model` step by the mean of the gradients of all ranks, which is then clipped, as one rank clips its own.

    Its parameters, targets, temperature and moments become those of rank 0.

    Args:
        model: of Stable-Baselines3 (PPO, A2C, DQN, SAC, TD3, DDPG), before `learn`.
        timeout: seconds for which a rank waits for the others.

    Raises:
        UserError: its ranks would not make the same number of updates.
    """
    if getattr(model, "target_kl", None) is not None:
        raise UserError("target_kl stops each rank by a divergence of its own, and the others wait; leave it out.")
    unit = getattr(getattr(model, "train_freq", None), "unit", None)
    if getattr(unit, "value", unit) == "episode":
        raise UserError("train_freq in episodes lets each rank learn at times of its own; give it in steps.")
    if not dist.is_initialized() and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        dist.init_process_group("gloo", timeout=timedelta(seconds=timeout))
        atexit.register(dist.destroy_process_group)
    max_norm = getattr(model, "max_grad_norm", None)
    max_norm = getattr(model, _NORM, max_norm) if max_norm == math.inf else max_norm
    if max_norm is not None:
        # Its own clip, of what is no average yet, does nothing. A model is saved with both numbers.
        setattr(model, _NORM, max_norm)
        model.max_grad_norm = math.inf
    optimizers = list(_optimizers(model))
    if _world() > 1:
        _begin_alike(model, optimizers)
    for optimizer in optimizers:
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]

        def step(*_: object, parameters: list[Any] = parameters) -> None:
            _average(parameters)
            if max_norm is not None:
                torch.nn.utils.clip_grad_norm_(parameters, max_norm)

        optimizer.register_step_pre_hook(step)


def _optimizers(model: Any) -> Iterator[Any]:
    """Yield the optimisers of policy, actor, critic and temperature, those that there are."""
    policy = model.policy
    owners = (policy, getattr(policy, "actor", None), getattr(policy, "critic", None))
    found = [*(getattr(owner, "optimizer", None) for owner in owners), getattr(model, "ent_coef_optimizer", None)]
    yield from {id(one): one for one in found if one is not None}.values()


def _begin_alike(model: Any, optimizers: list[Any]) -> None:
    tensors = [*model.policy.state_dict().values(), getattr(model, "log_ent_coef", None)]
    for tensor in (one for one in tensors if one is not None):
        there = tensor.detach().cpu()
        dist.broadcast(there, 0)
        tensor.data.copy_(there)
    for optimizer in optimizers:
        written = io.BytesIO()
        torch.save(optimizer.state_dict(), written)
        said = _first(torch.frombuffer(bytearray(written.getvalue()), dtype=torch.uint8))
        optimizer.load_state_dict(torch.load(io.BytesIO(said.numpy().tobytes()), weights_only=True))


def _first(data: Any) -> Any:
    """Return rank 0's `data`, uint8, which may be of another length than those of the others."""
    size = torch.tensor([len(data)])
    dist.broadcast(size, 0)
    said = data if dist.get_rank() == 0 else torch.zeros(int(size), dtype=torch.uint8)
    dist.broadcast(said, 0)
    return said


def _average(parameters: list[Any]) -> None:
    if _world() == 1:
        return
    gradients = [torch.zeros_like(one) if one.grad is None else one.grad for one in parameters]
    flat = torch.cat([gradient.detach().flatten() for gradient in gradients])
    there = flat.cpu()
    dist.all_reduce(there)
    flat.copy_(there).div_(_world())
    means: Sequence[Any] = torch.split(flat, [one.numel() for one in parameters])
    for parameter, mean in zip(parameters, means, strict=True):
        parameter.grad = mean.view_as(parameter)


def _world() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1
