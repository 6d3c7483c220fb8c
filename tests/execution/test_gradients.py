"""Players that send gradients: their sum is the serial one exactly, with a slow reader too; slots wait for it."""

from __future__ import annotations

import time

import pytest
import torch

from fastdqn.execution.crew import Desk, Leaving
from fastdqn.execution.gradients import SLOTS, Gradients, ToSlots, mean_scalars
from fastdqn.execution.processes import STOP, Request
from fastdqn.types import SentGradient
from tests.helpers.crews import Toy, clipped_gradient_of, group_of, network, plan_of, weights_of


@pytest.mark.parametrize(
    ("slow", "players"), [pytest.param("reader", 3, marks=pytest.mark.slow), ("players", 1), ("nobody", 2)]
)
def test_the_sums_are_exactly_the_serial_ones(slow: str, players: int) -> None:
    """Each gradient by its player and number, clipped, summed in the order in which they came."""
    module, serial = network(), group_of(network())
    group = group_of(module)
    plan = plan_of(players, toy=Toy(seconds=0.02 if slow == "players" else 0.0), gradients=True)
    counts = [0] * players
    with Gradients(plan, weights_of(module), group) as crew:
        for _ in range(8):
            if slow == "reader":
                time.sleep(0.1)
            sent = crew.take(3)
            crew.lend(group)
            expected = [torch.zeros_like(parameter) for parameter in serial.parameters]
            for i, one in enumerate(sent):
                number = int(one.scalars["loss_total"])
                counts[number] += 1
                assert one.episodes[0].score == counts[number]
                assert one.episodes[0].place == 2 * number + 1
                clipped = clipped_gradient_of(serial, number, counts[number])
                expected = clipped if i == 0 else [a + b for a, b in zip(expected, clipped, strict=True)]
            for parameter, total in zip(group.parameters, expected, strict=True):
                assert parameter.grad is not None
                assert torch.equal(parameter.grad, total)
            assert crew.queued() <= SLOTS * players
    assert sum(counts) == 24


@pytest.mark.slow
def test_waiting_players_are_summed_in_their_order() -> None:
    module = network()
    group = group_of(module)
    with Gradients(plan_of(2, synchronous=True, gradients=True), weights_of(module), group) as crew:
        for _ in range(5):
            assert [one.scalars["loss_total"] for one in crew.take(4)] == [0.0, 1.0, 0.0, 1.0]


def test_a_sum_can_be_stepped_by() -> None:
    """The optimiser's step is in the shared weights themselves, and by the clipped sum."""
    module, serial = network(), network()
    group, other = group_of(module), group_of(serial)
    with Gradients(plan_of(1, gradients=True), weights_of(module), group) as crew:
        crew.take(2)
        crew.lend(group)
        torch.nn.utils.clip_grad_norm_(group.parameters, 0.1)
        group.optimizer.step()
    first, second = (clipped_gradient_of(other, 0, count) for count in (1, 2))
    for parameter, a, b in zip(other.parameters, first, second, strict=True):
        parameter.grad = a + b
    torch.nn.utils.clip_grad_norm_(other.parameters, 0.1)
    other.optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(group.parameters, other.parameters, strict=True))
    assert all(parameter.is_shared() for parameter in group.parameters)


class Pipe:
    """An outbox of which requests come at once."""

    def __init__(self, *requests: Request) -> None:
        self.requests = list(requests)

    def request(self, wait: bool) -> Request | None:
        assert self.requests or not wait, "it would wait for ever"
        return self.requests.pop(0) if self.requests else None


def test_a_slot_is_written_to_again_only_once_it_is_free() -> None:
    group = group_of(network())
    slots = torch.zeros(SLOTS, sum(parameter.numel() for parameter in group.parameters))
    sender = ToSlots(slots)
    pipe = Pipe()
    sender.desk = Desk(pipe, SLOTS)  # type: ignore[arg-type]

    def step(value: float) -> None:
        for parameter in group.parameters:
            parameter.grad = torch.full_like(parameter, value)
        sender.step(group._replace(max_norm=None))

    step(1.0)
    step(2.0)
    with pytest.raises(AssertionError, match="for ever"):
        step(3.0)
    assert slots[:, 0].tolist() == [1.0, 2.0]
    pipe.requests = [Request("free", 1)]
    step(3.0)
    assert slots[:, 0].tolist() == [3.0, 2.0]
    pipe.requests = [STOP]
    with pytest.raises(Leaving):
        step(4.0)


def test_a_weight_without_a_gradient_adds_nothing() -> None:
    group = group_of(network())
    sender = ToSlots(slots := torch.full((SLOTS, sum(p.numel() for p in group.parameters)), 9.0))
    group.parameters[0].grad = torch.ones_like(group.parameters[0])
    sender.step(group)
    count = group.parameters[0].numel()
    assert torch.count_nonzero(slots[0, count:]) == 0
    assert slots[0, :count].norm().item() == pytest.approx(0.1, rel=1e-4)


def test_metrics_are_means() -> None:
    said = [SentGradient({"loss_total": value}, 1, ()) for value in (1.0, 4.0)]
    assert mean_scalars(said)["loss_total"].item() == 2.5
