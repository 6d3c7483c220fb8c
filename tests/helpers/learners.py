"""Learners, batches and options for tests of what is learnt."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

from fastdqn.algorithms.descent import Local
from fastdqn.algorithms.dqn import DQNLearner
from fastdqn.algorithms.form import PLAIN, Form
from fastdqn.build import build_learner
from fastdqn.networks.qnetwork import QNetwork
from fastdqn.options.agents import AGENTS
from fastdqn.options.dqn import AgentOptions, DQNOptions, PaceOptions, UpdateOptions
from fastdqn.options.game import VectorOptions
from fastdqn.options.groups import Groups
from fastdqn.options.parts import PartOptions, VariantOptions
from fastdqn.options.presets import changed, variant_changes
from fastdqn.replay.prioritized import DeviceReplay
from fastdqn.seam import Group
from fastdqn.seeds import seeds_of
from fastdqn.types import Batch, Metrics

CPU = torch.device("cpu")
SHAPE = (4, 84, 84)
FAST = Form(channels_last=True, fused=True)
CAPTURABLE = dataclasses.replace(FAST, capturable=True)


def network(seed: int = 0, num_actions: int = 6) -> QNetwork:
    return QNetwork(SHAPE, num_actions, torch.Generator().manual_seed(seed))


def random_batch(size: int, num_actions: int = 6, seed: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    return Batch(
        torch.randint(0, 256, (size, *SHAPE), dtype=torch.uint8, generator=generator),
        torch.randint(0, num_actions, (size,), generator=generator),
        torch.randn(size, generator=generator),
        torch.where(torch.rand(size, generator=generator) < 0.3, 0.0, 0.99),
        torch.randint(0, 256, (size, *SHAPE), dtype=torch.uint8, generator=generator),
    )


def moved(batch: Batch, device: torch.device) -> Batch:
    """Return `batch` on `device`."""
    return Batch._make(None if tensor is None else tensor.to(device) for tensor in batch)


def options_of(variant: Any, **dqn: Any) -> Groups:
    """Return the groups that 10 has, with the parts of a variant."""
    groups = Groups(
        dqn=DQNOptions(**dqn),
        pace=PaceOptions(),
        vector=VectorOptions(),
        update=UpdateOptions(),
        agent=AgentOptions(),
        parts=PartOptions(),
        variant=VariantOptions(),
    )
    assert groups.dqn is not None
    return changed(groups, variant_changes(variant, groups.dqn))


def options_of_agent(name: Any) -> Groups:
    """Return the groups that 12 has, as an agent's paper has them."""
    agent = AGENTS[name]
    return changed(changed(options_of("dqn"), agent.settings), agent.parts)


def learner_from(
    options: Groups,
    device: torch.device = CPU,
    form: Form = PLAIN,
    shape: tuple[int, int, int] = SHAPE,
    num_actions: int = 6,
) -> DQNLearner:
    """Return the learner that `options` describe."""
    seeds, groups = seeds_of(options.run.seed), (options.update, options.agent, options.parts, options.returns)
    return build_learner(seeds, options.dqn or DQNOptions(), shape, num_actions, device, form, *groups)


def learner_of(variant: Any, form: Form = PLAIN, device: torch.device = CPU) -> DQNLearner:
    return learner_from(options_of(variant), device, form)


class KeepsGradients(Local):
    """Steps as `Local` does, and keeps the gradients of the newest step."""

    def __init__(self) -> None:
        self.gradients: list[torch.Tensor] = []

    def step(self, group: Group) -> None:
        self.gradients = [parameter.grad.clone() for parameter in group.parameters if parameter.grad is not None]
        assert len(self.gradients) == len(group.parameters)
        super().step(group)


def update_of(learner: DQNLearner, replay: DeviceReplay, batch_size: int) -> Callable[[], Metrics]:
    """Return what draws a batch, trains on it and writes its priorities back, as 09 and 10 do."""

    def update() -> Metrics:
        batch = replay.sample(batch_size)
        metrics = learner.update(batch)
        replay.write_back(batch, metrics.priority)
        return metrics

    return update
