"""Objectives: what a network's output means, and how wrong it was; chosen once, when a learner is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from torch import Tensor

from fastdqn.algorithms.losses import (
    categorical_target,
    expected_values,
    histograms,
    kl_divergences,
    q_learning_target,
    rescaled,
    restored,
    squared_td_errors,
    taken_values,
)
from fastdqn.types import Batch

DEVIATION = 0.75
"""Of the normal distribution that spreads a return, in atoms (Farebrother et al. 2024, section 4)."""


class Errors(NamedTuple):
    """What an objective says about each transition of a batch."""

    loss: Tensor  # (B,) float32, with gradient
    priority: Tensor  # (B,) float32 >= 0, how surprising the transition was
    value: Tensor  # (B,) float32, Q(s, a)


class Objective(Protocol):
    """Turns outputs of networks, (B, A) or (B, A, Z), into values and errors."""

    def values(self, output: Tensor) -> Tensor:
        """Return the values (B, A) of each action."""
        ...

    def errors(self, output_tm1: Tensor, batch: Batch, output_t: Tensor, selector_t: Tensor) -> Errors:
        """Return the errors of `batch`.

        Args:
            output_tm1: the online network's for `batch.obs`.
            output_t: the target network's for `batch.next_obs`; of any other observations where nothing follows
                (`batch.discount` is 0 throughout, as of whole returns).
            selector_t: for `batch.next_obs`, of the network that chooses the action; plain DQN passes `output_t` again.
        """
        ...


class ValueObjective:
    """One value for each action (Mnih et al. 2015), priority |TD error| (Schaul et al. 2016).

    Args:
        loss: of values and targets, (B,) each; returns (B,).
    """

    def __init__(self, loss: Callable[[Tensor, Tensor], Tensor] = squared_td_errors) -> None:
        self._loss = loss

    def values(self, output: Tensor) -> Tensor:
        return output

    def errors(self, output_tm1: Tensor, batch: Batch, output_t: Tensor, selector_t: Tensor) -> Errors:
        target = q_learning_target(batch.reward, batch.discount, output_t, selector_t)
        value = taken_values(output_tm1, batch.action)
        loss = self._loss(value, target)
        return Errors(loss, (target - value).detach().abs(), value.detach())


class CategoricalObjective:
    """A distribution for each action, over fixed atoms (C51, Bellemare et al. 2017).

    Args:
        atoms: (Z,) float32, evenly spaced, on the learner's device.
        by_cross_entropy: whether that is the priority (google/dopamine, dopamine/jax/agents/rainbow/rainbow_agent.py),
            instead of the KL divergence (Hessel et al. 2017, section 3).
    """

    def __init__(self, atoms: Tensor, by_cross_entropy: bool = False) -> None:
        self.atoms = atoms
        self._by_cross_entropy = by_cross_entropy

    @property
    def returns(self) -> Tensor:
        """Which return each atom stands for, (Z,) float32."""
        return self.atoms

    def values(self, output: Tensor) -> Tensor:
        return expected_values(output, self.atoms)

    def errors(self, output_tm1: Tensor, batch: Batch, output_t: Tensor, selector_t: Tensor) -> Errors:
        target = categorical_target(batch.reward, batch.discount, output_t, self.values(selector_t), self.atoms)
        logits = taken_values(output_tm1, batch.action)  # (B, Z)
        loss, divergence = kl_divergences(logits, target)
        priority = loss.detach() if self._by_cross_entropy else divergence.clamp(min=0.0)
        return Errors(loss, priority, logits.detach().softmax(dim=1) @ self.atoms)


class HistogramObjective(CategoricalObjective):
    """A distribution for each action, over fixed atoms, that learns whole returns, each as a histogram around it
    (Farebrother et al. 2024, "Stop Regressing"). Priority |error| (Schaul et al. 2016).

    Returns are rescaled, so that a few atoms reach far and still tell small returns apart (Pohlen et al. 2018). The
    mean of a distribution is a rescaled return; the value is that return, restored (Schrittwieser et al. 2020,
    "MuZero", appendix F).

    Args:
        atoms: (Z,) float32, evenly spaced, of rescaled returns, on the learner's device.
    """

    @property
    def returns(self) -> Tensor:
        return restored(self.atoms)

    def values(self, output: Tensor) -> Tensor:
        return restored(super().values(output))

    def errors(self, output_tm1: Tensor, batch: Batch, output_t: Tensor, selector_t: Tensor) -> Errors:  # noqa: ARG002
        logits = taken_values(output_tm1, batch.action)  # (B, Z)
        loss, _ = kl_divergences(logits, histograms(rescaled(batch.reward), self.atoms, DEVIATION))
        value = restored(logits.detach().softmax(dim=1) @ self.atoms)
        return Errors(loss, (batch.reward - value).abs(), value)
