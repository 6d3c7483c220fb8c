"""Gradients of weights that are found aside: the same bits, none of them missing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from fastdqn.algorithms.form import PLAIN, Form
from fastdqn.execution.background import Background
from fastdqn.networks import convolution
from fastdqn.networks.aside import weights_aside
from fastdqn.networks.lowered import backward
from fastdqn.networks.qnetwork import Hidden
from fastdqn.types import Pieces, Start
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


def weights_after(variant: Any, form: Form, start: Start | None) -> list[Tensor]:
    learner = learner_from(options_of(variant), form=form)
    learner.aside = start
    for seed in range(3):
        learner.update(random_batch(16, seed=seed))
    return list(learner.network.parameters())


@pytest.mark.parametrize("start", [late, beside])
@pytest.mark.parametrize(
    ("variant", "form", "amx"),
    [
        ("dqn", PLAIN, False),
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
def test_the_newest_is_done_first_where_nobody_has_begun(form: Form) -> None:
    """The first layers' gradients come last, and somebody else begins with the others."""
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


def test_a_layer_that_is_in_a_pass_twice_is_refused() -> None:
    layer = Hidden(4, 4)
    with weights_aside(late):
        twice = layer(layer(torch.randn(2, 4))).sum()
        with pytest.raises(ValueError, match="is in one pass twice"):
            backward(twice, layer.parameters(), None)
