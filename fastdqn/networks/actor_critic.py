"""The network of an actor-critic: a policy and a value of the same observations."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fastdqn.networks.qnetwork import LastLayer, Stream, draw_first_weights, draw_orthogonal_weights
from fastdqn.networks.torso import NATURE, Torso

FRAME_SCALE = 256.0
"""Bytes are divided by this before they enter the network (Lapan 2020, chapter 13)."""
HIDDEN = 64
"""Units of each of the two hidden layers where vectors are observed (Schulman et al. 2017, section 6.1)."""

POLICY_GAIN = 0.01
"""Of the policy's last layer, where initial weights are orthogonal."""


class WithDeviation(nn.Module):
    """Means (B, A) of a normal distribution, and the logarithms of its standard deviations, which are weights and
    depend on no observation (Schulman et al. 2015, appendix D); they begin as 0. Returns both, (B, 2 A).
    """

    def __init__(self, mean: nn.Module, num_actions: int) -> None:
        super().__init__()
        self.mean = mean
        self.log_std = nn.Parameter(torch.zeros(num_actions))

    def forward(self, features: Tensor) -> Tensor:
        mean = self.mean(features)
        return torch.cat((mean, self.log_std.expand_as(mean)), dim=1)


class ActorCritic(nn.Module):
    """A body, and two heads on it that share nothing else.

    Takes (B, C, H, W) uint8 or (B, D) float32, whatever the body takes; returns what the policy's head says, logits (B,
    A) or means and logarithms of deviations (B, 2 A), and the values (B,), float32. Weights start as PyTorch's
    defaults, drawn from `generator` alone, or orthogonal: of the value's last layer with a gain of 1, and of the
    policy's with a hundredth, so that at first all actions are about as probable (Andrychowicz et al. 2021, section
    3.2; Stable-Baselines3).
    """

    def __init__(
        self, body: nn.Module, policy: nn.Module, value: nn.Module, generator: torch.Generator, orthogonal: bool
    ) -> None:
        super().__init__()
        self.body = body
        self.policy = policy
        self.value = value
        if orthogonal:
            last, last_value = ([m for m in head.modules() if isinstance(m, nn.Linear)][-1] for head in (policy, value))
            draw_orthogonal_weights(self, generator, {last: POLICY_GAIN, last_value: 1.0})
        else:
            draw_first_weights(self, generator)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        features = self.body(obs)
        return self.policy(features), self.value(features).squeeze(1)


def actor_critic(
    obs_shape: tuple[int, ...],
    num_actions: int,
    generator: torch.Generator,
    one_stream: bool = False,
    frame_scale: float = FRAME_SCALE,
    center_frames: bool = False,
    numbered: bool = True,
    hidden: int = HIDDEN,
    orthogonal: bool = False,
) -> ActorCritic:
    """Return the network for observations of this shape.

    (C, H, W): Nature DQN's convolutions (Mnih et al. 2015), then 512 rectified units for the policy and 512 others for
    the value (Lapan 2020, chapter 13), or in `one_stream` the same 512 for both (Mnih et al. 2016, section 5.1;
    Schulman et al. 2017). (D,): two layers of `hidden` units with tanh for each of the two (Schulman et al. 2017); if
    not `numbered` the policy says a normal distribution of vectors of A numbers.

    With `center_frames` a mean frame, zero until somebody sets it, is subtracted; pixels are divided by `frame_scale`.
    Initial weights may be `orthogonal`, as in `ActorCritic`.
    """
    if len(obs_shape) == 1:
        policy, value = (_perceptron(obs_shape[0], outputs, hidden) for outputs in (num_actions, 1))
        policy = policy if numbered else WithDeviation(policy, num_actions)
        return ActorCritic(nn.Identity(), policy, value, generator, orthogonal)
    channels, height, width = obs_shape
    torso = Torso(channels, height, width, frame_scale, center_frames, NATURE)
    if one_stream:
        body = nn.Sequential(torso, nn.Linear(torso.features, NATURE.hidden), nn.ReLU())
        policy, value = (Stream(LastLayer(NATURE.hidden, outputs)) for outputs in (num_actions, 1))
        return ActorCritic(body, policy, value, generator, orthogonal)
    policy, value = (
        Stream(nn.Linear(torso.features, NATURE.hidden), nn.ReLU(), LastLayer(NATURE.hidden, outputs))
        for outputs in (num_actions, 1)
    )
    return ActorCritic(torso, policy, value, generator, orthogonal)


def _perceptron(inputs: int, outputs: int, hidden: int) -> nn.Module:
    layers = (nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
    return nn.Sequential(*layers, LastLayer(hidden, outputs))
