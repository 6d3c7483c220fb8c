"""Advantage actor-critic: a policy moves towards what turned out better than its value, and the value to what came."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fastdqn.algorithms.descent import Local, build_adam
from fastdqn.algorithms.distributions import Categorical, DiagonalGaussian
from fastdqn.algorithms.form import PLAIN, Form
from fastdqn.networks.arithmetic import in_bf16
from fastdqn.networks.lowered import Lowered, backward
from fastdqn.networks.torso import use_channels_last
from fastdqn.seam import Descent, Group
from fastdqn.states import NothingUnfinished, on_cpu
from fastdqn.steps import load_optimizer
from fastdqn.types import Metrics, Samples

PROGRESS = {"loss_entropy": ".3g", "values": ".3g", "loss_total": ".3g"}
"""What the progress line of a run of an actor-critic shows, and in which format."""


@dataclass(frozen=True)
class Settings:
    """Hyper-parameters of an update; the defaults are Lapan's for Pong (2020, chapter 13)."""

    learning_rate: float = 1e-3
    adam_epsilon: float = 1e-3
    entropy_weight: float = 0.01
    value_weight: float = 1.0
    max_norm: float = 0.1


class Policy:
    """Draws actions from what an actor-critic says of them.

    Args:
        network: returns what `distribution` takes, say logits (B, A), and values (B,).
        noise: random numbers, on the network's device.
        outputs: computes what the network returns, where that is not done by calling it.
        distribution: of the actions.
    """

    def __init__(
        self,
        network: nn.Module,
        noise: torch.Generator,
        outputs: Callable[[Tensor], tuple[Tensor, Tensor]] | None = None,
        distribution: type[Categorical] | type[DiagonalGaussian] = Categorical,
    ) -> None:
        self.network = network
        self.noise = noise
        self.distribution = distribution
        self._outputs = outputs or network

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return next(self.network.parameters()).device

    @property
    def numbered(self) -> bool:
        """Whether actions are one of several, instead of vectors."""
        return self.distribution is Categorical

    def act(self, obs: Tensor) -> Tensor:
        """Return actions (N,) int64, drawn by their probabilities, for (N, C, H, W) uint8 or (N, D) float32; where
        actions are vectors (N, A) float32."""
        if self.numbered:
            return torch.multinomial(self.probabilities(obs), 1, generator=self.noise).squeeze(1)
        return self.draw(obs)[0]

    def draw(self, obs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return actions as `act` does, their log probabilities and the values, (N,) each, without gradient."""
        with torch.no_grad():
            said, values = self._outputs(obs)
            distribution = self.distribution(said)
            action = distribution.draw(self.noise)
            return action, distribution.log_probability(action), values

    def probabilities(self, obs: Tensor) -> Tensor:
        """Return the probabilities of discrete actions, (N, A)."""
        with torch.no_grad():
            return self._outputs(obs)[0].softmax(dim=1)

    def values(self, obs: Tensor) -> Tensor:
        """Return the values (N,), without gradient."""
        with torch.no_grad():
            return self._outputs(obs)[1]


class A2CLearner(NothingUnfinished):
    """Advantage actor-critic: one gradient of policy, value and entropy (Mnih et al. 2016, section 4, "A3C").

    loss = -mean(log pi(a|s) * (R - V(s))) + value_weight * mean((R - V(s))^2) - entropy_weight * mean(H(pi(.|s))),
    where the advantage R - V(s) carries no gradient in the first term.

    Deviates: Mnih et al. sum over the samples instead of taking the mean.

    Args:
        network: returns logits (B, A) and values (B,); on its device.
        noise: random numbers of the actions, on the same device.
        settings: of an update.
        descent: what becomes of gradients; by default they are stepped here.
        form: how the arithmetic is laid out.
        distribution: of the actions.
    """

    def __init__(
        self,
        network: nn.Module,
        noise: torch.Generator,
        settings: Settings = Settings(),
        descent: Descent | None = None,
        form: Form = PLAIN,
        distribution: type[Categorical] | type[DiagonalGaussian] = Categorical,
    ) -> None:
        self.network = network
        self.policy = Policy(network, noise, self.outputs, distribution)
        self.device = self.policy.device
        self.descent: Descent = descent or Local()
        self.form = form
        self._settings = settings
        if form.channels_last:
            use_channels_last(network)
        self._lowered = Lowered(copy.deepcopy(network), network) if form.bf16 else None
        self._computing = network if self._lowered is None else self._lowered.network
        parameters = list(network.parameters())
        adam = build_adam(parameters, settings.learning_rate, settings.adam_epsilon, form.fused, form.capturable)
        self.group = Group("actor-critic", parameters, adam, settings.max_norm)

    @property
    def noise(self) -> torch.Generator:
        """The random numbers of the actions."""
        return self.policy.noise

    def act(self, obs: Tensor) -> Tensor:
        """Return actions (N,), or vectors (N, A), that the policy draws."""
        return self.policy.act(obs)

    def outputs(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return what is said of the actions, say logits (B, A), and the values (B,) of (B, C, H, W) uint8 or (B, D)
        float32, as an update computes them.
        """
        if self._lowered is not None:
            self._lowered.keep_up()
        with in_bf16(self.device, self.form.bf16):
            return self._computing(obs)

    def policy_of_its_own(self) -> Policy:
        """Return a policy with a copy of the weights, which computes what an update does."""
        network = copy.deepcopy(self.network)

        def outputs(obs: Tensor) -> tuple[Tensor, Tensor]:
            with in_bf16(self.device, self.form.bf16):
                return network(obs)

        return Policy(network, self.noise, outputs, self.policy.distribution)

    def groups(self) -> Sequence[Group]:
        """Return the one group, the whole network."""
        return (self.group,)

    def gradient(self, group: Group, batch: Samples) -> Metrics:
        """Leave the gradient of the loss on `batch` (B samples on the device) with the network.

        The metrics are those of Lapan 2020, chapter 13: means of advantages, values and returns (batch_rewards), and
        the parts of the loss, each with its weight.
        """
        said, values = self.outputs(batch.obs)
        distribution = self.policy.distribution(said)
        advantage = batch.target - values.detach()
        taken, entropy = distribution.log_probability(batch.action), distribution.entropy()
        policy = -(advantage * taken).mean()
        value = self._settings.value_weight * nn.functional.mse_loss(values, batch.target)
        bonus = -self._settings.entropy_weight * entropy.mean()
        total = policy + value + bonus
        backward(total, group.parameters, self._lowered)
        scalars = {
            "advantage": advantage.mean(),
            "values": values.detach().mean(),
            "batch_rewards": batch.target.mean(),
            "loss_entropy": bonus.detach(),
            "loss_policy": policy.detach(),
            "loss_value": value.detach(),
            "loss_total": total.detach(),
        }
        return Metrics(scalars, advantage.abs())

    def stepped(self, group: Group) -> None:  # noqa: ARG002 - there is one group
        """Lower what has changed."""
        if self._lowered is not None:
            self._lowered.refresh()

    def update(self, batch: Any) -> Metrics:
        """Make one update on `batch` (B samples on the learner's device); does not wait for it."""
        metrics = self.gradient(self.group, batch)
        self.descent.step(self.group)
        self.stepped(self.group)
        return metrics

    def tensors(self) -> Mapping[str, Tensor]:
        """Return the weights."""
        return {f"network.{key}": value for key, value in self.network.state_dict().items()}

    def state(self) -> dict[str, Any]:
        """Return copies of network and optimiser; the random numbers of the actions are the player's."""
        return {
            "network": on_cpu(self.network.state_dict()),
            "optimizer": on_cpu(self.group.optimizer.state_dict()),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from there; before the first update."""
        self.network.load_state_dict(state["network"])
        load_optimizer(self.group.optimizer, state["optimizer"])
