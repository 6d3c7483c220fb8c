"""Deep Q-learning: networks, one gradient, and what follows a step."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from fastdqn.algorithms.augmentation import Augmentation
from fastdqn.algorithms.descent import Local, build_adam, build_rmsprop
from fastdqn.algorithms.form import PLAIN, Form
from fastdqn.algorithms.losses import weighted_mean
from fastdqn.algorithms.objectives import Objective, ValueObjective
from fastdqn.foreach import copy_all, lerp_all
from fastdqn.networks.arithmetic import in_bf16
from fastdqn.networks.aside import weights_aside
from fastdqn.networks.lowered import Lowered, backward
from fastdqn.networks.noisy import clear_noise, draw_noise, noisy_layers
from fastdqn.networks.qnetwork import QNetwork, draw_first_weights, lay_out_by_input
from fastdqn.networks.torso import share_weights, torsos, use_channels_last
from fastdqn.seam import Descent, Group
from fastdqn.states import NothingUnfinished, on_cpu, set_generator
from fastdqn.steps import load_optimizer, set_learning_rate
from fastdqn.types import Batch, Metrics, Start

PROGRESS = {"epsilon": ".3f", "loss": ".3g"}
"""What the progress line of a run of DQN shows, and in which format."""


@dataclass(frozen=True)
class Settings:
    """Hyper-parameters of an update; the defaults are the 2017 post's."""

    learning_rate: float = 1e-4
    adam_epsilon: float = 1e-8
    rmsprop_epsilon: float | None = None  # None for Adam
    double: bool = False  # Double Q-learning (van Hasselt et al. 2015)
    target_average: float | None = None  # share by which each step moves the target; None to copy it
    target_each: bool = False  # copied after each step, and so the same as the online network whenever it is asked
    act_with: Literal["online", "target"] = "online"  # the network whose greedy actions are played
    max_norm: float | None = None  # to which the gradient is clipped
    weight_decay: float = 0.0  # AdamW's
    bootstrap: bool = True  # False where batches bring whole returns: the target network says nothing then


class StillValues(NamedTuple):
    """What computes values of actions by weights that stay as they are; it can be sent to another process."""

    network: nn.Module
    objective: Objective
    bf16: bool  # whether bodies of networks compute in it

    def __call__(self, obs: Tensor) -> Tensor:
        """Return the values (N, A) float32 of observations (N, C, H, W) uint8."""
        with torch.no_grad():
            with in_bf16(obs.device, self.bf16):
                outputs = self.network(obs)
            return self.objective.values(outputs)


class DQNLearner(NothingUnfinished):
    """Deep Q-learning: an objective's errors, and a target network that is copied now and then, or averaged.

    Networks with noisy layers draw new noise for each update and each act, the target network its own (Fortunato et al.
    2018, section 3); so does the choice of Double Q-learning (the same paper's eq. 16).

    Args:
        network: the online network, on its device. Where `form` computes in bf16, the last layer of a network of one's
            own is to be in a `Stream`, which stays float32; else its values are rounded, too.
        build_network: returns another one of the same shape, for the target.
        settings: of an update.
        form: how the arithmetic is laid out.
        objective: what the networks' outputs mean; by default one value an action and the mean squared TD error, as in
            the 2017 post.
        noise: random numbers of noisy layers, on the network's device.
        descent: what becomes of gradients; by default they are stepped here.
        augmentation: of the observations of an update, drawn with `noise`; by default none. For a QNetwork alone.

    Raises:
        ValueError: a network of another kind was to learn from augmented observations.
    """

    def __init__(
        self,
        network: nn.Module,
        build_network: Callable[[], nn.Module],
        settings: Settings = Settings(),
        form: Form = PLAIN,
        objective: Objective | None = None,
        noise: torch.Generator | None = None,
        descent: Descent | None = None,
        augmentation: Augmentation | None = None,
    ) -> None:
        self.network = network
        self.form = form
        self.objective: Objective = objective or ValueObjective()
        self.descent: Descent = descent or Local()
        self.device = next(network.parameters()).device
        self.target = build_network().to(self.device).requires_grad_(False)
        if form.channels_last:
            for one in (self.network, self.target):
                use_channels_last(one)
                lay_out_by_input(one)
        if augmentation is not None and not isinstance(network, QNetwork):
            raise ValueError("only a QNetwork learns from augmented observations")
        self.aside: Start | None = None
        """Where gradients of weights are found while those of inputs go on; None for one after the other."""
        self._augmentation = augmentation
        self._build_network = build_network
        self._settings = settings
        self._online = [parameter.detach() for parameter in self.network.parameters()]
        self._copies = [parameter.detach() for parameter in self.target.parameters()]
        lowered = [
            Lowered(build_network().to(self.device), full) if form.bf16 else None for full in (network, self.target)
        ]
        self._lowered, self._lowered_target = lowered
        self._copy_target()
        online, target = (
            one.network if one else full for one, full in zip(lowered, (network, self.target), strict=True)
        )
        self.computing, self._target = online, target
        """What computes in place of `network` and `target`: the very same weights, lowered where the form says so."""
        acts = settings.act_with == "online"
        self.actor, self._actor = (self.network, online) if acts else (self.target, target)
        self.noise = noise or torch.Generator(self.device)
        self._noisy = tuple(noisy_layers(online).values())
        self._noisy_target = tuple(noisy_layers(target).values())
        self._noisy_actor = tuple(noisy_layers(self._actor).values())
        same = settings.target_each and settings.target_average is None and not self._noisy
        self._selector = online if settings.double and not same else None
        known = self._selector is not None and isinstance(online, QNetwork)  # another one may do more with frames
        self._shared = next(iter(torsos(online)), None) if known else None  # target and selector get the same
        parameters = list(network.parameters())
        self.group = Group("q", parameters, self._optimizer_of(parameters), settings.max_norm)

    def groups(self) -> Sequence[Group]:
        """Return the one group, the online network."""
        return (self.group,)

    def act(self, obs: Tensor, largest: Tensor | None = None) -> Tensor:
        """Return the actions (N,) of largest value for (N, C, H, W); noisy layers draw new noise, one for all games.
        Write these values to `largest`, (N,), if it is given.
        """
        draw_noise(self._noisy_actor, self.noise)
        return self.greedy(obs, largest)

    def best(self, obs: Tensor) -> Tensor:
        """Return the actions (N,) of largest value for (N, C, H, W), noisy layers without their noise."""
        clear_noise(self._noisy_actor)
        return self.greedy(obs)

    def greedy(self, obs: Tensor, largest: Tensor | None = None) -> Tensor:
        """Return the actions (N,) of largest value for (N, C, H, W), with the noise that there is; write these values
        to `largest`, (N,), if it is given.
        """
        values = self.acting_values(obs)
        if largest is not None:
            largest.copy_(values.amax(dim=1))
        return values.argmax(dim=1)

    def acting_values(self, obs: Tensor) -> Tensor:
        """Return the values (N, A) float32 of (N, C, H, W) by the network that plays, with the noise that there is."""
        self._keep_up()
        return StillValues(self._actor, self.objective, self.form.bf16)(obs)

    def still_values(self) -> StillValues:
        """Return what computes the values (N, A) float32 of (N, C, H, W) as `acting_values` does now, by weights that
        stay as they are.
        """
        self._keep_up()
        return StillValues(copy.deepcopy(self._actor), self.objective, self.form.bf16)

    def values(self, obs: Tensor) -> Tensor:
        """Return the online network's values, float32 (B, A), for uint8 (B, C, H, W), as the update computes them."""
        return self.objective.values(self.outputs(obs))

    def outputs(self, obs: Tensor) -> Tensor:
        """Return what the online network makes of `obs`, (B, A) values or (B, A, Z) logits, float32."""
        self._keep_up()
        with self._arithmetic():
            return self.computing(obs)

    def draw_noise(self, generator: torch.Generator | None = None) -> None:
        """Draw new noise for the online network, if it has noisy layers, with the learner's generator or another."""
        draw_noise(self._noisy, generator or self.noise)

    def gradient(self, group: Group, batch: Batch) -> Metrics:
        """Leave the gradient of the mean error on `batch` (B transitions on the device) with the online network."""
        self._keep_up()
        following = self._following(batch) if self._settings.bootstrap else None
        self.draw_noise()
        with weights_aside(self.aside):
            with self._arithmetic():
                output_tm1 = self.computing(self._augmented(batch.obs))
            output_t, selector_t = following or (output_tm1.detach(), output_tm1.detach())
            errors = self.objective.errors(output_tm1, batch, output_t, selector_t)
            loss = weighted_mean(errors.loss, batch.weight)
            backward(loss, group.parameters, self._lowered)
        return Metrics({"loss": loss.detach(), "mean_q": errors.value.mean()}, errors.priority)

    def stepped(self, group: Group) -> None:  # noqa: ARG002 - there is one group
        """Move the target network towards the online one, where it is averaged, and lower what has changed."""
        if self._lowered is not None:
            self._lowered.refresh()
        if self._settings.target_average is not None:
            lerp_all(self._copies, self._online, self._settings.target_average)
            if self._lowered_target is not None:
                self._lowered_target.refresh()
        elif self._settings.target_each:
            self._copy_target()

    def update(self, batch: Batch) -> Metrics:
        """Make one optimiser step on `batch` (B transitions on the learner's device); does not wait for it.

        With the defaults that is the gradient of the mean of (r + discount * max Q_target(s', a') - Q(s, a))^2, and a
        step of Adam (Mnih et al. 2015); all else comes from options.
        """
        metrics = self.gradient(self.group, batch)
        self.descent.step(self.group)
        self.stepped(self.group)
        return metrics

    def sync_target(self) -> None:
        """Copy the online network's parameters into the target network (Mnih et al. 2015); buffers stay each network's
        own. Nothing to do where they are averaged, or copied after each step, or not asked.
        """
        settings = self._settings
        if settings.target_average is None and settings.bootstrap and not settings.target_each:
            self._copy_target()

    def reset(self, keep: float, generator: torch.Generator) -> None:
        """Begin anew in part: torsos keep the share `keep` of their weights, the rest, and all other layers, are new
        ones, drawn with `generator`, a CPU's; the optimiser forgets its moments (Nikishin et al. 2022; Schwarzer et al.
        2023). Online and target network get the same new weights.
        """
        fresh = self._build_network()
        draw_first_weights(fresh, generator)
        with torch.no_grad():
            for network in (self.network, self.target):
                kept = {id(weight) for torso in torsos(network) for weight in torso.parameters()}
                for weight, new in zip(network.parameters(), fresh.parameters(), strict=True):
                    weight.lerp_(new.to(self.device), 1.0 - keep if id(weight) in kept else 1.0)
            for moments in self.group.optimizer.state.values():
                for value in moments.values():  # which Adam and RMSProp begin with 0
                    value.zero_()
        self._keep_up()  # now: a graph would not

    def set_learning_rate(self, learning_rate: float) -> None:
        """Change the learning rate of all later updates, graphed ones too; does not wait for the device."""
        set_learning_rate(self.group.optimizer, learning_rate)

    def center_frames(self, mean: Tensor) -> None:
        """Subtract `mean`, a frame (H, W) float32, from all inputs from now on, in networks that were made to."""
        for torso in (*torsos(self.network), *torsos(self.target)):
            torso.center_frames(mean)

    def replica(self) -> DQNLearner:
        """Return a learner that computes gradients at the very same weights, with gradients and noise of its own.

        Its own optimiser never makes a step: this learner's does.
        """
        other = DQNLearner(
            self._build_network().to(self.device),
            self._build_network,
            self._settings,
            self.form,
            self.objective,
            augmentation=self._augmentation,
        )
        share_weights(other.network, self.network)
        share_weights(other.target, self.target)
        if self._lowered is not None:
            share_weights(other.computing, self.computing)
            share_weights(other._target, self._target)
        return other

    def tensors(self) -> Mapping[str, Tensor]:
        """Return the weights of the online and the target network."""
        networks = {"network": self.network, "target": self.target}
        return {f"{name}.{key}": value for name, net in networks.items() for key, value in net.state_dict().items()}

    def state(self) -> dict[str, Any]:
        """Return copies of networks, optimiser and noise generator."""
        return {
            "network": on_cpu(self.network.state_dict()),
            "target": on_cpu(self.target.state_dict()),
            "optimizer": on_cpu(self.group.optimizer.state_dict()),
            "noise": self.noise.get_state(),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from there; before the first update."""
        self.network.load_state_dict(state["network"])
        self.target.load_state_dict(state["target"])
        load_optimizer(self.group.optimizer, state["optimizer"])
        set_generator(self.noise, state["noise"])
        self._keep_up()  # before a replica computes with the same weights

    def _following(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the target network's and the selector's outputs for what follows, (B, A) or (B, A, Z) each."""
        draw_noise(self._noisy_target, self.noise)
        # A region of its own: in one, PyTorch before 2.11 reuses the selector's bf16 weights, which carry no gradient.
        with torch.no_grad(), self._arithmetic():
            next_obs = self._augmented(batch.next_obs)
            if self._shared is not None and not next_obs.is_floating_point():
                next_obs = self._shared.pixels(next_obs)
            output_t = selector_t = self._target(next_obs)
            if self._selector is not None:
                self.draw_noise()
                selector_t = self._selector(next_obs)
        return output_t, selector_t

    def _augmented(self, obs: Tensor) -> Tensor:
        """Return what enters the networks of uint8 (B, C, H, W): the same, or augmented and as numbers."""
        if self._augmentation is None:
            return obs
        factors = self._augmentation.factors(len(obs), self.noise)
        pixels = torsos(self.computing)[0].pixels(self._augmentation.shifted(obs, self.noise))
        return pixels if factors is None else pixels.mul_(factors.to(pixels.dtype))

    def _keep_up(self) -> None:
        """Let lowered weights be those of now, whoever has written to the full ones."""
        for lowered in (self._lowered, self._lowered_target):
            if lowered is not None:
                lowered.keep_up()

    def _optimizer_of(self, parameters: Sequence[Tensor]) -> torch.optim.Optimizer:
        form, rate, epsilon = self.form, self._settings.learning_rate, self._settings.rmsprop_epsilon
        if epsilon is not None:
            return build_rmsprop(parameters, rate, epsilon, form.capturable)
        adam = self._settings
        return build_adam(parameters, rate, adam.adam_epsilon, form.fused, form.capturable, adam.weight_decay)

    def _arithmetic(self) -> AbstractContextManager[object]:
        return in_bf16(self.device, self.form.bf16)

    def _copy_target(self) -> None:
        copy_all(self._copies, self._online)
        if self._lowered_target is not None:
            self._lowered_target.refresh()
