"""Gradients of weights aside: the layers before a layer wait for the gradient of its input alone."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar

import torch
from torch import Tensor

from fastdqn.types import Start


class Aside:
    """What one backward pass leaves to be done aside.

    Args:
        start: where.
    """

    def __init__(self, start: Start) -> None:
        self._start = start
        self._waits: list[Callable[[], None]] = []
        self._layers: set[torch.nn.Module] = set()
        self._over = False

    def put(self, layer: torch.nn.Module, find: Callable[[], tuple[Tensor, Tensor]]) -> None:
        """Let `find` give the gradients of weight and bias of `layer`, its parameters in this order, in place of the
        backward pass.

        Raises:
            ValueError: the pass came by this layer before, whose gradient would be a sum.
        """
        if layer in self._layers:
            raise ValueError(f"{layer} is in one pass twice: its gradients cannot be left aside")
        self._layers.add(layer)

        def piece() -> None:
            if self._over:
                return
            with torch.no_grad():  # another thread has a mode of its own
                for parameter, gradient in zip(layer.parameters(), find(), strict=True):
                    parameter.grad = _laid_out_as(parameter, gradient)

        self._waits.append(self._start([piece]))

    def finish(self) -> None:
        """Return once all is done; the newest, which nobody has begun yet, is done here."""
        while self._waits:
            self._waits.pop()()

    def leave(self) -> None:
        """Let what is not done yet, of a pass that has failed, be undone: it would end in the next one."""
        self._over = True
        while self._waits:
            with suppress(Exception):  # the pass has failed by another one
                self._waits.pop()()


_now: ContextVar[Aside | None] = ContextVar("aside", default=None)


@contextmanager
def weights_aside(start: Start | None) -> Generator[None]:
    """Leave the gradients of weights to `start`, of layers that know how to, in passes forwards and backwards of this
    thread. The pass backwards (`lowered.backward`) ends when they are found, too.
    """
    aside = None if start is None else Aside(start)
    token = _now.set(aside)
    try:
        yield
    finally:
        _now.reset(token)
        if aside is not None:
            aside.leave()


def left_aside(
    layer: torch.nn.Module, find: Callable[[], tuple[Tensor, Tensor]]
) -> tuple[Tensor | None, Tensor | None]:
    """Return the gradients of weight and bias of `layer`, which `find` finds, or nothing where they are left aside. A
    layer that does not learn has none to leave.
    """
    aside = _now.get()
    if aside is None or not all(parameter.requires_grad for parameter in layer.parameters()):
        return find()
    aside.put(layer, find)
    return None, None


def aside_now() -> Aside | None:
    """Return what gradients of weights are left to, if anything."""
    return _now.get()


def _laid_out_as(parameter: Tensor, gradient: Tensor) -> Tensor:
    """Return `gradient` in the layout of `parameter`, as a backward pass leaves it: a fused optimiser step asks for no
    strides.
    """
    same = gradient.stride() == parameter.stride()
    return gradient if same else torch.empty_like(parameter).copy_(gradient)
