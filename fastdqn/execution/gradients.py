"""Players that send gradients: each computes its own, and the trainer steps by their sum.

A gradient crosses in shared memory, in one of two slots of its player: while the trainer sums one, the player computes
the next. A slot is written to again once the trainer has summed what was in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from fastdqn.execution.crew import Crew, CrewPlan, Desk
from fastdqn.execution.player import PlayerWeights
from fastdqn.execution.processes import Request, sharing
from fastdqn.seam import Group
from fastdqn.types import SentGradient

SLOTS = 2
"""Of each player."""


class ToSlots:
    """A descent that clips a gradient and leaves it in the next slot, for somebody else to step.

    Args:
        slots: (2, P) float32 in shared memory, for P weights.
    """

    def __init__(self, slots: Tensor) -> None:
        self.desk: Desk | None = None
        """Where it is said that slots are free; by default they always are."""
        self._slots = slots
        self._next = 0

    def step(self, group: Group) -> None:
        """Take every .grad of `group`."""
        if group.max_norm is not None:
            torch.nn.utils.clip_grad_norm_(group.parameters, group.max_norm)
        if self.desk is not None:
            self.desk.take()
        slot = self._slots[self._next]
        for place, parameter in _places(group.parameters):
            if parameter.grad is None:
                slot[place].zero_()
            else:
                slot[place].copy_(parameter.grad.flatten())
        self._next = (self._next + 1) % SLOTS

    def mean(self, value: Tensor) -> Tensor:
        """Return `value`: nobody else decides."""
        return value


class Gradients(Crew):
    """Players that act with the trainer's own weights, and send gradients at these weights.

    Args:
        plan: what the players do.
        weights: that they act with.
        group: whose gradient they send.
        begun: env steps that others have played before.
    """

    def __init__(self, plan: CrewPlan, weights: PlayerWeights, group: Group, begun: int = 0) -> None:
        size = sum(parameter.numel() for parameter in group.parameters)
        self._slots = [torch.zeros(SLOTS, size) for _ in range(plan.players)]
        with sharing():
            for slots in self._slots:
                slots.share_memory_()
        self._summed = [0] * plan.players  # gradients of each player so far
        self._sum = torch.zeros(size)
        self._begun = False  # whether there is anything in the sum of now
        super().__init__(plan, weights, begun, SLOTS, [ToSlots(slots) for slots in self._slots])

    def take(self, count: int) -> list[SentGradient]:
        """Sum the next `count` gradients, and return what is said of them; fewer only if a signal asks this process to
        stop.

        Raises:
            RunError: a player died, failed (its traceback is part of the message) or has hung.
        """
        self._begun = False
        return [self.placed(said, player) for player, said in self.messages(count)]

    def lend(self, group: Group) -> None:
        """Let the parameters of `group` have the sum as their .grad; the next `take` writes over it."""
        for place, parameter in _places(group.parameters):
            parameter.grad = self._sum[place].view_as(parameter).to(parameter.device)

    def _taken(self, player: int, message: SentGradient) -> None:  # noqa: ARG002 - it waits in its slot
        slot = self._slots[player][self._summed[player] % SLOTS]
        if self._begun:
            self._sum.add_(slot)
        else:
            self._sum.copy_(slot)
        self._begun = True
        self._summed[player] += 1
        self.ask(player, Request("free", 1))


def mean_scalars(said: Sequence[SentGradient]) -> dict[str, Tensor]:
    """Return the means of the metrics of gradients, () float32 each."""
    return {
        name: torch.tensor(sum(one.scalars[name] for one in said) / len(said), dtype=torch.float32)
        for name in said[0].scalars
    }


def _places(parameters: Sequence[Tensor]) -> Iterator[tuple[slice, Tensor]]:
    """Yield where each parameter's gradient stands among all, and the parameter."""
    begin = 0
    for parameter in parameters:
        yield slice(begin, begin + parameter.numel()), parameter
        begin += parameter.numel()
