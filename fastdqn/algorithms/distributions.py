"""What a policy's network says of actions: the probabilities of numbered ones, or a normal distribution of vectors."""

from __future__ import annotations

import math

import torch
from torch import Tensor

LOG_ROOT_2_PI = 0.5 * math.log(2.0 * math.pi)


class Categorical:
    """One of several actions.

    Args:
        logits: (B, A).
    """

    def __init__(self, logits: Tensor) -> None:
        self._log_probabilities = logits.log_softmax(dim=1)

    def draw(self, noise: torch.Generator) -> Tensor:
        """Return actions (B,) int64, drawn by their probabilities."""
        return torch.multinomial(self._log_probabilities.detach().exp(), 1, generator=noise).squeeze(1)

    def log_probability(self, action: Tensor) -> Tensor:
        """Return the log probabilities (B,) of actions (B,)."""
        return self._log_probabilities.gather(1, action.unsqueeze(1)).squeeze(1)

    def entropy(self) -> Tensor:
        """Return the entropies (B,)."""
        return -(self._log_probabilities.exp() * self._log_probabilities).sum(dim=1)


class DiagonalGaussian:
    """A vector of numbers that are independent of each other, each normally distributed.

    log p(a) = -sum((a - mean)^2 / (2 std^2) + log std + log(2 pi) / 2), H = sum(1/2 + log(2 pi) / 2 + log std).

    Args:
        said: (B, 2 A), the means, then the logarithms of the standard deviations.
    """

    def __init__(self, said: Tensor) -> None:
        self._mean, self._log_std = said.chunk(2, dim=1)

    def draw(self, noise: torch.Generator) -> Tensor:
        """Return actions (B, A), of any size: whoever plays them clips them."""
        mean, log_std = self._mean.detach(), self._log_std.detach()
        normal = torch.randn(mean.shape, generator=noise, device=mean.device, dtype=mean.dtype)
        return mean + log_std.exp() * normal

    def log_probability(self, action: Tensor) -> Tensor:
        """Return the log densities (B,) of actions (B, A)."""
        away = (action - self._mean) * (-self._log_std).exp()
        return -(0.5 * away * away + self._log_std + LOG_ROOT_2_PI).sum(dim=1)

    def entropy(self) -> Tensor:
        """Return the entropies (B,)."""
        return (self._log_std + (0.5 + LOG_ROOT_2_PI)).sum(dim=1)
