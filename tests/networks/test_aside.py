"""Gradients of weights that are found aside: the same bits, none of them missing."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from fastdqn.algorithms.dqn import DQNLearner
from fastdqn.algorithms.form import PLAIN, Form
from fastdqn.execution.background import Background
from fastdqn.networks import convolution
from fastdqn.networks.aside import weights_aside
from fastdqn.networks.lowered import backward
from fastdqn.networks.qnetwork import Hidden
from fastdqn.types import Batch, Pieces, Start
from tests.helpers.learners import FAST, learner_from, options_of, random_batch

BF16 = dataclasses.replace(FAST, bf16=True)
LAYERS = 4
"""Of Nature's network that leave them aside: convolutions and the hidden layer."""

pytestmark = pytest.mark.usefixtures("one_torch_thread")


def late(pieces: Pieces) -> Callable[[], None]:
    """Do nothing before somebody waits."""

    def wait() -> None:
        for piece in pieces:
            piece()

    return wait


def beside(pieces: Pieces) -> Callable[[], None]:
    return Background(2).start(pieces)


def channels_last(batch: Batch) -> Batch:
    obs, next_obs = (one.contiguous(memory_format=torch.channels_last) for one in (batch.obs, batch.next_obs))
    return batch._replace(obs=obs, next_obs=next_obs)


def weights_after(variant: Any, form: Form, start: Start | None) -> list[Tensor]:
    learner = learner_from(options_of(variant), form=form)
    learner.aside = start
    for seed in range(3):
        learner.update(channels_last(random_batch(16, seed=seed)))  # as the replay lays them out on a CPU
    assert not any(weight.grad is not None and weight.grad.requires_grad for weight in learner.group.parameters)
    return list(learner.network.parameters())


def gradients_of(learner: DQNLearner) -> list[Tensor]:
    return [weight.grad.clone() for weight in learner.group.parameters if weight.grad is not None]


@pytest.mark.parametrize("start", [late, beside])
@pytest.mark.parametrize(
    ("variant", "form", "amx"),
    [
        ("dqn", PLAIN, False),
        ("dqn", dataclasses.replace(PLAIN, fused=True), False),  # gradients are laid out otherwise than weights
        ("dqn", FAST, False),
        ("dqn", BF16, False),
        ("dqn", BF16, True),
        ("double", BF16, False),
        ("rainbow", BF16, True),
    ],
)
def test_no_bit_of_what_is_learnt_depends_on_it(
    variant: Any, form: Form, start: Start, amx: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(convolution, "has_amx", lambda: amx)
    expected, found = (weights_after(variant, form, one) for one in (None, start))
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


@pytest.mark.parametrize("form", [PLAIN, BF16], ids=["plain", "bf16"])
def test_the_newest_is_done_first_where_nobody_has_begun(form: Form, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first layers' gradients come last, and somebody else begins with the others."""
    monkeypatch.setattr(convolution, "has_amx", lambda: False)  # in blocks the first one leaves nothing
    learner = learner_from(options_of("dqn"), form=form)
    order: list[int] = []
    put: list[None] = []

    def start(pieces: Pieces) -> Callable[[], None]:
        number = len(put)
        put.append(None)
        wait = late(pieces)
        return lambda: (order.append(number), wait())[1]

    learner.aside = start
    learner.update(random_batch(16))
    assert order == [3, 2, 1, 0]
    assert len(put) == LAYERS


def test_values_that_nobody_learns_from_leave_nothing_aside() -> None:
    learner = learner_from(options_of("dqn"), form=BF16)

    def start(pieces: Pieces) -> Callable[[], None]:  # noqa: ARG001
        raise AssertionError

    learner.aside = start
    learner.act(random_batch(4).obs)
    with weights_aside(start), torch.no_grad():
        learner.outputs(random_batch(4).obs)
    backward(learner.outputs(random_batch(4).obs).sum(), learner.group.parameters, learner._lowered)


def test_an_error_aside_is_raised_by_the_update() -> None:
    learner = learner_from(options_of("dqn"))

    def start(pieces: Pieces) -> Callable[[], None]:  # noqa: ARG001
        def piece() -> None:
            raise MemoryError

        return Background(2).start([piece])

    learner.aside = start
    with pytest.raises(MemoryError):
        learner.update(random_batch(16))
    learner.aside = None
    learner.update(random_batch(16))


def test_a_pass_that_has_failed_writes_nothing_into_the_next() -> None:
    """Its pieces, which wait behind other work, are dropped."""
    batches = [random_batch(16, seed=seed) for seed in range(2)]
    learner = learner_from(options_of("dqn"))
    learner.gradient(learner.group, batches[1])
    expected = gradients_of(learner)
    background, go, later, put = Background(2), threading.Event(), threading.Event(), list[None]()

    def busy() -> None:
        assert go.wait(20)

    def start(pieces: Pieces) -> Callable[[], None]:
        put.append(None)
        if len(put) == LAYERS - 1:
            raise MemoryError
        return background.start(pieces)

    background.start([busy])
    learner.aside = start
    with pytest.raises(MemoryError):
        learner.gradient(learner.group, batches[0])
    learner.gradient(learner.group, batches[1])
    background.start([later.set])
    go.set()
    assert later.wait(20)  # nothing is left in the background
    assert all(torch.equal(one, other) for one, other in zip(gradients_of(learner), expected, strict=True))


def test_a_layer_that_does_not_learn_stays_as_it_is() -> None:
    layer = Hidden(4, 4).requires_grad_(False)
    with weights_aside(late):
        backward(layer(torch.randn(2, 4, requires_grad=True)).sum(), layer.parameters(), None)
    assert layer.weight.grad is None
    assert layer.bias.grad is None


def test_a_layer_that_is_in_a_pass_twice_is_refused() -> None:
    layer = Hidden(4, 4)
    with weights_aside(late):
        twice = layer(layer(torch.randn(2, 4))).sum()
        with pytest.raises(ValueError, match="is in one pass twice"):
            backward(twice, layer.parameters(), None)
