"""Descent: gradients are clipped, stepped and taken, and Adam brings no compiler."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor

from fastdqn.algorithms.descent import Local
from fastdqn.algorithms.dqn import DQNLearner, Settings
from fastdqn.foreach import clip, norm_of_all
from fastdqn.options.dqn import DQNOptions
from fastdqn.options.groups import Groups
from fastdqn.seam import Group
from fastdqn.steps import learning_rate_of, set_learning_rate
from tests.helpers.learners import CPU, FAST, SHAPE, learner_from, network, random_batch


class Subtract:
    """An optimiser whose step is the gradient itself. (Making PyTorch's SGD would import the compiler.)"""

    def __init__(self, parameters: list[Tensor]) -> None:
        self.parameters = parameters

    def step(self) -> None:
        with torch.no_grad():
            for parameter in self.parameters:
                assert parameter.grad is not None
                parameter -= parameter.grad


def group_of(*gradients: list[float], max_norm: float | None) -> Group:
    """Return parameters of zeros with these gradients."""
    parameters = [torch.zeros(len(gradient), requires_grad=True) for gradient in gradients]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = torch.tensor(gradient)
    optimizer: Any = Subtract(parameters)
    return Group("some", parameters, optimizer, max_norm)


def stepped(group: Group) -> tuple[list[list[float]], float]:
    """Step `group`; return its parameters, and the norm of the gradient that they were stepped by."""
    Local().step(group)
    return [parameter.tolist() for parameter in group.parameters], norm_of(group)


def norm_of(group: Group) -> float:
    return float(norm_of_all([parameter.grad for parameter in group.parameters if parameter.grad is not None]))


def test_a_step_takes_every_gradient_of_its_group_alone() -> None:
    group = group_of([1.0, -2.0], [3.0], max_norm=None)
    others = group_of([5.0], max_norm=None)
    assert stepped(group) == ([[-1.0, 2.0], [-3.0]], pytest.approx(14**0.5))
    (other,) = others.parameters
    assert other.grad is not None  # of another group
    assert (other.grad.item(), other.item()) == (5.0, 0.0)


def test_gradients_are_clipped_to_the_largest_norm_of_their_group() -> None:
    """Two parameters of norm 3 and 4: together 5, so that each is divided by 5 for a largest norm of 1."""
    group = group_of([3.0], [0.0, 4.0], max_norm=1.0)
    assert norm_of(group) == pytest.approx(5.0)
    moved, norm = stepped(group)
    assert moved == [pytest.approx([-0.6], abs=1e-5), pytest.approx([0.0, -0.8], abs=1e-5)]
    assert norm == pytest.approx(1.0)


def test_a_gradient_below_the_largest_norm_stays_as_it_is() -> None:
    moved, norm = stepped(group_of([3.0], [0.0, 4.0], max_norm=5.5))
    assert moved == [[-3.0], [0.0, -4.0]]
    assert norm == pytest.approx(5.0)


@pytest.mark.parametrize("scale", [1e-3, 1.0, float("nan")])
def test_a_clip_has_the_bits_of_pytorchs(scale: float) -> None:
    """Below the largest norm, above it, and where a gradient is no number."""
    drawn = [scale * torch.randn(size, generator=torch.Generator().manual_seed(size)) for size in (1, 40, 3000)]
    ours, theirs = ([torch.zeros_like(gradient, requires_grad=True) for gradient in drawn] for _ in range(2))
    for parameter, gradient in zip([*ours, *theirs], [*drawn, *drawn], strict=True):
        parameter.grad = gradient.clone()
    norms = norm_of_all(drawn), torch.nn.utils.clip_grad_norm_(theirs, 10.0)
    clip([*ours, torch.zeros(2, requires_grad=True)], 10.0)
    assert torch.equal(*(norm.view(torch.int32) for norm in norms))
    for one, other, gradient in zip(ours, theirs, drawn, strict=True):
        assert one.grad is not None
        assert other.grad is not None
        assert torch.equal(one.grad.view(torch.int32), other.grad.view(torch.int32))
        assert torch.equal(one.grad, gradient) == (scale == 1e-3)


def test_who_decides_alone_has_the_mean() -> None:
    value = torch.tensor(0.25)
    assert torch.equal(Local().mean(value), value)


def test_a_group_says_how_far_its_gradient_may_go() -> None:
    """A learner's update clips to its group's largest norm, whatever the gradient's was."""
    learner = DQNLearner(network(), network)
    learner.gradient(learner.group, random_batch(4))
    assert norm_of(learner.group) > 1e-2
    learner.descent.step(learner.group._replace(max_norm=1e-3))
    assert norm_of(learner.group) == pytest.approx(1e-3, rel=1e-3)


def test_the_learning_rate_reaches_the_optimiser() -> None:
    learner = DQNLearner(network(), network, Settings(learning_rate=3e-3))
    assert [group["lr"] for group in learner.group.optimizer.param_groups] == [3e-3]


def test_what_is_said_of_a_learning_rate_stays_as_it_was() -> None:
    """With CUDA graphs it is a tensor, which later learning rates are written to."""
    rate = torch.tensor(1e-3)
    optimizer = torch.optim.Adam([torch.zeros(1, requires_grad=True)], lr=rate, capturable=True)
    said = learning_rate_of(optimizer)
    set_learning_rate(optimizer, 1e-4)
    assert (said.item(), learning_rate_of(optimizer).item()) == pytest.approx((1e-3, 1e-4))


def test_a_learning_rate_that_is_changed_counts_from_the_next_step_on() -> None:
    learner = learner_from(Groups(dqn=DQNOptions()), CPU, FAST, SHAPE)
    before = [p.detach().clone() for p in learner.network.parameters()]
    learner.set_learning_rate(1e-3)
    learner.update(random_batch(4))
    step = max(
        float((p.detach() - old).abs().max()) for p, old in zip(learner.network.parameters(), before, strict=True)
    )
    assert step == pytest.approx(1e-3, rel=0.05)  # Adam's first step is the learning rate


def test_building_a_learner_and_updating_do_not_import_the_compiler() -> None:
    """It would take 1.5 s of every start."""
    code = """
import sys, torch
from fastdqn.build import build_learner
from fastdqn.options.dqn import DQNOptions
from fastdqn.seeds import seeds_of
from fastdqn.types import Batch
learner = build_learner(seeds_of(0), DQNOptions(), (4, 84, 84), 6, torch.device("cpu"))
learner.group.optimizer.zero_grad()
assert learner.group.optimizer.state_dict()["param_groups"][0]["lr"] == 1e-4
assert len(learner.group.optimizer.param_groups[0]["params"]) == 10
batch = Batch(*(torch.zeros(2, *shape).to(kind) for shape, kind in (
    ((4, 84, 84), torch.uint8), ((), torch.int64), ((), torch.float32), ((), torch.float32), ((4, 84, 84), torch.uint8)
)))
before = [p.clone() for p in learner.network.parameters()]
learner.update(batch)
assert any(not torch.equal(a, b) for a, b in zip(before, learner.network.parameters()))
assert "torch._dynamo" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
