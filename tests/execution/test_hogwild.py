"""Shared weights without a lock: each trap, with a control that falls into it."""

from __future__ import annotations

import contextlib
import copy
import threading

import pytest
import torch
from torch import nn

from fastdqn.algorithms.sessions import OWN
from fastdqn.errors import RunError, UserError
from fastdqn.execution import hogwild
from fastdqn.execution.hogwild import FIRST_STEPS, Common, Member, Shared, Synced
from fastdqn.execution.session_crew import share_of
from fastdqn.seam import Group
from tests.helpers.sessions import WAYS, control_batch, sac


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


def test_a_first_moment_with_the_second_one_of_another_session_is_a_huge_step() -> None:
    """The trap, and why first steps are made one after the other: sessions that step at once may leave such a pair."""
    (weight,), (other,) = (line().parameters for _ in range(2))
    for one, moment in ((weight, 0.01), (other, 0.0)):  # a gradient of 0.1 here; there a unit that was silent
        group = Group("line", [one], torch.optim.Adam([one], lr=0.1))
        common = Common([group])
        (member,) = common.members["line"]
        Shared(common).bind([group])
        member.step.fill_(1.0)
        member.exp_avg.fill_(moment)
        one.grad = torch.zeros(2)  # silent in this session, too
        group.optimizer.step()
    assert float(weight.detach().abs().max()) > 1e4
    assert other.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(("made", "at_once"), [(0, 0), (FIRST_STEPS, 2)])
@pytest.mark.parametrize("way", WAYS)
def test_first_steps_are_made_one_after_the_other(way: str, made: int, at_once: int) -> None:
    """Later ones at once; the barrier is what two that step at once meet at."""
    common, meeting, met = Common([line()]), threading.Barrier(2), list[bool]()
    common.members["line"][0].step.fill_(float(made))

    def session() -> None:
        group, mine = line(), copy.copy(common)  # the same memory by other tensors, as in another process
        mine.members = {"line": [Member(*(tensor.detach() for tensor in one)) for one in common.members["line"]]}
        descent = WAYS[way](mine)
        descent.bind([group])
        step = group.optimizer.step

        def stepped() -> None:
            with contextlib.suppress(threading.BrokenBarrierError):
                meeting.wait(10.0 if at_once else 0.5)
                met.append(True)
            step()

        group.optimizer.step = stepped  # type: ignore[method-assign, assignment]
        backward(group)
        descent.step(group)

    both = [threading.Thread(target=session) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert len(met) == at_once
    assert float(common.members["line"][0].step) > made


def test_one_that_was_killed_in_its_turn_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hogwild, "TURN", 0.05)
    group = line()
    common = Common([line()])
    descent = Shared(common)
    descent.bind([group])
    assert common._turn.acquire()
    backward(group)
    descent.step(group)
    assert float(common.members["line"][0].step) == 1.0
    assert not common._turn.acquire(block=False)  # it is not this one's to give back


def test_counts_of_steps_at_the_same_moment_are_lost() -> None:
    """The trap of later steps, by hand: one session reads Adam's count before others step, and writes it after.

    What a run says of its updates comes by messages (tests/algorithms/test_sessions.py).
    """
    group, common = line(), Common([line()])
    (member,) = common.members["line"]
    member.step.fill_(float(FIRST_STEPS))
    descent = Shared(common)
    descent.bind([group])
    read = member.step + 1.0
    for _ in range(3):
        backward(group)
        descent.step(group)
    assert float(member.step) == FIRST_STEPS + 3
    member.step.copy_(read)
    assert float(member.step) == FIRST_STEPS + 1


def test_shares_sum_to_the_whole() -> None:
    assert [share_of(10, i, 4) for i in range(4)] == [3, 3, 2, 2]
    assert share_of(None, 0, 2) == float("inf")
