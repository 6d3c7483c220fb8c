"""Soft actor-critic: updates against Stable-Baselines3's formulas in float64, the tanh correction, groups, state."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

from fastdqn.algorithms.sac import ControlPolicy, SACLearner, Settings, squashed
from fastdqn.networks.control import GaussianActor, TwinCritic
from fastdqn.seam import Group, Learner
from fastdqn.types import Batch
from tests.helpers.sb3 import SACReference

GAMMA, RATE, TAU = 0.97, 1e-2, 0.05
SETTINGS = Settings(RATE, target_average=TAU)


def networks(double: bool = True, obs_size: int = 4, num_actions: int = 2) -> tuple[GaussianActor, TwinCritic]:
    generator = torch.Generator().manual_seed(0)
    actor = GaussianActor(obs_size, num_actions, generator, hidden=16)
    critic = TwinCritic(obs_size, num_actions, generator, hidden=16)
    return (actor.double(), critic.double()) if double else (actor, critic)


def learner_of(settings: Settings = SETTINGS, double: bool = True, kind: type[SACLearner] = SACLearner) -> SACLearner:
    return kind(*networks(double), torch.Generator().manual_seed(1), settings)


def batch_of(count: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Batch:
    rng = torch.Generator().manual_seed(seed)
    obs, next_obs = torch.randn((2, count, 4), generator=rng, dtype=dtype)
    action = 2 * torch.rand((count, 2), generator=rng, dtype=dtype) - 1
    reward = torch.randn(count, generator=rng, dtype=dtype)
    discount = GAMMA * (torch.rand(count, generator=rng, dtype=dtype) > 0.3)
    return Batch(obs, action, reward, discount, next_obs)


def moved(learner: SACLearner, reference: SACReference) -> float:
    """Return the largest difference of all that an update changes."""
    pairs = ((learner.network, reference.actor), (learner.critic, reference.critic), (learner.target, reference.target))
    apart = [
        (a - b).detach().abs().max() for x, y in pairs for a, b in zip(x.parameters(), y.parameters(), strict=True)
    ]
    return float(max(*apart, (learner.log_temperature - reference.log_ent_coef).detach().abs().max()))


def compared(learner: SACLearner, count: int = 3) -> tuple[float, list[tuple[dict[str, float], dict[str, float]]]]:
    """Make updates and Stable-Baselines3's, with the same weights, batches and noise; return how far they are apart in
    the end, and the losses of both.
    """
    reference = SACReference(*networks(), RATE, TAU, GAMMA)
    assert moved(learner, reference) == 0.0
    noise, losses = torch.Generator().manual_seed(1), []
    for number in range(count):
        batch = batch_of(8, number)
        drawn = torch.randn((2, 8, 2), generator=noise, dtype=torch.float64)
        done = (batch.discount == 0).double()
        expected = reference.step(batch.obs, batch.action, batch.reward, done, batch.next_obs, drawn)
        said = {name: float(value) for name, value in learner.update(batch).scalars.items() if name.startswith("loss")}
        losses.append((said, expected))
    return moved(learner, reference), losses


@pytest.mark.parametrize("fused", [False, True])
def test_updates_are_stable_baselines(fused: bool) -> None:
    apart, losses = compared(learner_of(Settings(RATE, target_average=TAU, fused=fused)))
    assert apart < 1e-7  # Adam divides rounding by small moments
    for said, expected in losses:
        assert said == pytest.approx(expected, abs=1e-7)


def test_averaged_weights_keep_no_history() -> None:
    """As a graph behind them it would grow with every update."""
    learner = learner_of()
    for number in range(2):
        learner.update(batch_of(8, number))
    assert all(average.is_leaf and not average.requires_grad for average in learner.target.parameters())


class ActorFirst(SACLearner):
    """The control: the actor follows critics that have not been stepped."""

    def update(self, batch: Batch) -> Any:
        self._groups = tuple(
            sorted(self._groups, key=lambda group: ("temperature", "actor", "critic").index(group.name))
        )
        return super().update(batch)

    def stepped(self, group: Group) -> None:
        drawn = self._drawn
        super().stepped(group)
        self._drawn = None if group.name == "critic" else drawn  # which comes last, with the same noise


class NewTemperature(SACLearner):
    """The control: what critic and actor pay for entropy is the temperature after its step."""

    def _draw(self, batch: Batch) -> Any:
        drawn = super()._draw(batch)
        return drawn._replace(temperature=(self.log_temperature.detach() + RATE).exp())


@pytest.mark.parametrize("kind", [ActorFirst, NewTemperature])
def test_another_order_is_another_update(kind: type[SACLearner]) -> None:
    assert compared(learner_of(kind=kind))[0] > 1e-6


def test_the_density_of_squashed_actions_is_that_of_a_change_of_variables() -> None:
    """Against the logarithm of the determinant of tanh's Jacobian, by autograd."""
    rng = torch.Generator().manual_seed(0)
    mean, noise = torch.randn((2, 6, 3), generator=rng, dtype=torch.float64)
    log_std = torch.full_like(mean, -0.7)
    action, said = squashed(0.5 * mean, log_std, noise)
    uncorrected = []
    for i in range(6):
        u = 0.5 * mean[i] + log_std[i].exp() * noise[i]
        torch.testing.assert_close(action[i], torch.tanh(u))
        determinant = torch.linalg.slogdet(torch.autograd.functional.jacobian(torch.tanh, u)).logabsdet
        normal = torch.distributions.Normal(0.5 * mean[i], log_std[i].exp()).log_prob(u).sum()
        assert said[i].item() == pytest.approx((normal - determinant).item(), abs=3e-5)  # 1e-6 is added to 1 - a^2
        uncorrected.append(abs(determinant.item()))
    assert min(uncorrected) > 0.05  # the control: without the correction all are wrong


def test_densities_integrate_to_one() -> None:
    """Over [-1, 1], where actions are: scaled by 2 they would integrate to 1 over another interval."""
    noise = torch.linspace(-8.0, 8.0, 200_001, dtype=torch.float64).unsqueeze(1)
    mean, log_std = torch.full_like(noise, 0.3), torch.full_like(noise, -0.5)
    action, log_density = squashed(mean, log_std, noise)
    mass = torch.trapezoid(log_density.exp(), action.squeeze(1))
    assert mass.item() == pytest.approx(1.0, abs=1e-4)


def test_saturated_actions_have_finite_gradients() -> None:
    mean = torch.tensor([[30.0, -30.0]], requires_grad=True)
    action, log_density = squashed(mean, torch.full((1, 2), -20.0), torch.ones(1, 2))
    (log_density.sum() + action.sum()).backward()
    assert mean.grad is not None
    assert bool(torch.isfinite(mean.grad).all())
    assert action.abs().max().item() <= 1.0


def test_every_gradient_is_its_groups_alone() -> None:
    learner, batch = learner_of(), batch_of(8)
    seam: Learner[Batch] = learner  # a type checker says whether it is one
    groups = {group.name: group for group in seam.groups()}
    assert list(groups) == ["temperature", "critic", "actor"]
    for group in groups.values():
        assert learner.gradient(group, batch).scalars
        assert all(parameter.grad is not None for parameter in group.parameters)
        for other in groups.values():
            if other is not group:
                assert all(parameter.grad is None for parameter in other.parameters)
        for parameter in group.parameters:
            parameter.grad = None
    assert all(not parameter.requires_grad for parameter in learner.target.parameters())


def test_truncated_episodes_bootstrap_and_terminated_ones_do_not() -> None:
    """With discount 0 the goal is the reward, whatever follows."""
    learner = learner_of()
    batch = batch_of(8)
    over = batch._replace(discount=torch.zeros(8, dtype=torch.float64))
    first, second = learner.critic(batch.obs, batch.action)
    by_hand = 0.5 * sum(float(((q.detach() - batch.reward) ** 2).mean()) for q in (first, second))
    group = learner.groups()[1]
    assert float(learner.gradient(group, over).scalars["loss_critic"]) == pytest.approx(by_hand, abs=1e-12)
    again = float(learner.gradient(group, over._replace(next_obs=batch.next_obs + 9)).scalars["loss_critic"])
    assert again == pytest.approx(by_hand, abs=1e-12)
    truncated = over._replace(discount=torch.full((8,), GAMMA, dtype=torch.float64))
    apart = [learner.gradient(group, one).scalars["loss_critic"] for one in (truncated, over)]
    assert abs(float(apart[0] - apart[1])) > 1e-3


@pytest.mark.parametrize(("target", "rises"), [(50.0, True), (-50.0, False)])
def test_the_temperature_moves_towards_the_entropy_that_is_aimed_at(target: float, rises: bool) -> None:
    learner = learner_of(Settings(RATE, target_entropy=target, initial_temperature=0.5))
    assert learner.log_temperature.exp().item() == pytest.approx(0.5)
    for number in range(3):
        learner.update(batch_of(8, number))
    assert (learner.log_temperature.exp().item() > 0.5) == rises


def test_a_temperature_that_stays_weighs_the_entropy_as_it_is() -> None:
    """The update of a learnt temperature but for its own step; what is said of it and of the entropy is there, too."""
    learner, learnt = learner_of(Settings(RATE, temperature=0.2)), learner_of(Settings(RATE, initial_temperature=0.2))
    assert [group.name for group in learner.groups()] == ["critic", "actor"]
    scalars, other = (one.update(batch_of(8)).scalars for one in (learner, learnt))
    assert float(scalars["temperature"]) == pytest.approx(0.2)
    assert scalars.keys() == other.keys() - {"loss_temperature"}
    assert all(torch.equal(value, other[name]) for name, value in scalars.items())
    for a, b in zip(learner.network.parameters(), learnt.network.parameters(), strict=True):
        assert torch.equal(a, b)
    learner.update(batch_of(8, 1))
    assert learner.log_temperature.exp().item() == pytest.approx(0.2)
    assert learnt.log_temperature.exp().item() != pytest.approx(0.2)
    again = learner_of(Settings(RATE, temperature=0.2))
    again.load(learner.state())
    assert again.state()["optimizers"].keys() == {"critic", "actor"}


def test_a_loaded_learner_continues_bit_for_bit() -> None:
    whole, other = (learner_of(double=False) for _ in range(2))
    for number in range(3):
        whole.update(batch_of(8, number, torch.float32))
    other.load(copy.deepcopy(whole.state()))
    for number in range(3, 6):
        for learner in (whole, other):
            learner.update(batch_of(8, number, torch.float32))
    assert all(torch.equal(a, b) for a, b in zip(whole.tensors().values(), other.tensors().values(), strict=True))
    assert {"log_temperature", "network.layers.0.weight", "critic.first.0.weight", "target.second.4.bias"} <= set(
        whole.tensors()
    )


def test_the_first_actions_are_uniform_and_later_ones_the_actors() -> None:
    actor, _ = networks(double=False)

    def policy() -> ControlPolicy:
        return ControlPolicy(actor, 2, 100, torch.Generator().manual_seed(3))

    obs = np.random.default_rng(0).standard_normal((4000, 4)).astype(np.float32)
    first = policy().act(obs, 99)
    assert first.dtype == np.float32
    assert first.shape == (4000, 2)
    counts = np.histogram(first, bins=10, range=(-1, 1))[0]
    assert np.abs(counts - 800).max() < 120  # four standard deviations
    later = policy().act(obs, 100)
    with torch.no_grad():
        mean, log_std = actor(torch.from_numpy(obs))
    u = np.arctanh(later.astype(np.float64))
    standard = (u - mean.numpy()) / log_std.exp().numpy()
    assert abs(standard.mean()) < 0.05
    assert abs(standard.std() - 1.0) < 0.05
    one, other = policy(), policy()
    one.act(obs, 0)
    other.load(one.state())
    assert np.array_equal(one.act(obs, 200), other.act(obs, 200))


def test_the_best_action_is_the_squashed_mean() -> None:
    learner = learner_of(double=False)
    obs = torch.randn(5, 4)
    torch.testing.assert_close(learner.best(obs), torch.tanh(learner.network(obs)[0]).detach())
    assert torch.equal(learner.best(obs), learner.best(obs))
    assert not torch.equal(learner.act(obs), learner.act(obs))
