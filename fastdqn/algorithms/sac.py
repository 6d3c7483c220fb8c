"""Soft actor-critic: values of continuous actions, and a policy that is as random as these values let it be."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fastdqn.algorithms.descent import Local, build_adam
from fastdqn.algorithms.distributions import LOG_ROOT_2_PI
from fastdqn.foreach import lerp_all
from fastdqn.networks.control import GaussianActor, TwinCritic
from fastdqn.seam import Descent, Group
from fastdqn.states import NothingUnfinished, on_cpu, set_generator
from fastdqn.steps import load_optimizer
from fastdqn.types import Batch, Metrics

PROGRESS = {"mean_q": ".2f", "entropy": ".2f", "temperature": ".3g", "loss_critic": ".3g"}
"""What the progress line of a run of soft actor-critic shows, and in which format."""
EPSILON = 1e-6
"""Keeps the logarithm of the tanh correction finite (as in the authors' own code)."""


@dataclass(frozen=True)
class Settings:
    """Hyper-parameters of an update; the defaults are Haarnoja et al.'s (2018b, table 1)."""

    learning_rate: float = 3e-4
    adam_epsilon: float = 1e-8
    target_average: float = 0.005  # the share of the critics in their targets at each update
    target_entropy: float | None = None  # by default -A
    initial_temperature: float = 1.0
    temperature: float | None = None  # one that stays, instead of one that is learnt
    max_norm: float | None = None  # to which gradients of actor and critics are clipped, each
    fused: bool = False  # Adam in one kernel


def squashed(mean: Tensor, log_std: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Return actions a = tanh(u), (B, A) from -1 to 1, of u = mean + std * noise, and their log densities (B,).

    log pi(a) = log N(u) - sum(log(1 - tanh(u)^2)), the second term for the change of variables (Haarnoja et al. 2018a,
    appendix C). It is in [-1, 1]: whatever an environment scales actions to moves all densities alike.

    Deviates: `EPSILON` is added under the logarithm, as in the authors' own code.

    Args:
        mean: (B, A).
        log_std: (B, A).
        noise: (B, A), standard normal.
    """
    action = torch.tanh(mean + log_std.exp() * noise)
    correction = torch.log((1.0 + EPSILON) - action * action)
    constant = noise * noise * 0.5 + LOG_ROOT_2_PI  # carries no gradient
    return action, -(constant + log_std + correction).sum(dim=1)


class _Drawn(NamedTuple):
    """What all gradients of one update on a batch have in common."""

    batch: Batch
    action: Tensor  # (B, A), of the policy as it is now, with its gradient
    log_probability: Tensor  # (B,), likewise
    next_noise: Tensor  # (B, A), for the actions that follow
    temperature: Tensor  # () before its own step


class SACLearner(NothingUnfinished):
    """Soft actor-critic with twin critics and a temperature that is learnt (Haarnoja et al. 2018a, 2018b).

    Three groups, in the order of Stable-Baselines3:

    - temperature: loss = -mean(log alpha * (log pi(a|s) + H)), with a target H of the entropy (2018b, eq. 18, of log
      alpha instead of alpha);
    - critic: loss = 1/2 * sum over both critics of mean((r + discount * (min Q'(s', a') - alpha * log pi(a'|s')) -
      Q(s, b))^2), where b is the action in the batch and Q' are averages of the critics (2018b, eq. 5, 6);
    - actor: loss = mean(alpha * log pi(a|s) - min Q(s, a)), with the critics already stepped (2018b, eq. 9).

    a and a' are drawn by the policy as it was before the update, alpha is that of before it, too. A temperature that
    stays has no group.

    Args:
        actor: on its device.
        critic: likewise.
        noise: random numbers of the actions that an update draws, on the same device.
        settings: of an update.
        descent: what becomes of gradients; by default they are stepped here.
    """

    def __init__(
        self,
        actor: GaussianActor,
        critic: TwinCritic,
        noise: torch.Generator,
        settings: Settings = Settings(),
        descent: Descent | None = None,
    ) -> None:
        self.network = actor
        self.critic = critic
        self.target = copy.deepcopy(critic).requires_grad_(False)
        self.noise = noise
        self.descent: Descent = descent or Local()
        self._weights = list(actor.parameters())
        self.device, kind = self._weights[0].device, self._weights[0].dtype
        learnt = settings.temperature is None
        first = math.log(settings.initial_temperature if settings.temperature is None else settings.temperature)
        self.log_temperature = torch.tensor(first, dtype=kind, device=self.device, requires_grad=learnt)
        self._settings = settings
        self._online, self._averages = list(critic.parameters()), list(self.target.parameters())
        self._drawn: _Drawn | None = None
        members = {"temperature": [self.log_temperature], "critic": self._online, "actor": self._weights}
        self._groups = tuple(
            Group(name, parameters, self._adam(parameters), None if name == "temperature" else settings.max_norm)
            for name, parameters in members.items()
            if learnt or name != "temperature"
        )
        self._losses = {"temperature": self._temperature, "critic": self._critic, "actor": self._actor}

    def act(self, obs: Tensor) -> Tensor:
        """Return actions (N, A) drawn by the policy, for (N, D)."""
        return drawn_actions(self.network, obs, self.noise)

    def best(self, obs: Tensor) -> Tensor:
        """Return the squashed means (N, A) for (N, D): what is played where nothing is to be explored any more."""
        with torch.no_grad():
            return torch.tanh(self.network(obs)[0])

    def groups(self) -> Sequence[Group]:
        """Return temperature, if it is learnt, critic and actor."""
        return self._groups

    def gradient(self, group: Group, batch: Batch) -> Metrics:
        """Leave the gradient of the group's loss on `batch` (B transitions on the device) with its parameters."""
        drawn = self._drawn
        if drawn is None or drawn.batch is not batch:
            drawn = self._drawn = self._draw(batch)
        for parameter in group.parameters:
            parameter.grad = None
        return self._losses[group.name](drawn)

    def stepped(self, group: Group) -> None:
        """Move the targets towards the critics; after the last group, let go of what the update had drawn."""
        if group.name == "critic":
            lerp_all(self._averages, self._online, self._settings.target_average)
        if group.name == "actor":
            self._drawn = None

    def update(self, batch: Batch) -> Metrics:
        """Make one update on `batch` (B transitions on the learner's device); does not wait for it."""
        scalars: dict[str, Tensor] = {}
        priority = batch.reward
        for group in self._groups:
            metrics = self.gradient(group, batch)
            self.descent.step(group)
            self.stepped(group)
            scalars |= metrics.scalars
            priority = metrics.priority if group.name == "critic" else priority
        return Metrics(scalars, priority)

    def follow(self) -> None:
        """Let the targets be the critics as they are now."""
        self.target.load_state_dict(self.critic.state_dict())

    def tensors(self) -> Mapping[str, Tensor]:
        """Return the weights of the three networks, and the temperature."""
        networks: dict[str, nn.Module] = {"network": self.network, "critic": self.critic, "target": self.target}
        weights = {f"{name}.{key}": value for name, net in networks.items() for key, value in net.state_dict().items()}
        return {**weights, "log_temperature": self.log_temperature.detach()}

    def state(self) -> dict[str, Any]:
        """Return copies of networks, temperature, optimisers and the noise generator."""
        return {
            "network": on_cpu(self.network.state_dict()),
            "critic": on_cpu(self.critic.state_dict()),
            "target": on_cpu(self.target.state_dict()),
            "log_temperature": on_cpu(self.log_temperature),
            "optimizers": {group.name: on_cpu(group.optimizer.state_dict()) for group in self._groups},
            "noise": self.noise.get_state(),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from there; before the first update."""
        self.load_networks(state)
        for group in self._groups:
            load_optimizer(group.optimizer, state["optimizers"][group.name])

    def load_networks(self, state: Mapping[str, Any]) -> None:
        """Have the networks, the temperature and the noise of `state`; the optimisers stay as they are."""
        self.network.load_state_dict(state["network"])
        self.critic.load_state_dict(state["critic"])
        self.target.load_state_dict(state["target"])
        self.log_temperature.detach().copy_(state["log_temperature"])
        set_generator(self.noise, state["noise"])

    def _adam(self, parameters: Sequence[Tensor]) -> torch.optim.Optimizer:
        settings = self._settings
        return build_adam(parameters, settings.learning_rate, settings.adam_epsilon, settings.fused, False)

    def _draw(self, batch: Batch) -> _Drawn:
        """Draw the policy's actions at the observations of `batch`, and all else that an update is to draw."""
        kind, device = self.log_temperature.dtype, self.device
        noise = torch.randn((2, *batch.action.shape), generator=self.noise, device=device, dtype=kind)
        mean, log_std = self.network(batch.obs)
        action, log_probability = squashed(mean, log_std, noise[0])
        return _Drawn(batch, action, log_probability, noise[1], self.log_temperature.detach().exp())

    def _temperature(self, drawn: _Drawn) -> Metrics:
        log_probability = drawn.log_probability.detach()
        target = self._settings.target_entropy
        too_certain = log_probability.mean() + (-float(drawn.action.shape[1]) if target is None else target)
        self.log_temperature.grad = -too_certain  # of -mean(log alpha * (log pi + H))
        return Metrics({"loss_temperature": -self.log_temperature.detach() * too_certain}, log_probability.abs())

    def _critic(self, drawn: _Drawn) -> Metrics:
        batch = drawn.batch
        with torch.no_grad():
            mean, log_std = self.network(batch.next_obs)
            next_action, next_log_probability = squashed(mean, log_std, drawn.next_noise)
            next_q = torch.minimum(*self.target(batch.next_obs, next_action))
            following = torch.addcmul(next_q, drawn.temperature, next_log_probability, value=-1.0)
            target = torch.addcmul(batch.reward, batch.discount, following)
        first, second = self.critic(batch.obs, batch.action)
        loss = 0.5 * (nn.functional.mse_loss(first, target) + nn.functional.mse_loss(second, target))
        loss.backward()
        first = first.detach()
        scalars = {
            "temperature": drawn.temperature,
            "entropy": -drawn.log_probability.detach().mean(),
            "loss_critic": loss.detach(),
            "mean_q": first.mean(),
        }
        return Metrics(scalars, (first - target).abs())

    def _actor(self, drawn: _Drawn) -> Metrics:
        q = torch.minimum(*self.critic(drawn.batch.obs, drawn.action))
        loss = torch.addcmul(-q, drawn.temperature, drawn.log_probability).mean()
        loss.backward(inputs=self._weights)  # the critics' own gradients are left out
        return Metrics({"loss_actor": loss.detach()}, q.detach().abs())


class ControlPolicy(NothingUnfinished):
    """Acts at random in the first env steps, so that the replay has seen all actions, then as the actor draws.

    Args:
        actor: that plays.
        num_actions: A.
        random_env_steps: whose actions are uniform in [-1, 1].
        noise: random numbers of the actions, where the actor is.
    """

    def __init__(self, actor: GaussianActor, num_actions: int, random_env_steps: int, noise: torch.Generator) -> None:
        self._actor = actor
        self._num_actions = num_actions
        self._random_env_steps = random_env_steps
        self._noise = noise
        self._device = next(actor.parameters()).device

    def with_weights_of_its_own(self) -> GaussianActor:
        """Act with a copy of the actor from now on; return it."""
        self._actor = copy.deepcopy(self._actor)
        return self._actor

    def act(self, obs: NDArray[np.float32], env_steps: int) -> NDArray[np.float32]:
        """Return actions (N, A) from -1 to 1 for observations (N, D), after so many env steps."""
        if env_steps < self._random_env_steps:
            shape = (len(obs), self._num_actions)
            uniform = torch.rand(shape, generator=self._noise, device=self._device)
            return (2.0 * uniform - 1.0).cpu().numpy()
        return drawn_actions(self._actor, torch.from_numpy(obs).to(self._device), self._noise).cpu().numpy()

    def state(self) -> dict[str, Any]:
        """Return where the random numbers stand."""
        return {"noise": self._noise.get_state()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from there."""
        set_generator(self._noise, state["noise"])


def drawn_actions(actor: nn.Module, obs: Tensor, generator: torch.Generator) -> Tensor:
    """Return actions (N, A) that `actor` draws for (N, D), without gradient."""
    with torch.no_grad():
        mean, log_std = actor(obs)
        noise = torch.randn(mean.shape, generator=generator, device=mean.device, dtype=mean.dtype)
        return torch.tanh(mean + log_std.exp() * noise)
