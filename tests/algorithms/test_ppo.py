"""Proximal policy optimisation: one update against Stable-Baselines3's formulas in float64, the clip, batches."""

from __future__ import annotations

import math

import pytest
import torch

from fastdqn.algorithms.a2c import Settings
from fastdqn.algorithms.descent import Local
from fastdqn.algorithms.distributions import DiagonalGaussian
from fastdqn.algorithms.form import PLAIN, Form
from fastdqn.algorithms.ppo import PolicySamples, PPOLearner, Rollout
from fastdqn.networks.actor_critic import actor_critic
from fastdqn.seam import Group
from tests.helpers.learners import KeepsGradients
from tests.helpers.sb3 import clip_coefficient, first_adam_step, ppo_losses

SETTINGS = Settings(1e-3, 1e-5, entropy_weight=0.01, value_weight=0.5, max_norm=0.5)


def learner_of(clip: float = 0.1) -> PPOLearner:
    network = actor_critic((5,), 3, torch.Generator().manual_seed(0)).double()
    return PPOLearner(network, torch.Generator().manual_seed(0), SETTINGS, clip, torch.Generator().manual_seed(1))


def samples_of(count: int, learner: PPOLearner, moved: float = 0.3, seed: int = 0) -> PolicySamples:
    """Return samples of a policy whose log probabilities are up to `moved` away from those of now."""
    rng = torch.Generator().manual_seed(seed)
    obs = torch.randn(count, 5, generator=rng, dtype=torch.float64)
    action, log_probability, _ = learner.policy.draw(obs)
    away = moved * (2 * torch.rand(count, generator=rng, dtype=torch.float64) - 1)
    advantage, target = torch.randn(2, count, generator=rng, dtype=torch.float64)
    return PolicySamples(obs, action, log_probability + away, advantage, target)


@pytest.mark.parametrize("clip", [0.1, 10.0])
def test_one_update_is_stable_baselines(clip: float) -> None:
    learner, reference = learner_of(clip), learner_of().network
    samples = samples_of(24, learner)
    obs, action, old, advantage, target = samples
    losses = ppo_losses(reference, obs, action, target, advantage, old, clip)
    total = losses.policy + 0.01 * losses.entropy + 0.5 * losses.value
    total.backward()
    coefficient = clip_coefficient([p.grad for p in reference.parameters() if p.grad is not None], 0.5)
    scalars = learner.update(samples).scalars
    assert (0.2 < float(scalars["clip_fraction"]) < 0.95) == (clip == 0.1)
    for ours, weight in zip(learner.network.parameters(), reference.parameters(), strict=True):
        assert weight.grad is not None
        expected = first_adam_step(weight.detach(), coefficient * weight.grad, 1e-3, 1e-5)
        torch.testing.assert_close(ours.detach(), expected, rtol=0, atol=1e-10)
    said = {"loss_total": total, "loss_policy": losses.policy, "loss_value": 0.5 * losses.value}
    for name, value in said.items():
        assert float(scalars[name]) == pytest.approx(value.item(), abs=1e-12), name


def test_beyond_the_clip_nothing_is_gained() -> None:
    """An action that has become likelier than allowed, and was good, has no gradient of the policy any more."""
    learner = learner_of()
    samples = samples_of(2, learner, moved=0.0)
    samples = samples._replace(advantage=torch.tensor([1.0, -1.0], dtype=torch.float64))
    away = torch.tensor([-1.0, 1.0], dtype=torch.float64)  # the good one is likelier now, the bad one less likely
    learner.gradient(learner.group, samples._replace(log_probability=samples.log_probability + away))
    assert _policy_gradient(learner) < 1e-2  # of the entropy alone
    learner.gradient(learner.group, samples._replace(log_probability=samples.log_probability - away))
    assert _policy_gradient(learner) > 1e-1


def _policy_gradient(learner: PPOLearner) -> float:
    policy = learner.network.get_submodule("policy")
    return max(float(p.grad.abs().max()) for p in policy.parameters() if p.grad is not None)


def test_every_sample_is_learnt_from_once_an_epoch() -> None:
    columns = [torch.arange(10)] * 5
    rollout = Rollout(PolicySamples._make(columns), 10, ())
    batches = list(rollout.minibatches(4, 2, torch.Generator().manual_seed(0)))
    assert [len(batch.action) for batch in batches] == [4, 4, 2] * 2
    epochs = [[int(a) for batch in batches[i : i + 3] for a in batch.action] for i in (0, 3)]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert epochs[0] != epochs[1]
    assert all(torch.equal(batch.obs, batch.target) for batch in batches)  # rows stay together


@pytest.mark.parametrize(("count", "rows", "sizes"), [(10, 12, [4, 4, 2]), (8, 12, [2, 3, 3]), (2, 12, [1, 1])])
def test_resets_change_no_number_of_batches(count: int, rows: int, sizes: list[int]) -> None:
    """12 rows in batches of 4 are 3 batches, whichever of them are samples: another rank has 3, too."""
    rollout = Rollout(PolicySamples._make([torch.arange(count)] * 5), count, (), rows)
    batches = list(rollout.minibatches(4, 1, torch.Generator().manual_seed(0)))
    assert [len(batch.action) for batch in batches] == sizes
    assert sorted(int(a) for batch in batches for a in batch.action) == list(range(count))
    assert (
        list(Rollout(PolicySamples._make([torch.arange(0)] * 5), 0, (), 1).minibatches(4, 1, torch.Generator())) == []
    )


def test_a_loaded_learner_continues_bit_for_bit() -> None:
    whole = learner_of()
    whole.update(samples_of(8, whole))
    other = learner_of()
    other.load(whole.state())
    samples = samples_of(8, learner_of(), seed=3)
    for learner in (whole, other):
        learner.set_learning_rate(5e-4)
        learner.update(samples)
    assert all(torch.equal(a, b) for a, b in zip(whole.network.parameters(), other.network.parameters(), strict=True))
    assert torch.equal(torch.randperm(9, generator=whole.order), torch.randperm(9, generator=other.order))


@pytest.mark.parametrize("bf16", [False, True])
def test_the_fast_form_computes_the_same(bf16: bool) -> None:
    """Channels last, fused Adam, and the body in bfloat16 or not: gradients differ by rounding, the loss is theirs."""

    def learner(form: Form) -> PPOLearner:
        network = actor_critic((4, 84, 84), 6, torch.Generator().manual_seed(0), one_stream=True)
        noises = (torch.Generator().manual_seed(seed) for seed in (0, 1))
        return PPOLearner(network, next(noises), SETTINGS, 0.1, next(noises), KeepsGradients(), form)

    plain, fast = learner(PLAIN), learner(Form(channels_last=True, fused=True, bf16=bf16))
    rng = torch.Generator().manual_seed(0)
    obs = torch.randint(0, 256, (32, 4, 84, 84), dtype=torch.uint8, generator=rng)
    for number in range(3):
        action, log_probability, _ = plain.policy.draw(obs)
        advantage, target = torch.randn(2, 32, generator=rng)
        samples = PolicySamples(obs, action, log_probability, advantage, target)
        a, b = plain.update(samples).scalars, fast.update(samples).scalars
        assert float(a["loss_total"]) == pytest.approx(float(b["loss_total"]), rel=2e-2 if bf16 else 1e-5)
        for learner_ in (plain, fast):
            torch.testing.assert_close(learner_.policy.values(obs), learner_.outputs(obs)[1])
        kept = [learner_.descent.gradients for learner_ in (plain, fast)]  # pyright: ignore[reportAttributeAccessIssue]
        for x, y in zip(*kept, strict=True) if number == 0 else ():  # later ones are of other weights
            assert (x - y).norm() < (0.2 if bf16 else 1e-5) * x.norm()


def gaussian_learner() -> PPOLearner:
    network = actor_critic((3,), 2, torch.Generator().manual_seed(0), numbered=False).double()
    noises = (torch.Generator().manual_seed(seed) for seed in (0, 1))
    return PPOLearner(network, next(noises), SETTINGS, 0.1, next(noises), distribution=DiagonalGaussian)


def test_actions_may_be_vectors() -> None:
    """One sample, whose value, ratio and gradients of the deviations are computed by hand."""
    learner = gaussian_learner()
    obs = torch.randn(1, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    action, log_probability, values = learner.policy.draw(obs)
    assert (action.shape, log_probability.shape, values.shape) == ((1, 2), (1,), (1,))
    with torch.no_grad():
        mean = learner.network(obs)[0][0, :2]
    z = action[0] - mean  # the deviations are 1 at first
    assert log_probability.item() == pytest.approx(float(-(z * z).sum() / 2) - math.log(2 * math.pi), abs=1e-12)
    advantage, target = torch.tensor([2.0], dtype=torch.float64), values + 3.0
    learner.gradient(learner.group, PolicySamples(obs, action, log_probability, advantage, target))
    log_std = learner.network.get_parameter("policy.log_std")
    assert log_std.grad is not None
    # -(A d log p / d log std) - 0.01 d H / d log std, with d log p / d log std = z^2 - 1
    torch.testing.assert_close(log_std.grad, -2.0 * (z * z - 1.0) - 0.01)


def test_the_reward_of_a_vector_moves_the_mean_there() -> None:
    learner = gaussian_learner()
    rng = torch.Generator().manual_seed(5)
    for _ in range(300):
        obs = torch.randn(64, 3, generator=rng, dtype=torch.float64)
        action, log_probability, values = learner.policy.draw(obs)
        reward = -(action - torch.tensor([0.5, -0.5])).square().sum(1)
        learner.update(PolicySamples(obs, action, log_probability, reward - values, reward))
    mean = learner.network(torch.zeros(1, 3, dtype=torch.float64))[0][0, :2]
    torch.testing.assert_close(mean.detach(), torch.tensor([0.5, -0.5], dtype=torch.float64), rtol=0, atol=0.15)


class Says(Local):
    """Says a mean of its own, as if others had been asked; counts what it is asked to step."""

    def __init__(self, mean: float) -> None:
        self._mean, self.asked, self.steps = mean, 0, 0

    def mean(self, value: torch.Tensor) -> torch.Tensor:
        self.asked += 1
        return torch.full_like(value, self._mean)

    def step(self, group: Group) -> None:
        self.steps += 1
        super().step(group)


@pytest.mark.parametrize(("mean", "stopped"), [(0.0149, False), (0.0151, True)])
def test_the_mean_over_all_decides_before_any_gradient(mean: float, stopped: bool) -> None:
    """1.5 times 0.01 is the bound, of the mean over all, whatever this one's own divergence is."""
    network = actor_critic((5,), 3, torch.Generator().manual_seed(0)).double()
    descent, order = Says(mean), torch.Generator()
    learner = PPOLearner(network, torch.Generator().manual_seed(0), SETTINGS, 0.1, order, descent, target_kl=0.01)
    before = [weight.detach().clone() for weight in network.parameters()]
    samples = samples_of(8, learner, moved=0.0 if stopped else 2.0)  # its own opinion is the other one
    divergence = float(learner.update(samples).scalars["approx_kl"])
    assert (divergence > 0.015) != stopped
    assert (learner.stopped, descent.asked, descent.steps) == (stopped, 1, int(not stopped))
    assert all(weight.grad is None for weight in network.parameters()) == stopped
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), before, strict=True)) == stopped


def test_nobody_is_asked_without_a_target() -> None:
    descent = Says(9.0)
    network = actor_critic((5,), 3, torch.Generator().manual_seed(0)).double()
    learner = PPOLearner(network, torch.Generator().manual_seed(0), SETTINGS, 0.1, torch.Generator(), descent)
    learner.update(samples_of(8, learner))
    assert (learner.stopped, descent.asked, descent.steps) == (False, 0, 1)


def test_an_update_says_its_learning_rate() -> None:
    network = actor_critic((5,), 3, torch.Generator().manual_seed(0)).double()
    learner = PPOLearner(network, torch.Generator().manual_seed(0), SETTINGS, 0.1, torch.Generator())
    samples = samples_of(8, learner)
    first = learner.update(samples).scalars["learning_rate"]
    learner.set_learning_rate(1e-5)
    assert learner.update(samples).scalars["learning_rate"].item() == pytest.approx(1e-5)
    assert first.item() == pytest.approx(SETTINGS.learning_rate)  # as it was then


def test_explained_variance_by_hand() -> None:
    """Returns 1, 2, 3, 6 and values 1, 1, 4, 6: variances of 3.5 and of 0.5."""
    target, value = torch.tensor([1.0, 2.0, 3.0, 6.0]), torch.tensor([1.0, 1.0, 4.0, 6.0])
    samples = PolicySamples(target, target, target, target - value, target)
    assert Rollout(samples, 4, ()).explained_variance().item() == pytest.approx(1 - 0.5 / 3.5)
    same = samples._replace(target=torch.ones(4))
    assert Rollout(same, 4, ()).explained_variance().item() == 0.0
