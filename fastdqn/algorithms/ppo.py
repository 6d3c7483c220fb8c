"""Proximal policy optimisation: several updates on the same play, none of which may move the policy far."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fastdqn.algorithms.a2c import A2CLearner, Settings
from fastdqn.algorithms.distributions import Categorical, DiagonalGaussian
from fastdqn.algorithms.form import PLAIN, Form
from fastdqn.networks.lowered import backward
from fastdqn.seam import Descent, Group
from fastdqn.steps import learning_rate_of, set_learning_rate
from fastdqn.types import EpisodeEnd, Metrics

KL_SLACK = 1.5
"""An update is not made beyond so many times the target of the divergence (Stable-Baselines3)."""


class PolicySamples(NamedTuple):
    """B samples, and what the policy and the value that played said of them; on one device."""

    obs: Tensor  # (B, C, H, W) uint8, or (B, D) float32
    action: Tensor  # (B,) int64, or where actions are vectors (B, A) float32, as they were drawn
    log_probability: Tensor  # (B,) float32, of the action when it was drawn
    advantage: Tensor  # (B,) float32
    target: Tensor  # (B,) float32, the return, which the value is to predict


class Rollout(NamedTuple):
    """All samples of T steps of N games, and what was played."""

    samples: PolicySamples
    env_steps: int
    episodes: tuple[EpisodeEnd, ...]
    rows: int = 0  # T * N, those of resets too, which are no samples

    def explained_variance(self) -> Tensor:
        """Return the share of the returns' variance that the values foresaw, () float32: 1 - Var(R - V) / Var(R), or 0
        where all returns are the same.
        """
        variance, unforeseen = (one.var(correction=0) for one in (self.samples.target, self.samples.advantage))
        return torch.where(variance > 0.0, 1.0 - unforeseen / variance, 0.0)

    def batches(self, size: int) -> int:
        """Return how many batches of at most `size` an epoch has."""
        count = len(self.samples.action)
        return min(count, -(-max(count, self.rows) // size))

    def minibatches(self, size: int, epochs: int, generator: torch.Generator) -> Iterator[PolicySamples]:
        """Yield all samples once an epoch, in a new order each time, in batches of at most `size`.

        How many batches there are does not depend on how many games were reset: others may wait for as many. Where the
        samples would fill fewer, they are as large as each other.
        """
        count = len(self.samples.action)
        batches = self.batches(size)
        edges = [*range(0, count, size), count]
        if len(edges) <= batches:
            edges = [i * count // batches for i in range(batches + 1)]
        for _ in range(epochs):
            order = torch.randperm(count, generator=generator).to(self.samples.action.device)
            for begin, end in itertools.pairwise(edges):
                rows = order[begin:end]
                yield PolicySamples._make(picked(column, rows) for column in self.samples)


def picked(column: Tensor, rows: Tensor) -> Tensor:
    """Return some rows; frames keep their layout, with channels last or not."""
    if column.ndim != 4:
        return column[rows]
    if column.is_contiguous(memory_format=torch.channels_last):
        return _in_one_piece(column.permute(0, 2, 3, 1), rows).permute(0, 3, 1, 2)
    return _in_one_piece(column, rows)


def _in_one_piece(frames: Tensor, rows: Tensor) -> Tensor:
    """Return rows of frames (B, ...) that lie one after the other, each of them in one piece."""
    return frames.reshape(len(frames), -1).index_select(0, rows).view(-1, *frames.shape[1:])


class PPOLearner(A2CLearner):
    """Proximal policy optimisation with a clipped objective (Schulman et al. 2017, eq. 7 and 9).

    loss = -mean(min(r A, clip(r, 1 - c, 1 + c) A)) + value_weight * mean((R - V(s))^2) - entropy_weight * mean(H),
    where r is the probability of the action now over that when it was drawn, and A are advantages.

    Deviates: advantages have mean 0 and standard deviation 1 in each batch, as in Stable-Baselines3; of several ranks
    in each rank's own.

    With `target_kl` an update is not made once the mean of (r - 1) - log r, an estimate of the Kullback-Leibler
    divergence (Schulman 2020, "Approximating KL divergence"), is above 1.5 times as much, as in Stable-Baselines3.
    Whoever learns from a rollout then goes on to the next one.

    Args:
        network: returns what `distribution` takes, say logits (B, A), and values (B,); on its device.
        noise: random numbers of the actions, on the same device.
        settings: of an update.
        clip: c.
        order: random numbers of the order in which samples are learnt from, on the CPU.
        descent: what becomes of gradients; by default they are stepped here.
        form: how the arithmetic is laid out.
        distribution: of the actions.
        target_kl: how far the policy may move, in nats; None for no bound.
        normalise: whether advantages are.
    """

    def __init__(
        self,
        network: nn.Module,
        noise: torch.Generator,
        settings: Settings,
        clip: float,
        order: torch.Generator,
        descent: Descent | None = None,
        form: Form = PLAIN,
        distribution: type[Categorical] | type[DiagonalGaussian] = Categorical,
        target_kl: float | None = None,
        normalise: bool = True,
    ) -> None:
        super().__init__(network, noise, settings, descent, form, distribution)
        self.order = order
        self.stopped = False
        """Whether the newest update was not made, because the policy had moved too far from the one that played."""
        self._clip = clip
        self._most = None if target_kl is None else KL_SLACK * target_kl
        self._normalise = normalise

    def set_learning_rate(self, learning_rate: float) -> None:
        """Change the learning rate of all later updates."""
        set_learning_rate(self.group.optimizer, learning_rate)

    def state(self) -> dict[str, Any]:
        """Return copies of network and optimiser, and where the order of samples stands."""
        return {**super().state(), "order": self.order.get_state()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from there; before the first update."""
        super().load(state)
        self.order.set_state(state["order"])

    def gradient(self, group: Group, batch: PolicySamples) -> Metrics:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Leave the gradient of the loss on `batch` (B samples on the device) with the network."""
        total, metrics = self._loss(batch)
        backward(total, group.parameters, self._lowered)
        return metrics

    def update(self, batch: Any) -> Metrics:
        """Make one update on `batch` (B samples on the learner's device), or none and be `stopped`: this is decided on
        the mean over all who learn together, before anybody computes a gradient, so that all stop or none.

        Does not wait for the device, unless there is a `target_kl`.
        """
        total, metrics = self._loss(batch)
        self.stopped = self._most is not None and float(self.descent.mean(metrics.scalars["approx_kl"])) > self._most
        if not self.stopped:
            backward(total, self.group.parameters, self._lowered)
            self.descent.step(self.group)
            self.stepped(self.group)
        return metrics

    def _loss(self, batch: PolicySamples) -> tuple[Tensor, Metrics]:
        said, values = self.outputs(batch.obs)
        distribution = self.policy.distribution(said)
        taken, entropy = distribution.log_probability(batch.action), distribution.entropy()
        advantage = batch.advantage
        if self._normalise and len(advantage) > 1:
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        log_ratio = taken - batch.log_probability
        ratio = log_ratio.exp()
        clipped = ratio.clamp(1.0 - self._clip, 1.0 + self._clip)
        policy = -torch.minimum(advantage * ratio, advantage * clipped).mean()
        value = self._settings.value_weight * nn.functional.mse_loss(values, batch.target)
        bonus = -self._settings.entropy_weight * entropy.mean()
        total = policy + value + bonus
        scalars = {
            "advantage": batch.advantage.mean(),
            "values": values.detach().mean(),
            "batch_rewards": batch.target.mean(),
            "approx_kl": ((ratio - 1.0) - log_ratio).detach().mean(),
            "clip_fraction": ((ratio - 1.0).abs() > self._clip).float().mean(),
            "loss_entropy": bonus.detach(),
            "loss_policy": policy.detach(),
            "loss_value": value.detach(),
            "loss_total": total.detach(),
            "learning_rate": learning_rate_of(self.group.optimizer),
        }
        return total, Metrics(scalars, batch.advantage.abs())
