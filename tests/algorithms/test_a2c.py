"""Advantage actor-critic: one update against Stable-Baselines3's formulas in float64, metrics, actions, state."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fastdqn.algorithms.a2c import A2CLearner, Settings
from fastdqn.networks.actor_critic import actor_critic
from fastdqn.seam import Learner
from fastdqn.types import Samples
from tests.helpers.sb3 import a2c_losses, clip_coefficient, first_adam_step

PLAIN = Settings()


def learner_of(settings: Settings = PLAIN, seed: int = 0, double: bool = False, **more: Any) -> A2CLearner:
    network = actor_critic((5,), 3, torch.Generator().manual_seed(seed))
    network = network.double() if double else network
    return A2CLearner(network, torch.Generator().manual_seed(seed), settings, **more)


def samples_of(count: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Samples:
    rng = torch.Generator().manual_seed(seed)
    obs = torch.randn(count, 5, generator=rng, dtype=dtype)
    target = torch.randn(count, generator=rng, dtype=dtype)
    return Samples(obs, torch.randint(0, 3, (count,), generator=rng), target)


@pytest.mark.parametrize("max_norm", [0.1, 1e9])
def test_one_update_is_stable_baselines(max_norm: float) -> None:
    settings = Settings(1e-3, 1e-3, entropy_weight=0.05, value_weight=0.5, max_norm=max_norm)
    learner, samples = learner_of(settings, double=True), samples_of(16, dtype=torch.float64)
    reference = learner_of(settings, double=True).network
    with torch.no_grad():
        advantages = samples.target - reference(samples.obs)[1]
    losses = a2c_losses(reference, samples.obs, samples.action, samples.target, advantages)
    total = losses.policy + 0.05 * losses.entropy + 0.5 * losses.value
    total.backward()
    gradients = [parameter.grad for parameter in reference.parameters() if parameter.grad is not None]
    coefficient = clip_coefficient(gradients, max_norm)
    assert (coefficient < 1.0) == (max_norm == 0.1)
    scalars = learner.update(samples).scalars
    for ours, weight in zip(learner.network.parameters(), reference.parameters(), strict=True):
        assert weight.grad is not None
        expected = first_adam_step(weight.detach(), coefficient * weight.grad, 1e-3, 1e-3)
        torch.testing.assert_close(ours.detach(), expected, rtol=0, atol=1e-12)
    said = {
        "loss_total": total,
        "loss_policy": losses.policy,
        "loss_entropy": 0.05 * losses.entropy,
        "loss_value": 0.5 * losses.value,
        "advantage": advantages.mean(),
        "values": (samples.target - advantages).mean(),
        "batch_rewards": samples.target.mean(),
    }
    assert scalars.keys() == said.keys()
    for name, value in said.items():
        assert float(scalars[name]) == pytest.approx(value.item(), abs=1e-12), name


def test_an_update_with_another_sign_of_the_advantage_is_another() -> None:
    """The control of the test above."""
    one, other = learner_of(), learner_of()
    samples = samples_of(8)
    one.update(samples)
    other.update(samples._replace(target=-samples.target))
    differ = [(a - b).abs().max() for a, b in zip(one.network.parameters(), other.network.parameters(), strict=True)]
    assert max(differ) > 1e-4


def test_it_is_a_learner_behind_the_seam() -> None:
    learner = learner_of()
    behind: Learner[Samples] = learner
    (group,) = behind.groups()
    assert group.max_norm == 0.1
    assert len(list(group.parameters)) == len(list(learner.network.parameters()))
    behind.gradient(group, samples_of(4))
    first = [parameter.grad.clone() for parameter in learner.network.parameters() if parameter.grad is not None]
    behind.gradient(group, samples_of(4))  # what was there is dropped, not added to
    for parameter, before in zip(learner.network.parameters(), first, strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, before)
    assert behind.tensors().keys() == {f"network.{name}" for name in learner.network.state_dict()}


def test_actions_are_drawn_by_their_probabilities() -> None:
    learner = learner_of()
    obs = torch.randn(1, 5).expand(20_000, 5)
    share = torch.bincount(learner.act(obs), minlength=3) / 20_000
    torch.testing.assert_close(share, learner.policy.probabilities(obs)[0], rtol=0, atol=0.02)


def test_actions_depend_on_the_learners_own_random_numbers_alone() -> None:
    obs = torch.randn(50, 5)
    torch.manual_seed(0)
    one = learner_of().act(obs)
    torch.manual_seed(1)
    assert torch.equal(one, learner_of().act(obs))
    assert not torch.equal(one, A2CLearner(learner_of().network, torch.Generator().manual_seed(9)).act(obs))


def test_a_loaded_learner_continues_bit_for_bit() -> None:
    whole, half = learner_of(), learner_of()
    for seed in range(3):
        whole.update(samples_of(8, seed))
        half.update(samples_of(8, seed))
    state = half.state()
    half.update(samples_of(8, 9))  # nothing of the state moves
    other = learner_of(seed=5)
    other.load(state)
    for seed in range(3, 6):
        whole.update(samples_of(8, seed))
        other.update(samples_of(8, seed))
    for a, b in zip(whole.network.parameters(), other.network.parameters(), strict=True):
        assert torch.equal(a, b)
