"""Stable-Baselines3's formulas, written out: GAE, and the losses and steps of A2C and PPO, one number at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

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
