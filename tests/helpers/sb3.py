"""Stable-Baselines3's formulas, written out: GAE, the losses and steps of A2C, PPO and SAC, one number at a time."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn


def gae(
    reward: Sequence[float],
    terminated: Sequence[bool],
    truncated: Sequence[bool],
    value: Sequence[float],
    value_after: Sequence[float],
    gamma: float,
    trace_decay: float,
) -> list[float]:
    """Advantages of one game's env steps as RolloutBuffer.compute_returns_and_advantage has them.

    Where an episode was truncated, on_policy_algorithm.py adds gamma times the value of the last observation to the
    reward, and then both endings look alike: nothing is taken from beyond.
    """
    found = [0.0] * len(reward)
    last = 0.0
    for t in reversed(range(len(reward))):
        over = terminated[t] or truncated[t]
        bonus = gamma * value_after[t] if truncated[t] and not terminated[t] else 0.0
        going_on = 0.0 if over else 1.0
        delta = reward[t] + bonus + gamma * value_after[t] * going_on - value[t]
        last = delta + gamma * trace_decay * going_on * last
        found[t] = last
    return found


class Losses(NamedTuple):
    """Parts of A2C's loss, without their weights."""

    policy: Tensor
    value: Tensor
    entropy: Tensor


def a2c_losses(network: nn.Module, obs: Tensor, action: Tensor, returns: Tensor, advantages: Tensor) -> Losses:
    """The losses of stable_baselines3/a2c/a2c.py, sample by sample."""
    policy, value, entropy = 0.0, 0.0, 0.0
    count = len(action)
    for i in range(count):
        logits, v = network(obs[i : i + 1])
        exps = [torch.exp(logit) for logit in logits[0]]
        probabilities = [one / sum(exps) for one in exps]
        policy = policy - advantages[i] * torch.log(probabilities[int(action[i])]) / count
        value = value + (returns[i] - v[0]) ** 2 / count
        entropy = entropy + sum(p * torch.log(p) for p in probabilities) / count
    return Losses(torch.as_tensor(policy), torch.as_tensor(value), torch.as_tensor(entropy))


def ppo_losses(
    network: nn.Module,
    obs: Tensor,
    action: Tensor,
    returns: Tensor,
    advantages: Tensor,
    old_log_probability: Tensor,
    clip: float,
) -> Losses:
    """The losses of stable_baselines3/ppo/ppo.py, sample by sample, with its normalised advantages."""
    mean = sum(advantages.tolist()) / len(advantages)
    deviation = math.sqrt(sum((a - mean) ** 2 for a in advantages.tolist()) / (len(advantages) - 1))
    plain = a2c_losses(network, obs, action, returns, advantages)
    policy = 0.0
    for i in range(len(action)):
        advantage = (float(advantages[i]) - mean) / (deviation + 1e-8)
        log_probability = network(obs[i : i + 1])[0].log_softmax(dim=1)[0, int(action[i])]
        ratio = torch.exp(log_probability - old_log_probability[i])
        near = torch.clamp(ratio, 1 - clip, 1 + clip)
        policy = policy - torch.min(advantage * ratio, advantage * near) / len(action)
    return Losses(torch.as_tensor(policy), plain.value, plain.entropy)


def clip_coefficient(gradients: Sequence[Tensor], max_norm: float) -> float:
    """What clip_grad_norm_ multiplies gradients with."""
    norm = math.sqrt(sum(float((gradient**2).sum()) for gradient in gradients))
    return min(1.0, max_norm / (norm + 1e-6))


def first_adam_step(weight: Tensor, gradient: Tensor, learning_rate: float, epsilon: float) -> Tensor:
    """Return `weight` after Adam's first step, whose corrected moments are the gradient and its square."""
    return weight - learning_rate * gradient / (gradient.abs() + epsilon)


def squashed_log_probability(mean: Tensor, log_std: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Actions and log probabilities as SquashedDiagGaussianDistribution has them, one number at a time."""
    actions, said = [], []
    for mu, log_sigma, eps in zip(mean, log_std, noise, strict=True):
        sigma = torch.exp(log_sigma)
        u = mu + sigma * eps
        a = torch.tanh(u)
        total = torch.zeros((), dtype=mean.dtype)
        for i in range(len(u)):
            density = (
                -((u[i] - mu[i]) ** 2) / (2 * sigma[i] ** 2) - torch.log(sigma[i]) - math.log(math.sqrt(2 * math.pi))
            )
            total = total + density - torch.log(1 - a[i] ** 2 + 1e-6)
        actions.append(a)
        said.append(total)
    return torch.stack(actions), torch.stack(said)


class SACReference:
    """The training step of stable_baselines3/sac/sac.py with an automatic entropy coefficient, with PyTorch's own Adam.

    Args:
        actor: returns mean and log_std, (B, A) each.
        critic: returns two values (B,) each.
        learning_rate: of all three optimisers.
        tau: share of the critic in its target.
        gamma: discount of future rewards.
    """

    def __init__(self, actor: nn.Module, critic: nn.Module, learning_rate: float, tau: float, gamma: float) -> None:
        self.actor, self.critic, self.target = actor, critic, copy.deepcopy(critic)
        self.log_ent_coef = torch.zeros(1, dtype=torch.float64, requires_grad=True)
        self.tau, self.gamma = tau, gamma
        self.ent_coef_adam = torch.optim.Adam([self.log_ent_coef], learning_rate)
        self.critic_adam = torch.optim.Adam(critic.parameters(), learning_rate)
        self.actor_adam = torch.optim.Adam(actor.parameters(), learning_rate)

    def step(
        self, obs: Tensor, action: Tensor, reward: Tensor, done: Tensor, next_obs: Tensor, noise: Tensor
    ) -> dict[str, float]:
        """One gradient step; `done` is 1 where an episode terminated, not where it was truncated."""
        count, numbers = action.shape
        drawn, log_prob = squashed_log_probability(*self.actor(obs), noise[0])
        ent_coef = math.exp(float(self.log_ent_coef.detach()))
        ent_coef_loss = -(self.log_ent_coef * (log_prob - numbers).detach()).sum() / count
        self._step(self.ent_coef_adam, ent_coef_loss)
        with torch.no_grad():
            next_drawn, next_log_prob = squashed_log_probability(*self.actor(next_obs), noise[1])
            values = self.target(next_obs, next_drawn)
            targets = [
                reward[i] + (1 - done[i]) * self.gamma * (min(q[i] for q in values) - ent_coef * next_log_prob[i])
                for i in range(count)
            ]
        critic_loss = 0.5 * sum(
            sum((q[i] - targets[i]) ** 2 for i in range(count)) / count for q in self.critic(obs, action)
        )
        self._step(self.critic_adam, critic_loss)
        values = self.critic(obs, drawn)
        actor_loss = sum(ent_coef * log_prob[i] - min(q[i] for q in values) for i in range(count)) / count
        self._step(self.actor_adam, actor_loss)
        with torch.no_grad():
            for average, weight in zip(self.target.parameters(), self.critic.parameters(), strict=True):
                average.mul_(1 - self.tau).add_(self.tau * weight)
        losses = {"loss_temperature": ent_coef_loss, "loss_critic": critic_loss, "loss_actor": actor_loss}
        return {name: float(loss.detach()) for name, loss in losses.items()}

    def _step(self, adam: torch.optim.Adam, loss: Any) -> None:
        adam.zero_grad()
        loss.backward(retain_graph=True)
        adam.step()
