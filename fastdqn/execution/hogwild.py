"""Hogwild: sessions that learn side by side and share weights without a lock (Recht et al. 2011, "Hogwild!").

What sessions share is memory: parameters, and the moments of their optimiser, which exist before its first step so that
there is something to share. Everything else, gradients above all, is each session's own. Two sessions that step at the
same moment may overwrite parts of each other's steps, and some of the steps that Adam counts are lost; sparse or small
steps forgive that.

The first steps are the exception. Adam divides a first moment by the root of the second one, and where one session's
first moment meets the other's second one, which is still 0, the step is as large as the first moment over epsilon. So
these steps are made one after the other.
"""

from __future__ import annotations

import contextlib
import math
from collections import defaultdict
from collections.abc import Generator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fastdqn.errors import RunError, UserError
from fastdqn.execution.crew import Desk
from fastdqn.execution.processes import sharing
from fastdqn.execution.starting import starter
from fastdqn.foreach import copy_all
from fastdqn.seam import Group
from fastdqn.states import NothingUnfinished, on_cpu

ALIGNED = 64
"""Bytes to whose multiples tensors begin in shared memory."""
FIRST_STEPS = 1000
"""Steps of a group, of all sessions together, that are made one after the other."""
TURN = 1.0
"""Seconds that a session waits for its turn among these: one that was killed does not end its own."""


class Member(NamedTuple):
    """A parameter and Adam's state of it, all in shared memory."""

    weight: Tensor
    step: Tensor  # () float32, steps made
    exp_avg: Tensor
    exp_avg_sq: Tensor


class Common:
    """The parameters of groups, and their moments, in memory that processes share.

    Args:
        groups: whose parameters these are, each with an Adam that has made no step; their values are copied.
        own: names of groups of which each session has its own.

    Raises:
        UserError: parameters are not on the CPU, where alone memory is shared so.
        ValueError: an optimiser is not an Adam of its group's parameters.
        RunError: this system shares no memory.
    """

    def __init__(self, groups: Sequence[Group], own: Sequence[str] = ()) -> None:
        self.own = tuple(own)
        self.members: dict[str, list[Member]] = {}
        with sharing():
            self._turn = starter().Lock()
        for group in groups:
            if group.name in self.own:
                continue
            if any(parameter.device.type != "cpu" for parameter in group.parameters):
                raise UserError("Sessions share weights in the memory of the CPU; train with --device cpu.")
            _check_adam(group)
            self.members[group.name] = _members([parameter.detach() for parameter in group.parameters])

    def tensors(self) -> list[Tensor]:
        """Return everything that is shared."""
        return [tensor for members in self.members.values() for member in members for tensor in member]

    def of(self, group: Group) -> list[Member]:
        """Return what is shared of `group`.

        Raises:
            ValueError: its parameters are of another number or shape, or its optimiser steps others.
        """
        members = self.members.get(group.name)
        if members is None:
            raise ValueError(f"nothing is shared of the group {group.name!r}")
        if [tuple(one.weight.shape) for one in members] != [tuple(one.shape) for one in group.parameters]:
            raise ValueError(f"the group {group.name!r} has other parameters than those that are shared")
        _check_adam(group)
        return members

    @contextlib.contextmanager
    def stepping(self, group: Group) -> Generator[None]:
        """Let nobody else step meanwhile what is shared of `group`, as long as second moments may be 0."""
        if group.name in self.own or float(self.members[group.name][0].step) >= FIRST_STEPS:
            yield
            return
        mine = self._turn.acquire(timeout=TURN)
        try:
            yield
        finally:
            if mine:
                self._turn.release()

    def state(self) -> dict[str, Any]:
        """Return copies of parameters and moments."""
        return {"tensors": [on_cpu(tensor) for tensor in self.tensors()]}

    def load(self, state: Mapping[str, Any]) -> None:
        """Write them to where they are shared."""
        saved: list[Tensor] = state["tensors"]
        for tensor, value in zip(self.tensors(), saved, strict=True):
            tensor.copy_(value)


class Commons(NothingUnfinished):
    """What sessions share, as a part of checkpoints: one `Common` of all, or one of each."""

    def __init__(self, commons: Sequence[Common]) -> None:
        self.commons = list(commons)

    def state(self) -> dict[str, Any]:
        """Return copies of all."""
        return {"commons": [common.state() for common in self.commons]}

    def load(self, state: Mapping[str, Any]) -> None:
        """Write them to where they are shared."""
        for common, saved in zip(self.commons, state["commons"], strict=True):
            common.load(saved)


class Shared:
    """A descent whose steps are made in the shared weights themselves: a session has no others.

    Args:
        common: what is shared.
    """

    def __init__(self, common: Common) -> None:
        self.desk: Desk | None = None
        self._common = common
        self._bound: dict[str, list[int]] = {}  # the addresses of each group's parameters

    def bind(self, groups: Sequence[Group]) -> None:
        """Let these groups, of this process, have the shared weights and moments for their own.

        Raises:
            ValueError: they do not fit, or an optimiser steps others than its group's.
        """
        for group in groups:
            if group.name in self._common.own:
                _check_adam(group)
                continue
            for parameter, member in zip(group.parameters, self._common.of(group), strict=True):
                parameter.grad = None
                parameter.data = member.weight
                group.optimizer.state[parameter] = _moments(member)
            self._bound[group.name] = _addresses(group)

    def step(self, group: Group) -> None:
        """Clip, and step the shared weights.

        Raises:
            ValueError: the group has not been bound, or its parameters have moved since: nobody else would learn.
        """
        if group.name not in self._common.own and self._bound.get(group.name) != _addresses(group):
            raise ValueError(f"the group {group.name!r} is not bound to what sessions share")
        _clip(group)
        with self._common.stepping(group):
            group.optimizer.step()

    def mean(self, value: Tensor) -> Tensor:
        """Return `value`: nobody else decides."""
        return value

    def refresh(self, groups: Sequence[Group]) -> None:
        """Do nothing: the session's weights are the shared ones."""

    def state(self) -> dict[str, Any]:
        """Return nothing: all there is is shared."""
        return {}

    def load(self, state: Mapping[str, Any]) -> None:
        """Do nothing."""


class Synced:
    """A descent whose gradients are computed at weights of the session's own, and step the shared ones, which are then
    copied.

    Args:
        common: what is shared.
        every: steps of a group between two copies of its shared weights.
    """

    def __init__(self, common: Common, every: int = 1) -> None:
        self.desk: Desk | None = None
        self._common = common
        self._every = every
        self._weights: dict[str, list[Tensor]] = {}
        self._steps: dict[str, int] = {}

    def bind(self, groups: Sequence[Group]) -> None:
        """Let the optimisers of these groups, of this process, step the shared weights; copy these.

        Raises:
            ValueError: they do not fit, or an optimiser steps others than its group's.
        """
        for group in groups:
            if group.name in self._common.own:
                _check_adam(group)
                continue
            members = self._common.of(group)
            self._weights[group.name] = [member.weight for member in members]
            self._steps[group.name] = 0
            group.optimizer.param_groups[0]["params"] = self._weights[group.name]
            group.optimizer.state = defaultdict(dict, {member.weight: _moments(member) for member in members})
            self._copy(group)

    def step(self, group: Group) -> None:
        """Clip, lend the gradients to the shared weights, step these, and copy them.

        Raises:
            ValueError: the group has not been bound: its own weights would be stepped, and nobody else would learn.
        """
        _clip(group)
        if group.name in self._common.own:
            group.optimizer.step()
            return
        weights = self._weights.get(group.name)
        if weights is None or group.optimizer.param_groups[0]["params"] is not weights:
            raise ValueError(f"the group {group.name!r} is not bound to what sessions share")
        for weight, parameter in zip(weights, group.parameters, strict=True):
            weight.grad, parameter.grad = parameter.grad, None  # left with both, the next one would be added to it
        with self._common.stepping(group):
            group.optimizer.step()
        for weight in weights:
            weight.grad = None
        self._steps[group.name] += 1
        if self._steps[group.name] % self._every == 0:
            self._copy(group)

    def mean(self, value: Tensor) -> Tensor:
        """Return `value`: nobody else decides."""
        return value

    def refresh(self, groups: Sequence[Group]) -> None:
        """Let the session's weights be the shared ones as they are now."""
        for group in groups:
            if group.name in self._weights:
                self._copy(group)

    def state(self) -> dict[str, Any]:
        """Return how many steps each group has made."""
        return {"steps": dict(self._steps)}

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue to count from there."""
        self._steps.update(state["steps"])

    def _copy(self, group: Group) -> None:
        copy_all([parameter.detach() for parameter in group.parameters], self._weights[group.name])


def _members(weights: Sequence[Tensor]) -> list[Member]:
    """Return copies of `weights`, and moments of 0, in one piece of shared memory: each piece keeps a file open."""
    sizes = [max(ALIGNED, math.ceil(weight.nbytes / ALIGNED) * ALIGNED) for weight in weights]
    memory = torch.zeros(sum(ALIGNED + 3 * size for size in sizes), dtype=torch.uint8)
    with sharing():
        memory.share_memory_()
    if not memory.is_shared():
        raise RunError("This system does not let processes share memory.")
    members: list[Member] = []
    begin = 0
    for weight, size in zip(weights, sizes, strict=True):
        step = memory[begin : begin + 4].view(torch.float32).view(())
        begin += ALIGNED
        places = [memory[begin + i * size :][: weight.nbytes].view(weight.dtype).view(weight.shape) for i in range(3)]
        begin += 3 * size
        places[0].copy_(weight)
        members.append(Member(places[0], step, places[1], places[2]))
    return members


def _moments(member: Member) -> dict[str, Tensor]:
    """Return Adam's state of a parameter."""
    return {"step": member.step, "exp_avg": member.exp_avg, "exp_avg_sq": member.exp_avg_sq}


def _addresses(group: Group) -> list[int]:
    return [parameter.data_ptr() for parameter in group.parameters]


def _clip(group: Group) -> None:
    if group.max_norm is not None:
        torch.nn.utils.clip_grad_norm_(group.parameters, group.max_norm)


def _check_adam(group: Group) -> None:
    """Refuse an optimiser that would learn nothing, or nothing that can be shared.

    Raises:
        ValueError: it is none of Adam's, or it steps others than the group's parameters.
    """
    optimizer = group.optimizer
    if not isinstance(optimizer, torch.optim.Adam):
        raise ValueError(f"sessions share the moments of Adam, and the group {group.name!r} has another optimiser")
    stepped = [parameter for one in optimizer.param_groups for parameter in one["params"]]
    if len(optimizer.param_groups) != 1 or [id(one) for one in stepped] != [id(one) for one in group.parameters]:
        raise ValueError(f"the optimiser of the group {group.name!r} steps other parameters than the group's")
