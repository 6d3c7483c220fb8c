"""Shared weights without a lock: each trap, with a control that falls into it; and every algorithm, once."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fastdqn.algorithms.sessions import OWN
from fastdqn.errors import RunError, UserError
from fastdqn.execution.hogwild import Common, Shared, Synced
from fastdqn.execution.processes import ChildProcess
from fastdqn.execution.session_crew import share_of
from fastdqn.seam import Group
from tests.helpers.sessions import KINDS, control_batch, learn, parameters_of, sac

WAYS = {"shared": Shared, "synced": Synced}


def line(value: float = 1.0) -> Group:
    """A loss of 2 w1 - w2 has the same gradient everywhere."""
    weight = nn.Parameter(torch.full((2,), value))
    return Group("line", [weight], torch.optim.Adam([weight], lr=0.1))


def backward(group: Group) -> None:
    (group.parameters[0] * torch.tensor([2.0, -1.0])).sum().backward()


def norm_of(group: Group) -> float:
    gradient = group.parameters[0].grad
    assert gradient is not None
    return float(gradient.norm())


def copies(tensors: list[Tensor]) -> list[Tensor]:
    return [tensor.detach().clone() for tensor in tensors]


def test_no_gradient_is_left_to_be_added_to() -> None:
    """The trap of synced sessions: a lent gradient that stays with the session's weights grows at every step."""
    group = line()
    descent = Synced(Common([line()]))
    descent.bind([group])
    norms: list[float] = []
    for _ in range(3):
        backward(group)
        norms.append(norm_of(group))
        descent.step(group)
    assert norms == pytest.approx([5**0.5] * 3)


def test_a_lent_gradient_grows_where_it_is_left() -> None:
    """The control: `zero_grad` of the shared weights' optimiser sets theirs to None, and leaves the session's."""
    group, shared = line(), line()
    norms: list[float] = []
    for _ in range(3):
        backward(group)
        norms.append(norm_of(group))
        shared.parameters[0].grad = group.parameters[0].grad
        shared.optimizer.step()
        shared.optimizer.zero_grad()
    assert norms == pytest.approx([5**0.5, 2 * 5**0.5, 3 * 5**0.5])


def test_moments_are_there_before_the_first_step_and_shared() -> None:
    group = line()
    assert not group.optimizer.state  # the control: there is nothing to share yet
    common = Common([group])
    (member,) = common.members["line"]
    assert all(tensor.is_shared() for tensor in member)
    assert len({tensor.untyped_storage().data_ptr() for tensor in member}) == 1  # each storage keeps a file open
    Shared(common).bind([group])
    for _ in range(3):
        backward(group)
        group.optimizer.step()
    assert float(member.step) == 3.0
    assert bool((member.exp_avg != 0).all())
    assert bool((member.exp_avg_sq != 0).all())


@pytest.mark.parametrize("way", WAYS)
def test_an_optimiser_of_other_parameters_is_refused(way: str) -> None:
    common = Common([line()])
    weight = nn.Parameter(torch.ones(2))
    foreign = Group("line", [weight], line().optimizer)
    weight.grad = torch.ones(2)
    foreign.optimizer.step()
    assert weight.tolist() == [1.0, 1.0]  # the control: it learns nothing, and nobody says so
    with pytest.raises(ValueError, match=r"^the optimiser of the group 'line' steps other parameters than the group's"):
        WAYS[way](common).bind([foreign])
    with pytest.raises(ValueError, match="steps other parameters"):
        Common([foreign])


@pytest.mark.parametrize("way", WAYS)
def test_what_is_not_shared_is_refused(way: str) -> None:
    common = Common([line()])
    group = line()
    with pytest.raises(ValueError, match=r"^the group 'line' is not bound to what sessions share$"):
        WAYS[way](common).step(group)
    with pytest.raises(ValueError, match=r"^nothing is shared of the group 'other'$"):
        WAYS[way](common).bind([group._replace(name="other")])
    wide = nn.Parameter(torch.ones(3))
    with pytest.raises(ValueError, match=r"^the group 'line' has other parameters than those that are shared$"):
        WAYS[way](common).bind([Group("line", [wide], torch.optim.Adam([wide]))])
    with pytest.raises(ValueError, match="another optimiser"):
        Common([Group("line", [wide], torch.optim.SGD([wide]))])


def test_weights_that_have_moved_are_refused() -> None:
    """Say a network that was converted or loaded with `assign`: the session would learn for itself alone."""
    group = line()
    descent = Shared(Common([line()]))
    descent.bind([group])
    group.parameters[0].data = group.parameters[0].data.clone()
    with pytest.raises(ValueError, match="is not bound"):
        descent.step(group)


def test_a_device_whose_memory_is_not_shared_so_is_one_sentence() -> None:
    weight = nn.Parameter(torch.ones(2, device="meta"))
    with pytest.raises(UserError, match=r"^Sessions share weights in the memory of the CPU; train with --device cpu"):
        Common([Group("line", [weight], torch.optim.Adam([weight]))])


def test_memory_that_cannot_be_shared_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where /dev/shm is full, or files are limited."""

    def share(_: torch.Tensor) -> None:
        raise RuntimeError("unable to resize file </torch_1> to the right size\nException raised from ...")

    monkeypatch.setattr(torch.Tensor, "share_memory_", share)
    weight = nn.Parameter(torch.ones(2))
    with pytest.raises(RunError) as caught:
        Common([Group("line", [weight], torch.optim.Adam([weight]))])
    assert str(caught.value) == (
        "Memory cannot be shared between processes (unable to resize file </torch_1> to the right size); /dev/shm may "
        "be full."
    )


@pytest.mark.parametrize("way", WAYS)
def test_gradients_are_each_sessions_own(way: str) -> None:
    group = line()
    backward(group)
    descent = WAYS[way](Common([group]))
    descent.bind([group])
    backward(group)
    gradient = group.parameters[0].grad
    assert gradient is not None
    assert not gradient.is_shared()


def test_sharing_a_module_shares_its_gradients() -> None:
    """The control: what PyTorch shares of a module that has gradients."""
    module = nn.Linear(2, 1)
    module(torch.ones(1, 2)).sum().backward()
    gradient = module.share_memory().weight.grad
    assert gradient is not None
    assert gradient.is_shared()


@pytest.mark.parametrize("max_norm", [None, 0.1])
@pytest.mark.parametrize("way", WAYS)
def test_one_session_steps_as_if_it_were_alone(way: str, max_norm: float | None) -> None:
    """Bit for bit: weights, moments, targets and temperature, with and without a clip."""
    alone, together = sac(max_norm), sac(max_norm)
    common = Common(together.groups(), OWN)
    descent = WAYS[way](common)
    together.descent = descent
    descent.bind(together.groups())
    for i in range(5):
        alone.update(control_batch(i))
        together.update(control_batch(i))
    for name, tensor in alone.tensors().items():
        assert torch.equal(tensor, together.tensors()[name]), name
    for group in alone.groups():
        for parameter, member in zip(group.parameters, common.members.get(group.name, []), strict=False):
            assert torch.equal(parameter, member.weight)
            moments = group.optimizer.state[parameter]
            assert all(torch.equal(moments[name], getattr(member, name)) for name in ("step", "exp_avg", "exp_avg_sq"))


def test_copies_come_as_often_as_was_asked_for() -> None:
    group, other = line(), line()
    common = Common([line()])
    rare, often = Synced(common, 3), Synced(common)
    rare.bind([group])
    often.bind([other])
    own: list[bool] = []
    for _ in range(6):
        backward(group)
        rare.step(group)
        own.append(torch.equal(group.parameters[0], common.members["line"][0].weight))
    assert own == [False, False, True, False, False, True]
    assert not torch.equal(other.parameters[0], group.parameters[0])
    often.refresh([other])
    assert torch.equal(other.parameters[0], group.parameters[0])


def test_a_state_is_written_to_where_it_is_shared() -> None:
    group = line()
    common = Common([group])
    Shared(common).bind([group])
    state = common.state()
    backward(group)
    group.optimizer.step()
    assert not torch.equal(group.parameters[0], state["tensors"][0])
    common.load(state)
    assert torch.equal(group.parameters[0], state["tensors"][0])
    assert float(group.optimizer.state[group.parameters[0]]["step"]) == 0.0
    assert all(tensor.is_shared() for tensor in common.tensors())


def run_two(kind: str, way: str, updates: int) -> tuple[Any, Common]:
    """Let two processes make so many updates each; return a learner that was here all the while, and what is shared."""
    learner = KINDS[kind][0]()
    common = Common(learner.groups(), OWN)
    Shared(common).bind(learner.groups())
    descents = [WAYS[way](common) for _ in range(2)]
    children = [ChildProcess(learn, (kind, one, updates, i), f"session {i}", 2, 60.0) for i, one in enumerate(descents)]
    with children[0], children[1]:
        said = [child.receive() for child in children]
    assert not any(shared for one in said for shared in one)  # no gradient
    return learner, common


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
    """What is learnt in two processes is seen here without a message; some of Adam's counts may be lost, few are."""
    before = copies(parameters_of(KINDS[kind][0]()))
    learner, common = run_two(kind, way, 10)
    shared = [p for group in learner.groups() if group.name not in OWN for p in group.parameters]
    own = [p for group in learner.groups() if group.name in OWN for p in group.parameters]
    assert all(bool(torch.isfinite(parameter).all()) for parameter in shared)
    counts = [float(member.step) for members in common.members.values() for member in members]
    assert 10 < min(counts) <= max(counts) <= 20
    after = parameters_of(learner)
    changed = [not torch.equal(a, b) for a, b in zip(before, after, strict=True)]
    assert sum(changed) == len(shared)
    assert len(after) == len(shared) + len(own)


def test_shares_sum_to_the_whole() -> None:
    assert [share_of(10, i, 4) for i in range(4)] == [3, 3, 2, 2]
    assert share_of(None, 0, 2) == float("inf")
