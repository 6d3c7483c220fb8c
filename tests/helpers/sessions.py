"""Learners of all kinds whose steps are shared, in processes of their own: what their processes import."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

from fastdqn.algorithms.a2c import A2CLearner
from fastdqn.algorithms.a2c import Settings as A2CSettings
from fastdqn.algorithms.distributions import Categorical
from fastdqn.algorithms.form import PLAIN
from fastdqn.algorithms.ppo import PolicySamples, PPOLearner
from fastdqn.algorithms.sac import SACLearner, Settings
from fastdqn.algorithms.sessions import ControlSession
from fastdqn.build import build_learner
from fastdqn.build_sac import _session_of
from fastdqn.execution.child import Outbox
from fastdqn.execution.hogwild import Shared, Synced
from fastdqn.networks.actor_critic import actor_critic
from fastdqn.networks.control import GaussianActor, TwinCritic
from fastdqn.options.dqn import AgentOptions, DQNOptions, UpdateOptions
from fastdqn.options.parts import PartOptions
from fastdqn.seeds import seeds_of
from fastdqn.types import Batch, Samples
from tests.helpers.control import Reach, registered
from tests.helpers.learners import CPU, SHAPE, random_batch

OBS, ACTIONS, SIZE = 3, 2, 16
A2C = A2CSettings(1e-3, 1e-5, 0.01, 0.5, 0.5)


def sac(max_norm: float | None = None, descent: Any = None) -> SACLearner:
    rng = torch.Generator().manual_seed(0)
    actor, critic = GaussianActor(OBS, ACTIONS, rng, 16), TwinCritic(OBS, ACTIONS, rng, 16)
    return SACLearner(actor, critic, torch.Generator().manual_seed(1), Settings(max_norm=max_norm), descent)


def control_batch(seed: int = 0) -> Batch:
    rng = torch.Generator().manual_seed(seed)
    obs, after = torch.randn(2, SIZE, OBS, generator=rng)
    action = torch.rand(SIZE, ACTIONS, generator=rng) * 2.0 - 1.0
    return Batch(obs, action, torch.randn(SIZE, generator=rng), torch.full((SIZE,), 0.99), after)


def a2c() -> A2CLearner:
    network = actor_critic((OBS,), ACTIONS, torch.Generator().manual_seed(0))
    return A2CLearner(network, torch.Generator().manual_seed(1), A2C)


def ppo(normalise: bool = True, distribution: type[Any] = Categorical) -> PPOLearner:
    numbered = distribution is Categorical
    network = actor_critic((OBS,), ACTIONS, torch.Generator().manual_seed(0), numbered=numbered)
    noises = (torch.Generator().manual_seed(seed) for seed in (1, 2))
    rules = {"normalise": normalise, "distribution": distribution}
    return PPOLearner(network, next(noises), A2C, 0.2, next(noises), **rules)


def dqn() -> Any:
    options = DQNOptions(batch_size=4)
    groups = (UpdateOptions(), AgentOptions(), PartOptions())
    form = dataclasses.replace(PLAIN, fused=True)  # Adam in one kernel, as sessions step
    return build_learner(seeds_of(0), options, SHAPE, 6, CPU, form, *groups)


def samples(seed: int) -> Samples:
    rng = torch.Generator().manual_seed(seed)
    obs = torch.randn(SIZE, OBS, generator=rng)
    return Samples(obs, torch.randint(ACTIONS, (SIZE,), generator=rng), torch.randn(SIZE, generator=rng))


def ppo_samples(seed: int) -> PolicySamples:
    obs, action, target = samples(seed)
    return PolicySamples(obs, action, torch.full((SIZE,), -0.7), target, target)


def gaussian_samples(seed: int) -> PolicySamples:
    obs, _, target = samples(seed)
    action = torch.randn(SIZE, ACTIONS, generator=torch.Generator().manual_seed(seed + 1))
    return PolicySamples(obs, action, torch.full((SIZE,), -0.7 * ACTIONS), target, target)


KINDS: dict[str, tuple[Callable[[], Any], Callable[[int], Any]]] = {
    "sac": (sac, control_batch),
    "a2c": (a2c, samples),
    "ppo": (ppo, ppo_samples),
    "dqn": (dqn, lambda seed: random_batch(4, seed=seed)),
}
"""Of each algorithm its learner, and a batch."""
WAYS = {"shared": Shared, "synced": Synced}


def learn(kind: str, descent: Shared | Synced, updates: int, number: int, outbox: Outbox) -> None:
    """What a session process does: so many updates."""
    build, batch = KINDS[kind]
    learner = build()
    learner.descent = descent
    descent.bind(learner.groups())
    for i in range(updates):
        learner.update(batch(1000 * number + i))
    outbox.put([parameter.grad is not None and parameter.grad.is_shared() for parameter in parameters_of(learner)])


def parameters_of(learner: Any) -> list[torch.Tensor]:
    return [parameter for group in learner.groups() for parameter in group.parameters]


def session_of_reach(*args: Any) -> ControlSession:
    """What a session's process calls that is to play Reach, which Gymnasium has to be told of there."""
    with registered(Reach=Reach):
        return _session_of(*args)
