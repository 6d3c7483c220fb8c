"""Proximal policy optimisation: several updates on the same play, none of which may move the policy far."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fastdqn.algorithms.a2c import A2CLearner, Settings
from fastdqn.algorithms.descent import set_learning_rate
from fastdqn.algorithms.form import PLAIN, Form
from fastdqn.networks.lowered import backward
from fastdqn.seam import Descent, Group
from fastdqn.types import EpisodeEnd, Metrics


class PolicySamples(NamedTuple):
    """B samples, and what the policy and the value that played said of them; on one device."""

    obs: Tensor  # (B, C, H, W) uint8, or (B, D) float32
    action: Tensor  # (B,) int64
    log_probability: Tensor  # (B,) float32, of the action when it was drawn
    advantage: Tensor  # (B,) float32
    target: Tensor  # (B,) float32, the return, which the value is to predict


class Rollout(NamedTuple):
    """All samples of T steps of N games, and what was played."""

    samples: PolicySamples
    env_steps: int
    episodes: tuple[EpisodeEnd, ...]
    rows: int = 0  # T * N, those of resets too, which are no samples

    def minibatches(self, size: int, epochs: int, generator: torch.Generator) -> Iterator[PolicySamples]:
        """Yield all samples once an epoch, in a new order each time, in batches of at most `size`.

        How many batches there are does not depend on how many games were reset: others may wait for as many. Where the
        samples would fill fewer, they are as large as each other.
        """
        count = len(self.samples.action)
        batches = min(count, -(-max(count, self.rows) // size))
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

    Args:
        network: returns logits (B, A) and values (B,); on its device.
        noise: random numbers of the actions, on the same device.
        settings: of an update.
        clip: c.
        order: random numbers of the order in which samples are learnt from, on the CPU.
        descent: what becomes of gradients; by default they are stepped here.
        form: how the arithmetic is laid out.
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
        normalise: bool = True,
    ) -> None:
        super().__init__(network, noise, settings, descent, form)
        self.order = order
        self._clip = clip
        self._normalise = normalise

    def set_learning_rate(self, learning_rate: float) -> None:
        """Change the step size of all later updates."""
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
        logits, values = self.outputs(batch.obs)
        log_probabilities = logits.log_softmax(dim=1)
        taken = log_probabilities.gather(1, batch.action.unsqueeze(1)).squeeze(1)
        entropy = -(log_probabilities.exp() * log_probabilities).sum(dim=1)
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
        backward(total, group.parameters, self._lowered)
        scalars = {
            "advantage": batch.advantage.mean(),
            "values": values.detach().mean(),
            "batch_rewards": batch.target.mean(),
            "kl": ((ratio - 1.0) - log_ratio).detach().mean(),
            "clipped": ((ratio - 1.0).abs() > self._clip).float().mean(),
            "loss_entropy": bonus.detach(),
            "loss_policy": policy.detach(),
            "loss_value": value.detach(),
            "loss_total": total.detach(),
        }
        return Metrics(scalars, batch.advantage.abs())
