"""Randomness: one root seed, one independent child for each thing that draws."""

from __future__ import annotations

import json
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
    fresh: np.random.SeedSequence


def seeds_of(seed: int, again: int = 0) -> Seeds:
    """Return the children of the root `seed`; the same root gives the same children in every script.

    `again` tells the parts of a run that begins anew somewhere in the middle apart.
    """
    root = np.random.SeedSequence((seed, again) if again else seed)
    return Seeds(*root.spawn(len(Seeds._fields)))


def player_seeds(seed: int, player: int, again: int = 0) -> Seeds:
    """Return the seeds of one of several players; those of player 0 are the run's own."""
    if player == 0:
        return seeds_of(seed, again)
    return Seeds(*np.random.SeedSequence((seed, again, player)).spawn(len(Seeds._fields)))


def rank_seeds(seed: int, rank: int) -> Seeds:
    """Return the seeds of one of several ranks; those of rank 0 are the run's own."""
    return Seeds(*np.random.SeedSequence((seed, rank)).spawn(len(Seeds._fields))) if rank else seeds_of(seed)


def as_int(child: np.random.SeedSequence) -> int:
    """Return a plain int below 2^31 (the emulator takes no numpy integers and no larger seeds)."""
    return int(child.generate_state(1)[0] >> 1)


def game_seed(seed: int, game: int) -> int:
    """Return the seed of a player's `game`-th game, which for game 0 is the player's own seed."""
    return as_int(np.random.SeedSequence((seed, game))) if game else seed


def state_of(rng: np.random.Generator) -> str:
    """Return where `rng` stands, as text."""
    return json.dumps(rng.bit_generator.state)


def set_state(rng: np.random.Generator, said: str) -> None:
    """Let `rng` go on where the generator of `state_of` stood."""
    rng.bit_generator.state = json.loads(said)


def torch_generator(child: np.random.SeedSequence) -> torch.Generator:
    """Return a CPU generator of PyTorch seeded by `child`."""
    generator = torch.Generator()
    generator.manual_seed(as_int(child))
    return generator
