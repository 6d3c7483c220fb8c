"""Proximal policy optimisation: one update against Stable-Baselines3's formulas in float64, the clip, batches."""

from __future__ import annotations

import pytest
import torch

from fastdqn.algorithms.a2c import Settings
from fastdqn.algorithms.form import PLAIN, Form
from fastdqn.algorithms.ppo import PolicySamples, PPOLearner, Rollout
from fastdqn.networks.actor_critic import actor_critic
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
    assert (0.2 < float(scalars["clipped"]) < 0.95) == (clip == 0.1)
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
