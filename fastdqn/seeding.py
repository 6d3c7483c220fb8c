"""Randomness: one root seed, one independent child for each thing that draws."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch


class Seeds(NamedTuple):
    """Children of one `numpy.random.SeedSequence`, by what they are for."""

    network: np.random.SeedSequence
    env: np.random.SeedSequence
    policy: np.random.SeedSequence
    replay: np.random.SeedSequence
    noise: np.random.SeedSequence
    reports: np.random.SeedSequence


def seeds_of(seed: int) -> Seeds:
    """Return the children of the root `seed`; the same root gives the same children in every script."""
    return Seeds(*np.random.SeedSequence(seed).spawn(len(Seeds._fields)))


def as_int(child: np.random.SeedSequence) -> int:
    """Return a plain int below 2^31 (the emulator takes no numpy integers and no larger seeds)."""
    return int(child.generate_state(1)[0] >> 1)


def torch_generator(child: np.random.SeedSequence) -> torch.Generator:
    """Return a CPU generator of PyTorch seeded by `child`."""
    generator = torch.Generator()
    generator.manual_seed(as_int(child))
    return generator
