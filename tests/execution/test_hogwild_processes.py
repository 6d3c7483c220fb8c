"""Two processes that share weights: every algorithm, in first steps and in those that wait for nobody."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import pytest
import torch

from fastdqn.algorithms.sessions import OWN
from fastdqn.execution.hogwild import FIRST_STEPS, TURN, Common, Shared
from fastdqn.execution.processes import ChildProcess
from tests.helpers.sessions import KINDS, WAYS, learn, parameters_of


def run_two(kind: str, way: str, updates: int, made: int = 0) -> tuple[Any, Common]:
    """Let two processes make so many updates each, as if `made` steps had been made before; return a learner that was
    here all the while, and what is shared.
    """
    learner = KINDS[kind][0]()
    common = Common(learner.groups(), OWN)
    Shared(common).bind(learner.groups())
    if made:
        for member in (member for members in common.members.values() for member in members):
            member.step.fill_(float(made))
            member.exp_avg_sq.fill_(1e-3)
    descents = [WAYS[way](common) for _ in range(2)]
    children = [ChildProcess(learn, (kind, one, updates, i), f"session {i}", 2, 60.0) for i, one in enumerate(descents)]
    held = common._turn if made else contextlib.nullcontext()  # whoever waits for it does so for a second each time
    with held, children[0], children[1]:
        said = [child.receive() for child in children]
    assert not any(shared for one in said for shared in one)  # no gradient
    return learner, common


def counts_of(common: Common) -> list[float]:
    """Return the steps that Adam has counted, of each parameter."""
    return [float(member.step) for members in common.members.values() for member in members]


@pytest.mark.parametrize(
    ("kind", "way"),
    [
        ("sac", "synced"),
        ("dqn", "shared"),
        *(
            pytest.param(*one, marks=pytest.mark.slow)
            for one in (("sac", "shared"), ("a2c", "shared"), ("ppo", "synced"))
        ),
    ],
)
def test_every_algorithm_learns_so(kind: str, way: str) -> None:
    """What is learnt in two processes is seen here without a message; of Adam's first steps none is lost."""
    before = [tensor.detach().clone() for tensor in parameters_of(KINDS[kind][0]())]
    learner, common = run_two(kind, way, 10)
    shared = [p for group in learner.groups() if group.name not in OWN for p in group.parameters]
    own = [p for group in learner.groups() if group.name in OWN for p in group.parameters]
    assert all(bool(torch.isfinite(parameter).all()) for parameter in shared)
    assert set(counts_of(common)) == {20.0}
    after = parameters_of(learner)
    changed = [not torch.equal(a, b) for a, b in zip(before, after, strict=True)]
    assert sum(changed) == len(shared)
    assert len(after) == len(shared) + len(own)


@pytest.mark.parametrize("way", WAYS)
def test_later_steps_wait_for_nobody(way: str) -> None:
    """Somebody else has the turn all the while, which first steps would wait for. Counts may be lost, of steps at the
    same moment, but never all; above, where steps wait, none is.
    """
    began = time.monotonic()
    learner, common = run_two("sac", way, 100, FIRST_STEPS)
    assert all(bool(torch.isfinite(parameter).all()) for parameter in parameters_of(learner))
    assert min(counts_of(common)) > FIRST_STEPS
    assert max(counts_of(common)) <= FIRST_STEPS + 200
    assert time.monotonic() - began < 100 * TURN  # of each group


def test_first_steps_wait_for_their_turn() -> None:
    """The control: in one process, for a step that somebody else has the turn of."""
    learner = KINDS["sac"][0]()
    common = Common(learner.groups(), OWN)
    descent = Shared(common)
    descent.bind(learner.groups())
    group = next(group for group in learner.groups() if group.name not in OWN)
    for parameter in group.parameters:
        parameter.grad = torch.ones_like(parameter)
    began = time.monotonic()
    with common._turn:
        descent.step(group)
    assert time.monotonic() - began >= TURN
