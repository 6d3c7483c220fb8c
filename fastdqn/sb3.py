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

import numpy as np
import torch
import torch.distributed

from fastdqn.errors import UserError

dist: Any = torch.distributed  # whose signatures are partly unknown
_NORM = "max_norm_of_the_average"
"""What a model calls its `max_grad_norm` once `average` has taken that over."""


def average(model: Any, timeout: float = 300.0) -> None:
    """Let `model` step by the mean of the gradients of all ranks, which is then clipped, as one rank clips its own.

    Its parameters, targets, temperature and moments become those of rank 0, and so do the means and variances of its
    `VecNormalize`, if it has one; before each update all ranks then get those of what all of them have seen.

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
        atexit.register(_leave)
    max_norm = getattr(model, "max_grad_norm", None)
    max_norm = getattr(model, _NORM, max_norm) if max_norm == math.inf else max_norm
    if max_norm is not None:
        # Its own clip, of what is no average yet, does nothing. A model is saved with both numbers.
        setattr(model, _NORM, max_norm)
        model.max_grad_norm = math.inf
    optimizers = list(_optimizers(model))
    seen = [_Moments(one) for one in _statistics(model)] if _world() > 1 else []
    if _world() > 1:
        _begin_alike(model, optimizers)
    for number, optimizer in enumerate(optimizers):
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]

        def step(*_: object, parameters: list[Any] = parameters, first: bool = number == 0) -> None:
            for moments in seen if first else ():
                moments.add_all()
            _average(parameters)
            if max_norm is not None:
                torch.nn.utils.clip_grad_norm_(parameters, max_norm)

        optimizer.register_step_pre_hook(step)


def _leave() -> None:
    if dist.is_initialized():  # the program may have left itself
        dist.destroy_process_group()


def _optimizers(model: Any) -> Iterator[Any]:
    """Yield the optimisers of policy, actor, critic and temperature, those that there are."""
    policy = model.policy
    owners = (policy, getattr(policy, "actor", None), getattr(policy, "critic", None))
    found = [*(getattr(owner, "optimizer", None) for owner in owners), getattr(model, "ent_coef_optimizer", None)]
    yield from {id(one): one for one in found if one is not None}.values()


def _statistics(model: Any) -> list[Any]:
    """Return the running means and variances by which its environments are normalised."""
    normalized = getattr(model, "get_vec_normalize_env", lambda: None)()
    if normalized is None:
        return []
    seen = getattr(normalized, "obs_rms", None)
    return [*(seen.values() if isinstance(seen, dict) else (seen,) if seen is not None else ()), normalized.ret_rms]


class _Moments:
    """A running mean and variance over all ranks, which begins with what rank 0 has.

    Args:
        statistics: Stable-Baselines3's RunningMeanStd, of this rank.
    """

    def __init__(self, statistics: Any) -> None:
        self._statistics = statistics
        had = _stacked(statistics.mean, statistics.var, statistics.count)
        dist.broadcast(had, 0)
        self._keep(*had.numpy())

    def add_all(self) -> None:
        """Add what all ranks have seen since the last time; all sums are about the mean of then."""
        mine, mean, var, count = self._statistics, self._mean, self._var, self._count
        away = mine.mean - mean
        sums = _stacked(mine.count * away, mine.count * (mine.var + away**2) - count * var, mine.count - count)
        dist.all_reduce(sums)
        first, second, seen = sums.numpy()
        if seen.any():
            total = count + seen
            self._keep(mean + first / total, (count * var + second) / total - (first / total) ** 2, total)

    def _keep(self, mean: Any, var: Any, count: Any) -> None:
        self._mean, self._var, self._count = mean.copy(), var.copy(), float(count.max())
        mine = self._statistics
        mine.mean, mine.var, mine.count = mean.copy(), var.copy(), self._count


def _stacked(mean: Any, var: Any, count: float) -> Any:
    """Return three rows of float64, of the mean's shape each."""
    return torch.from_numpy(np.stack((mean, var, np.full_like(mean, count))).astype(np.float64))


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
