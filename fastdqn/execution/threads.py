"""Threads on a CPU that others use, too: fewer while they do, where that changes no bit of what is learnt."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from fastdqn.seam import Group
from fastdqn.types import Batch, Metrics

TRIALS = 12
"""Batches on which gradients and values are compared."""


class Replicable(Protocol):
    """A learner of which there can be replicas: the very same weights, with gradients and noise of their own."""

    device: torch.device
    group: Group
    noise: torch.Generator

    def gradient(self, group: Group, batch: Batch) -> Metrics: ...
    def replica(self) -> Any: ...
    def acting_values(self, obs: Tensor) -> Tensor: ...


class Threads:
    """Lets PyTorch compute in one thread while other processes use this machine's cores.

    PyTorch's threads wait for each other after every operation. As soon as one of them has to share its core, all of
    them are several times slower than one that has a core for itself.

    Sums may come out differently with another number of threads, and then the run would be another one. So, unless
    somebody asks for it, the number changes only if the gradient and the values of the actions have the same bits,
    which is tried on several batches of noise when it is first wanted: where bf16 rounds, another order of a sum shows
    in a part of them only.

    Args:
        learner: what computes.
        obs_shape: (C, H, W) of what it observes.
        num_actions: A.
        batch_size: B, transitions that it learns from at a time.
        evaluated: numbers of observations whose values are computed at a time, N of the games and any others.
        crowded: threads while others use the cores, whatever the bits; None for one where they are the same.
    """

    def __init__(
        self,
        learner: Replicable,
        obs_shape: tuple[int, int, int],
        num_actions: int,
        batch_size: int,
        *evaluated: int,
        crowded: int | None = None,
    ) -> None:
        self._count = torch.get_num_threads() if learner.device.type == "cpu" else 1
        self._learner = learner
        self._shapes, self._evaluated = (obs_shape, num_actions, batch_size), evaluated
        self._fewer = crowded if crowded is None else min(crowded, self._count)  # None until the bits are compared

    def share(self, crowded: bool) -> None:
        """Take note whether others use the cores now; to be called often, while there are updates."""
        if self._count == 1 or (not crowded and self._fewer is None):
            return
        if self._fewer is None:
            self._fewer = 1 if self._same_bits() else self._count
        wanted = self._fewer if crowded else self._count
        if torch.get_num_threads() != wanted:
            torch.set_num_threads(wanted)

    def _same_bits(self) -> bool:
        replica = self._learner.replica()
        return all(self._same_with(replica, seed) for seed in range(TRIALS))

    def _same_with(self, replica: Any, seed: int) -> bool:
        batch = _random_batch(*self._shapes, seed)
        seen = [_random_batch(*self._shapes[:2], count, seed).obs for count in self._evaluated]
        found: list[list[torch.Tensor]] = []
        for count in (1, self._count):
            torch.set_num_threads(count)
            replica.noise.manual_seed(seed)
            metrics = replica.gradient(replica.group, batch)
            gradients = [parameter.grad.clone() for parameter in replica.group.parameters]
            values = [replica.acting_values(obs) for obs in seen]
            found.append([*gradients, *metrics.scalars.values(), metrics.priority, *values])
        return all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def _random_batch(obs_shape: tuple[int, int, int], num_actions: int, size: int, seed: int) -> Batch:
    """Return transitions of noise, their frames laid out with channels last, as the replay does on a CPU."""
    rng = torch.Generator().manual_seed(seed)
    channels, height, width = obs_shape

    def frames() -> torch.Tensor:
        shape = (size, height, width, channels)
        return torch.randint(256, shape, generator=rng, dtype=torch.uint8).permute(0, 3, 1, 2)

    actions = torch.randint(num_actions, (size,), generator=rng)
    return Batch(frames(), actions, torch.randn(size, generator=rng), torch.full((size,), 0.5), frames())
