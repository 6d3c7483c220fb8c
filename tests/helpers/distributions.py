"""Distributions of returns, computed the slow way that the paper writes down."""

from __future__ import annotations

import math

import numpy as np
import torch

ATOMS = torch.linspace(-10.0, 10.0, 51)


def algorithm_1(reward: float, discount: float, probabilities: np.ndarray, atoms: np.ndarray) -> np.ndarray:
    """Bellemare et al. 2017, algorithm 1, one atom at a time; an integer b keeps its mass."""
    count, spacing = len(atoms), (atoms[-1] - atoms[0]) / (len(atoms) - 1)
    m = np.zeros(count)
    for z, p in zip(atoms, probabilities, strict=True):
        b = (min(max(reward + discount * z, atoms[0]), atoms[-1]) - atoms[0]) / spacing
        low, high = math.floor(b), math.ceil(b)
        if low == high:
            m[low] += p
        else:
            m[low] += p * (high - b)
            m[high] += p * (b - low)
    return m
