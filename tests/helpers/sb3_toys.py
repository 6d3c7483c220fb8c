"""What a model of Stable-Baselines3 has, as far as the adapter looks, and what two ranks make of one."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from fastdqn import sb3
from fastdqn.execution.ranks import Ranks

RATE = 0.5


def model_of(**more: Any) -> Any:
    """Return a model with one weight (3,), and its optimiser."""
    policy: Any = torch.nn.Module()
    policy.weight = torch.nn.Parameter(torch.zeros(3))
    policy.optimizer = torch.optim.SGD([policy.weight], lr=1.0)
    return SimpleNamespace(policy=policy, **more)


def learner_of(max_norm: float | None, rank: int = 0) -> Any:
    """Return a model with `rank`'s two weights (3,) and momentum; no loss depends on the second weight."""
    policy: Any = torch.nn.Module()
    policy.weight = torch.nn.Parameter(torch.tensor([1.0, -2.0, 0.5]) + rank)
    policy.unused = torch.nn.Parameter(torch.ones(3) + rank)
    policy.optimizer = torch.optim.SGD(policy.parameters(), lr=RATE, momentum=0.5)
    policy.weight.grad = torch.full((3,), 0.25 + rank)
    policy.optimizer.step()
    return SimpleNamespace(policy=policy, max_grad_norm=max_norm)


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs (8, 3) and targets (8,); the first half's gradients are far larger than those of the second."""
    rng = torch.Generator().manual_seed(0)
    inputs = torch.randn(8, 3, generator=rng)
    return inputs, torch.randn(8, generator=rng) * torch.where(torch.arange(8) < 4, 100.0, 1.0)


def trained(model: Any, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Make two updates as Stable-Baselines3 does, its clip included; return the weights (6,)."""
    policy = model.policy
    for _ in range(2):
        policy.optimizer.zero_grad()
        (inputs @ policy.weight - targets).square().mean().backward()
        if model.max_grad_norm is not None:
            torch.nn.utils.clip_grad_norm_(policy.parameters(), model.max_grad_norm)
        policy.optimizer.step()
    return torch.cat([policy.weight.detach(), policy.unused.detach()])


def clip_first(model: Any) -> None:
    """The control: as `average`, but each rank's own clip stays, before the mean."""
    max_norm, model.max_grad_norm = model.max_grad_norm, None
    sb3.average(model)
    model.max_grad_norm = max_norm


def summed(model: Any) -> None:
    """The control: as `average`, but with the sum."""
    sb3.average(model)
    model.policy.optimizer.register_step_pre_hook(lambda *_: _double(model.policy))


def _double(policy: Any) -> None:
    for one in policy.parameters():
        one.grad.mul_(2.0)


WAYS: dict[str, Callable[[Any], None]] = {"average": sb3.average, "clip first": clip_first, "sum": summed}
MAX_NORMS = (None, 1.0)


def halves(ranks: Ranks) -> dict[tuple[str, float | None], torch.Tensor]:
    """Return the weights of this rank after updates on its half of the batch, by each way."""
    inputs, targets = (one.chunk(2)[ranks.rank] for one in batch())
    found: dict[tuple[str, float | None], torch.Tensor] = {}
    for way, prepare in WAYS.items():
        for max_norm in MAX_NORMS:
            model = learner_of(max_norm, ranks.rank)
            prepare(model)
            found[way, max_norm] = trained(model, inputs, targets)
    return found


class Running:
    """A running mean and variance of all rows that it has seen, as Stable-Baselines3's RunningMeanStd says it."""

    def __init__(self, shape: tuple[int, ...], before: float) -> None:
        self.mean: Any = np.full(shape, before)
        self.var: Any = np.full(shape, before**2)
        self.count = 10.0 * before

    def update(self, rows: Any) -> None:
        total = self.count + len(rows)
        mean = (self.count * self.mean + rows.sum(axis=0)) / total
        second = self.count * (self.var + self.mean**2) + (rows**2).sum(axis=0)
        self.mean, self.var, self.count = mean, second / total - mean**2, total


def seen_rows(rank: int) -> list[tuple[Any, Any]]:
    """Return what a rank sees between two updates: observations (T, 3) and returns (T,), none before the last."""
    rng = np.random.default_rng(rank)
    counts = (5, 8, 0) if rank == 0 else (7, 1, 0)
    return [(rng.normal(4.0 + rank, 2.0, (count, 3)), rng.normal(-50.0, 9.0, count)) for count in counts]


def normalised(ranks: Ranks) -> list[list[Any]]:
    """Return mean, variance and count of observations, by one name and by two, and of returns, after each update."""
    found: list[list[Any]] = []
    for by_names in (False, True):
        began = Running((3,), 1.0 + ranks.rank)
        returns = Running((), 2.0 + ranks.rank)
        observations: Any = {"a": began, "b": Running((3,), 3.0)} if by_names else began
        model = learner_of(None, ranks.rank)
        environments = SimpleNamespace(obs_rms=observations, ret_rms=returns)
        model.get_vec_normalize_env = lambda environments=environments: environments
        sb3.average(model)
        for rows, sums in seen_rows(ranks.rank):
            began.update(rows)
            returns.update(sums)
            model.policy.optimizer.step()
            had = [one for kept in (began, returns) for one in (kept.mean, kept.var, kept.count)]
            found.append([np.array(one) for one in had])
    return found
