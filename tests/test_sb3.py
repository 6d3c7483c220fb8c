"""The adapter of Stable-Baselines3 without it: what is refused, and the clip, which is left to the hook."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fastdqn.errors import UserError
from fastdqn.sb3 import average


def model_of(**more: Any) -> Any:
    """Return what a model of Stable-Baselines3 has, as far as the adapter looks: one weight (3,), and its optimiser."""
    policy: Any = torch.nn.Module()
    policy.weight = torch.nn.Parameter(torch.zeros(3))
    policy.optimizer = torch.optim.SGD([policy.weight], lr=1.0)
    return SimpleNamespace(policy=policy, **more)


def test_the_clip_is_made_once_before_the_step() -> None:
    """A gradient of norm 5 is clipped to 1, whatever the model's own clip does after `average`."""
    model = model_of(max_grad_norm=1.0)
    average(model)
    assert model.max_grad_norm == math.inf
    model.policy.weight.grad = torch.tensor([3.0, 4.0, 0.0])
    torch.nn.utils.clip_grad_norm_(model.policy.parameters(), model.max_grad_norm)
    assert model.policy.weight.grad.tolist() == [3.0, 4.0, 0.0]
    model.policy.optimizer.step()
    torch.testing.assert_close(model.policy.weight.detach(), torch.tensor([-0.6, -0.8, 0.0]))


def test_without_a_clip_there_is_none() -> None:
    model = model_of()
    average(model)
    model.policy.weight.grad = torch.tensor([3.0, 4.0, 0.0])
    model.policy.optimizer.step()
    assert model.policy.weight.tolist() == [-3.0, -4.0, 0.0]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"target_kl": 0.01}, "target_kl stops each rank by a divergence of its own"),
        ({"train_freq": SimpleNamespace(unit=SimpleNamespace(value="episode"))}, "train_freq in episodes lets each"),
    ],
)
def test_what_would_leave_ranks_waiting_is_refused(more: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=rf"^{said}.*\.$"):
        average(model_of(**more))
    average(model_of(target_kl=None, train_freq=SimpleNamespace(unit=SimpleNamespace(value="step"))))
