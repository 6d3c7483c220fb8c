"""Players in processes of their own, with a toy to play: what their processes import, and plans of them."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fastdqn.errors import RunError
from fastdqn.execution.crew import CrewPlan
from fastdqn.execution.gradients import ToSlots
from fastdqn.execution.player import PlayerWeights
from fastdqn.seam import Group
from fastdqn.states import NothingUnfinished
from fastdqn.types import EpisodeEnd, Piece, SentGradient


class Toy(NamedTuple):
    """What toy players do besides playing."""

    fault: str = ""  # in the fifth piece: "raise", "sentence", "hang", or "leave"
    faulty: int = 0  # the player that has it
    seconds: float = 0.0  # for a piece
    beginning: float = 0.0  # seconds until it can play


class ToyPlayer(NothingUnfinished):
    """Its pieces say who played them, which they are, and what the first weight was."""

    def __init__(self, toy: Toy, network: nn.Module, number: int, begun: int) -> None:
        self._toy, self._network, self._number, self._begun = toy, network, number, begun
        self._count = 0
        time.sleep(toy.beginning)

    def turn(self) -> None:
        self._count += 1
        time.sleep(self._toy.seconds)
        if self._count == 5 and self._number == self._toy.faulty and self._toy.fault:
            if self._toy.fault == "raise":
                raise ValueError("the toy player broke as it was told to")
            if self._toy.fault == "sentence":
                raise RunError("The toy player has had enough.")
            if self._toy.fault == "hang":
                time.sleep(3600)
            os._exit(7)

    def piece(self) -> Piece:
        self.turn()
        weight = float(next(self._network.parameters()).detach().flatten()[0])
        said = np.array([self._number, self._count, self._begun, weight])
        end = EpisodeEnd(float(self._count), 1, False, self._number)
        return Piece(said, np.zeros(1, np.int64), np.zeros(1, np.float32), 1, (end,))

    def state(self) -> dict[str, Any]:
        return {"count": self._count}

    def load(self, state: Mapping[str, Any]) -> NDArray[np.bool_]:
        self._count = state["count"]
        return np.array([self._number == 1, False])


class ToyGradients(ToyPlayer):
    """Its gradients are random numbers that can be drawn again."""

    def __init__(self, toy: Toy, network: nn.Module, number: int, begun: int, descent: ToSlots) -> None:
        super().__init__(toy, network, number, begun)
        self._descent, self._group = descent, group_of(network)

    def piece(self) -> SentGradient:  # type: ignore[override]
        self.turn()
        gradients = gradient_of(self._group, self._number, self._count)
        for parameter, gradient in zip(self._group.parameters, gradients, strict=True):
            parameter.grad = gradient
        self._descent.step(self._group)
        return SentGradient({"loss_total": float(self._number)}, 1, (EpisodeEnd(float(self._count), 1, False, 1),))


def gradient_of(group: Group, number: int, count: int) -> list[torch.Tensor]:
    """Return a player's `count`-th gradient before it is clipped; every third one is small, and is not."""
    rng = torch.Generator().manual_seed(1000 * number + count)
    scale = 1e-3 if count % 3 == 0 else 1.0
    return [scale * torch.randn(parameter.shape, generator=rng) for parameter in group.parameters]


def clipped_gradient_of(group: Group, number: int, count: int) -> list[torch.Tensor]:
    """Return the same after the clip, computed here."""
    for parameter, gradient in zip(group.parameters, gradient_of(group, number, count), strict=True):
        parameter.grad = gradient
    torch.nn.utils.clip_grad_norm_(group.parameters, group.max_norm or 0.0)
    return [parameter.grad.clone() for parameter in group.parameters if parameter.grad is not None]


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(30, 20), nn.Linear(20, 4))


def group_of(module: nn.Module) -> Group:
    parameters = list(module.parameters())
    return Group("toy", parameters, torch.optim.SGD(parameters, lr=1.0), 0.1)


NO_FAULT = Toy()


def plan_of(
    players: int = 2, synchronous: bool = False, toy: Toy = NO_FAULT, timeout: float = 60.0, gradients: bool = False
) -> CrewPlan:
    kind = ToyGradients if gradients else ToyPlayer
    return CrewPlan(partial(kind, toy), players, 2, synchronous, timeout)


def weights_of(module: nn.Module) -> PlayerWeights:
    return PlayerWeights(module, "same", players=4)  # at most
