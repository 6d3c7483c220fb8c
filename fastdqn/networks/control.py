"""The networks of soft actor-critic: an actor that says where a continuous action lies, and two critics of it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fastdqn.networks.qnetwork import draw_first_weights, draw_orthogonal_weights

HIDDEN = 256
"""Units of each of the two hidden layers (Haarnoja et al. 2018b, table 1)."""
LOG_STD_MIN, LOG_STD_MAX = -20.0, 2.0
"""Between these is the logarithm of the standard deviation (as in the authors' own code)."""


class GaussianActor(nn.Module):
    """Says for observations (B, D) the mean of a normal distribution and the logarithm of its standard deviation, (B,
    A) each, before any squashing. Weights start as PyTorch's defaults, drawn from `generator` alone, or orthogonal.

    Args:
        obs_size: D.
        num_actions: A.
        generator: on the CPU.
        hidden: units of each of the two hidden layers.
        orthogonal: whether initial weights are orthogonal and biases 0 (Saxe et al. 2014).
    """

    def __init__(
        self,
        obs_size: int,
        num_actions: int,
        generator: torch.Generator,
        hidden: int = HIDDEN,
        orthogonal: bool = False,
    ) -> None:
        super().__init__()
        self.layers = _perceptron(obs_size, 2 * num_actions, hidden)
        self._num_actions = num_actions
        _draw(self, generator, orthogonal)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = self.layers(obs).split(self._num_actions, dim=1)
        return mean, log_std.clamp(LOG_STD_MIN, LOG_STD_MAX)


class TwinCritic(nn.Module):
    """Two critics that share nothing: the values (B,) each, of actions (B, A) from -1 to 1 at observations (B, D).

    Of two values the lower is believed (Fujimoto et al. 2018). Weights start as those of `GaussianActor` do.
    """

    def __init__(
        self,
        obs_size: int,
        num_actions: int,
        generator: torch.Generator,
        hidden: int = HIDDEN,
        orthogonal: bool = False,
    ) -> None:
        super().__init__()
        self.first, self.second = (_perceptron(obs_size + num_actions, 1, hidden) for _ in range(2))
        _draw(self, generator, orthogonal)

    def forward(self, obs: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        both = torch.cat((obs, action), dim=1)
        return self.first(both).squeeze(1), self.second(both).squeeze(1)


def _perceptron(inputs: int, outputs: int, hidden: int) -> nn.Sequential:
    layers = (nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
    return nn.Sequential(*layers, nn.Linear(hidden, outputs))


def _draw(network: nn.Module, generator: torch.Generator, orthogonal: bool) -> None:
    """Draw the initial weights."""
    if not orthogonal:
        draw_first_weights(network, generator)
        return
    streams = [module for module in network.modules() if isinstance(module, nn.Sequential)]
    draw_orthogonal_weights(network, generator, {stream[-1]: 1.0 for stream in streams})
