"""What a model of Stable-Baselines3 has, as far as the adapter looks, and what two ranks make of one."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

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
