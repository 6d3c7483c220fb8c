"""Lowered networks: weights kept in bfloat16 beside those in float32, instead of being converted for every product."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

from fastdqn.foreach import copy_all
from fastdqn.networks.aside import aside_now
from fastdqn.networks.noisy import FactorisedNoisyLinear
from fastdqn.networks.qnetwork import Stream
from fastdqn.networks.torso import share_weights


class Lowered:
    """A network like another one, whose convolutions and hidden layers have its weights in bfloat16.

    Under autocast it computes, bit for bit, what the other one does. Everything that computes in float32 (last layers,
    and noisy ones that put their weights together) is the very same memory.

    Args:
        network: of the same shape as `full`, on its device; its weights are replaced.
        full: whose weights those are.
    """

    def __init__(self, network: nn.Module, full: nn.Module) -> None:
        share_weights(network, full)
        lowered = {id(parameter) for layer in _lowered_layers(network) for parameter in layer.parameters()}
        self.network = network
        self._pairs: tuple[list[Tensor], list[Tensor]] = ([], [])
        self._apart: tuple[list[nn.Parameter], list[nn.Parameter]] = ([], [])
        self._same: list[tuple[nn.Parameter, nn.Parameter]] = []
        for own, other in zip(network.parameters(), full.parameters(), strict=True):
            if id(own) in lowered:
                own.data = own.data.to(torch.bfloat16)
                self._pairs[0].append(own.detach())
                self._pairs[1].append(other.detach())
                self._apart[0].append(own)
                self._apart[1].append(other)
            else:
                self._same.append((own, other))
        self._version = self._versions()

    def refresh(self) -> None:
        """Take the weights as they are now."""
        copy_all(*self._pairs)
        self._version = self._versions()

    def keep_up(self) -> None:
        """Take the weights as they are now if somebody has written to them."""
        if self._version != self._versions():
            self.refresh()

    def _versions(self) -> int:
        return sum(full._version for full in self._pairs[1])

    def raise_gradient(self) -> None:
        """Leave the gradient, in float32, with the parameters of the other network, in place of what was there."""
        owns, others = self._apart
        for parameter in others:
            if parameter.grad is None:
                parameter.grad = torch.empty_like(parameter)
        copy_all(_gradients(others), _gradients(owns))
        for own, other in self._same:
            other.grad = own.grad  # nothing is copied


def backward(loss: Tensor, parameters: Iterable[Tensor], lowered: Lowered | None) -> None:
    """Leave the gradient of `loss` with `parameters`; what was there is dropped. Those of weights that
    were left aside are there, too.

    Args:
        loss: () with gradient.
        parameters: of the network.
        lowered: what computed in its place, if anything; its gradient is raised, which writes over the one before.
    """
    for parameter in parameters if lowered is None else lowered.network.parameters():
        parameter.grad = None
    loss.backward()
    aside = aside_now()
    if aside is not None:
        aside.finish()
    if lowered is not None:
        lowered.raise_gradient()


def _lowered_layers(network: nn.Module) -> Iterator[nn.Module]:
    """Yield the layers that autocast computes in bfloat16, but for noisy ones that put their weights together."""
    last = {id(module[-1]) for module in network.modules() if isinstance(module, Stream)}
    for module in network.modules():
        noisy = isinstance(module, FactorisedNoisyLinear) and module.weight.device.type == "cpu"
        if (noisy or isinstance(module, nn.Conv2d | nn.Linear)) and id(module) not in last:
            yield module


def _gradients(parameters: list[nn.Parameter]) -> list[Tensor]:
    return [parameter.grad for parameter in parameters if parameter.grad is not None]
