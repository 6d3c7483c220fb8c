"""An update of A2C and of PPO, advantages, and updates of SAC beside Stable-Baselines3 itself, in float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch import Tensor

from fastdqn.algorithms.a2c import A2CLearner, Settings
from fastdqn.algorithms.distributions import DiagonalGaussian
from fastdqn.algorithms.ppo import PolicySamples, PPOLearner
from fastdqn.algorithms.returns import generalised_advantages
from fastdqn.algorithms.sac import SACLearner
from fastdqn.algorithms.sac import Settings as SACSettings
from fastdqn.networks.actor_critic import ActorCritic, actor_critic
from fastdqn.networks.control import GaussianActor, TwinCritic
from fastdqn.types import Batch, Samples

sb3: Any = pytest.importorskip("stable_baselines3")
policies: Any = pytest.importorskip("stable_baselines3.common.policies")
buffers: Any = pytest.importorskip("stable_baselines3.common.buffers")
logger: Any = pytest.importorskip("stable_baselines3.common.logger")
types: Any = pytest.importorskip("stable_baselines3.common.type_aliases")
pytestmark = pytest.mark.engines

SETTINGS = Settings(1e-3, 1e-5, entropy_weight=0.01, value_weight=0.5, max_norm=0.5)
COMMON = {"learning_rate": 1e-3, "ent_coef": 0.01, "vf_coef": 0.5, "max_grad_norm": 0.5, "device": "cpu"}
BATCH = 32


@pytest.fixture(autouse=True)
def double(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stable-Baselines3 turns observations into float32; here they stay what they are."""

    def as_it_is(obs: Any, *_: Any, **__: Any) -> Any:
        return obs

    monkeypatch.setattr(policies, "preprocess_obs", as_it_is)


def network_of(seed: int = 0) -> ActorCritic:
    return actor_critic((4,), 2, torch.Generator().manual_seed(seed)).double()


def layers_of(model: Any) -> list[torch.nn.Linear]:
    """Return the linear layers of Stable-Baselines3's policy in the order of ours: the policy's, then the value's."""
    policy, extractor = model.policy, model.policy.mlp_extractor
    bodies = [
        [one for one in body if isinstance(one, torch.nn.Linear)]
        for body in (extractor.policy_net, extractor.value_net)
    ]
    return [*bodies[0], policy.action_net, *bodies[1], policy.value_net]


def theirs_after(model: Any, network: ActorCritic, samples: Any) -> list[Tensor]:
    """Return the weights after Stable-Baselines3's own train() on `samples`, from those of `network`."""
    model.policy.double()
    with torch.no_grad():
        for layer, weights in zip(weights_in(model), network.parameters(), strict=True):
            layer.copy_(weights)

    def get(batch_size: int | None = None) -> Iterator[Any]:
        assert batch_size in (None, len(samples.actions))
        yield samples

    model.rollout_buffer.get = get
    model.set_logger(logger.configure(None, []))
    model.train()
    return [parameter.detach().clone() for parameter in weights_in(model)]


def weights_in(model: Any) -> list[Tensor]:
    deviations = [model.policy.log_std] if hasattr(model.policy, "log_std") else []  # where actions are vectors
    return [*deviations, *(parameter for layer in layers_of(model) for parameter in layer.parameters())]


def compared(learner: A2CLearner, expected: list[Tensor], before: ActorCritic) -> None:
    ours = list(learner.network.parameters())
    assert all(not torch.equal(a, b) for a, b in zip(ours, before.parameters(), strict=True))
    for a, b in zip(ours, expected, strict=True):
        torch.testing.assert_close(a.detach(), b, rtol=0, atol=1e-9)


def random_batch(learner: A2CLearner) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return observations, actions, their log probabilities, values and returns."""
    rng = torch.Generator().manual_seed(1)
    obs = torch.randn(BATCH, 4, generator=rng, dtype=torch.float64)
    action, log_probability, values = learner.policy.draw(obs)
    return obs, action, log_probability, values, values + torch.randn(BATCH, generator=rng, dtype=torch.float64)


@pytest.mark.parametrize("clip", [0.1, 10.0])
def test_ppo_updates_as_stable_baselines_does(clip: float) -> None:
    learner = PPOLearner(network_of(), torch.Generator().manual_seed(0), SETTINGS, clip, torch.Generator())
    obs, action, log_probability, values, returns = random_batch(learner)
    old = log_probability + 0.3 * torch.randn(BATCH, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    advantage = returns - values
    model = sb3.PPO(
        "MlpPolicy",
        gymnasium.make("CartPole-v1"),
        n_steps=BATCH,
        batch_size=BATCH,
        n_epochs=1,
        clip_range=clip,
        **COMMON,
    )
    expected = theirs_after(
        model, network_of(), types.RolloutBufferSamples(obs, action, values, old, advantage, returns)
    )
    scalars = learner.update(PolicySamples(obs, action, old, advantage, returns)).scalars
    assert (float(scalars["clip_fraction"]) > 0.2) == (clip == 0.1)
    compared(learner, expected, network_of())


@pytest.mark.parametrize("clip", [0.1, 10.0])
def test_ppo_updates_as_stable_baselines_does_where_actions_are_vectors(clip: float) -> None:
    """With deviations that are not 1, and actions beyond the bounds, which enter the densities as they were drawn."""

    def network() -> ActorCritic:
        made = actor_critic((4,), 3, torch.Generator().manual_seed(0), numbered=False).double()
        with torch.no_grad():
            made.get_parameter("policy.log_std").copy_(torch.tensor([-0.5, 0.0, 0.7]))
        return made

    class Vectors(gymnasium.Env[Any, Any]):
        observation_space = gymnasium.spaces.Box(-1.0, 1.0, (4,))
        action_space = gymnasium.spaces.Box(-1.0, 1.0, (3,))

    noises = (torch.Generator().manual_seed(seed) for seed in (0, 1))
    learner = PPOLearner(network(), next(noises), SETTINGS, clip, next(noises), distribution=DiagonalGaussian)
    obs, action, log_probability, values, returns = random_batch(learner)
    assert action.abs().max() > 1.5
    old = log_probability + 0.3 * torch.randn(BATCH, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    advantage = returns - values
    sizes = {"n_steps": BATCH, "batch_size": BATCH, "n_epochs": 1}
    model = sb3.PPO("MlpPolicy", Vectors(), clip_range=clip, **sizes, **COMMON)
    samples = types.RolloutBufferSamples(obs, action, values, old, advantage, returns)
    expected = theirs_after(model, network(), samples)
    scalars = learner.update(PolicySamples(obs, action, old, advantage, returns)).scalars
    assert (float(scalars["clip_fraction"]) > 0.2) == (clip == 0.1)
    compared(learner, expected, network())
    said = model.logger.name_to_value
    for ours, theirs in {"approx_kl": "approx_kl", "clip_fraction": "clip_fraction", "loss_total": "loss"}.items():
        assert float(scalars[ours]) == pytest.approx(said[f"train/{theirs}"], abs=1e-7)


@pytest.mark.parametrize("slack", [0.9, 1.1])
def test_ppo_stops_where_stable_baselines_does(slack: float) -> None:
    """A divergence a little above 1.5 times the target stops both before their step, one a little below neither."""
    learner = PPOLearner(network_of(), torch.Generator().manual_seed(0), SETTINGS, 0.1, torch.Generator())
    obs, action, log_probability, values, returns = random_batch(learner)
    old = log_probability + 0.3 * torch.randn(BATCH, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    batch = PolicySamples(obs, action, old, returns - values, returns)
    target = slack * float(learner.gradient(learner.group, batch).scalars["approx_kl"]) / 1.5
    noises = (torch.Generator().manual_seed(seed) for seed in (0, 1))
    learner = PPOLearner(network_of(), next(noises), SETTINGS, 0.1, next(noises), target_kl=target)
    sizes = {"n_steps": BATCH, "batch_size": BATCH, "n_epochs": 1, "target_kl": target, "clip_range": 0.1}
    model = sb3.PPO("MlpPolicy", gymnasium.make("CartPole-v1"), **sizes, **COMMON)
    samples = types.RolloutBufferSamples(obs, action, values, old, batch.advantage, returns)
    expected = theirs_after(model, network_of(), samples)
    learner.update(batch)
    assert learner.stopped == (slack < 1.0)
    for ours, theirs, first in zip(learner.network.parameters(), expected, network_of().parameters(), strict=True):
        torch.testing.assert_close(ours.detach(), theirs, rtol=0, atol=1e-9)
        assert torch.equal(theirs, first) == learner.stopped


def test_a2c_updates_as_stable_baselines_does() -> None:
    learner = A2CLearner(network_of(), torch.Generator().manual_seed(0), SETTINGS)
    obs, action, log_probability, values, returns = random_batch(learner)
    model = sb3.A2C("MlpPolicy", gymnasium.make("CartPole-v1"), n_steps=BATCH, use_rms_prop=False, **COMMON)
    samples = types.RolloutBufferSamples(obs, action, values, log_probability, returns - values, returns)
    expected = theirs_after(model, network_of(), samples)
    learner.update(Samples(obs, action, returns))
    compared(learner, expected, network_of())


def test_advantages_are_stable_baselines() -> None:
    """Three games, of which episodes terminate and are truncated, where the last env step ends one, too."""
    rng = np.random.default_rng(0)
    steps, games, gamma, trace_decay = 40, 3, 0.99, 0.95
    reward, value = rng.normal(size=(2, steps, games))
    after = np.concatenate([value[1:], rng.normal(size=(1, games))])
    kind = rng.choice(3, p=(0.8, 0.1, 0.1), size=(steps, games))  # goes on, terminated, truncated
    kind[-1] = (0, 1, 2)
    terminated, truncated = kind == 1, kind == 2
    beyond = np.where(kind == 0, after, rng.normal(size=(steps, games)))  # values of the last observations of episodes

    space = gymnasium.spaces
    buffer = buffers.RolloutBuffer(steps, space.Box(-1, 1, (4,)), space.Discrete(2), "cpu", trace_decay, gamma, games)
    buffer.rewards, buffer.values = reward + gamma * beyond * truncated, value.copy()
    buffer.episode_starts = np.concatenate([np.zeros((1, games)), (kind != 0)[:-1]]).astype(np.float64)
    buffer.advantages = np.zeros((steps, games))
    buffer.compute_returns_and_advantage(torch.from_numpy(after[-1]), kind[-1] != 0)

    columns = (reward, gamma * ~terminated, value, beyond, (kind == 0).astype(np.float64))
    r_t, discount_t, v_tm1, v_t, continues_t = (torch.from_numpy(np.asarray(column)) for column in columns)
    ours = generalised_advantages(r_t, discount_t, v_tm1, v_t, continues_t, trace_decay)
    assert truncated.any()
    assert terminated.any()
    torch.testing.assert_close(ours, torch.from_numpy(buffer.advantages), rtol=0, atol=1e-12)


def saying(found: Callable[[], Any]) -> Callable[..., Any]:
    """Return a function that says so, whatever it is asked."""

    def said(*_: Any, **__: Any) -> Any:
        return found()

    return said


def sac_layers_of(model: Any) -> list[tuple[Tensor, ...]]:
    """Return weights and biases of Stable-Baselines3's networks, laid out as ours: the actor's last layer is one."""
    actor = model.policy.actor
    found: list[tuple[Tensor, ...]] = [
        (one.weight, one.bias) for one in actor.latent_pi if isinstance(one, torch.nn.Linear)
    ]
    found.append((torch.cat((actor.mu.weight, actor.log_std.weight)), torch.cat((actor.mu.bias, actor.log_std.bias))))
    for critic in (model.policy.critic, model.policy.critic_target):
        found += [(one.weight, one.bias) for q in critic.q_networks for one in q if isinstance(one, torch.nn.Linear)]
    return found


def test_sac_updates_as_stable_baselines_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three updates with the same weights, batches and noise: actor, critics, their averages and the temperature."""
    hidden, rate, share, gamma = 16, 1e-2, 0.05, 0.97
    settings = {"learning_rate": rate, "tau": share, "gamma": gamma, "policy_kwargs": {"net_arch": [hidden, hidden]}}
    model = sb3.SAC("MlpPolicy", gymnasium.make("Pendulum-v1"), device="cpu", seed=0, buffer_size=8, **settings)
    model.policy.double()
    model.log_ent_coef.data = model.log_ent_coef.data.double()
    model.set_logger(logger.configure(None, []))

    generator = torch.Generator().manual_seed(0)
    actor, critic = GaussianActor(3, 1, generator, hidden).double(), TwinCritic(3, 1, generator, hidden).double()
    first = [tensor.detach().clone() for pair in sac_layers_of(model) for tensor in pair]
    with torch.no_grad():
        for ours, theirs in zip([*actor.parameters(), *critic.parameters()], first, strict=False):
            ours.copy_(theirs)
    learner = SACLearner(actor, critic, torch.Generator().manual_seed(1), SACSettings(rate, target_average=share))

    rng, drawn = torch.Generator().manual_seed(2), torch.Generator().manual_seed(1)
    for _ in range(3):
        obs, after = torch.randn((2, BATCH, 3), generator=rng, dtype=torch.float64)
        action = 2 * torch.rand((BATCH, 1), generator=rng, dtype=torch.float64) - 1
        reward = torch.randn(BATCH, generator=rng, dtype=torch.float64)
        done = (torch.rand(BATCH, generator=rng) < 0.3).double()
        noise = iter(torch.randn((2, BATCH, 1), generator=drawn, dtype=torch.float64))
        monkeypatch.setattr("torch.distributions.normal._standard_normal", saying(noise.__next__))
        batch = types.ReplayBufferSamples(obs, action, after, done[:, None], reward[:, None])
        model.replay_buffer.sample = saying(lambda batch=batch: batch)
        model.train(1, BATCH)
        learner.update(Batch(obs, action, reward, gamma * (1 - done), after))

    theirs = [tensor for pair in sac_layers_of(model) for tensor in pair]
    ours = [*learner.network.parameters(), *learner.critic.parameters(), *learner.target.parameters()]
    for a, b, before in zip(ours, theirs, first, strict=True):
        torch.testing.assert_close(a.detach(), b.detach(), rtol=0, atol=1e-7)  # Adam divides rounding by small moments
        assert not torch.equal(a, before)
    assert learner.log_temperature.item() == pytest.approx(model.log_ent_coef.item(), abs=1e-9)
