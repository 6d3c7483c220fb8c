"""Exact proportional draws against a naive walk, and no drift."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fastdqn.replay.priorities import Priorities

CPU = torch.device("cpu")


def filled(values: np.ndarray) -> Priorities:
    priorities = Priorities(len(values), CPU)
    priorities.fill(0, torch.from_numpy(values.astype(np.float32)))
    return priorities


def naive_find(values: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Walk along the leaves until their sum passes each share of the total."""
    found = []
    exact = values.astype(np.float32).astype(np.float64)
    for u in uniform:
        mass, total = u * exact.sum(), 0.0
        for index, value in enumerate(exact):
            total += value
            if total > mass:
                found.append(index)
                break
    return np.array(found)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 100, 1000, 1023])
def test_find_equals_a_naive_walk(size: int) -> None:
    rng = np.random.default_rng(size)
    values = rng.random(size) * (rng.random(size) < 0.7)
    values[size // 2] = 0.3
    uniform = rng.random(300)
    index, leaf = filled(values).find(torch.from_numpy(uniform))
    np.testing.assert_array_equal(index.numpy(), naive_find(values, uniform))
    np.testing.assert_allclose(leaf.numpy(), values[index.numpy()].astype(np.float32))
    assert (leaf > 0).all()


def test_ties_and_ends_never_return_a_zero() -> None:
    """Shares that fall exactly between two leaves belong to the next leaf that is not 0."""
    values = np.array([0, 1, 0, 0, 1, 2, 0, 0, 4, 0, 0], dtype=np.float64)
    shares = torch.tensor([0.0, 1 / 8, 2 / 8, 4 / 8, 1 - 2**-53, 1.0 - 1e-12], dtype=torch.float64)
    index, leaf = filled(values).find(shares)
    assert index.tolist() == [1, 4, 5, 8, 8, 8]
    assert (leaf > 0).all()


@pytest.mark.parametrize("seed", range(3))
def test_after_many_changes_it_equals_one_made_anew(seed: int) -> None:
    """Puts with repeated indices and fills across blocks; sums, largest and draws stay those of the leaves."""
    rng = np.random.default_rng(seed)
    size = 777
    priorities, plain = Priorities(size, CPU), np.zeros(size, np.float32)
    for _ in range(500):
        index = rng.integers(size, size=16)
        values = (rng.random(size) * 10.0 ** rng.integers(-4, 4)).astype(np.float32)[index]  # equal where index is
        priorities.put(torch.from_numpy(index), torch.from_numpy(values))
        plain[index] = values
        begin = int(rng.integers(size - 40))
        row = rng.random(rng.integers(1, 40)).astype(np.float32)
        priorities.fill(begin, torch.from_numpy(row))
        plain[begin : begin + len(row)] = row
    np.testing.assert_array_equal(priorities.leaves().numpy(), plain)
    assert priorities._sums.sum().item() == pytest.approx(plain.astype(np.float64).sum(), rel=1e-12)
    assert priorities.largest().item() == plain.max()
    uniform = rng.random(200)
    np.testing.assert_array_equal(priorities.find(torch.from_numpy(uniform))[0].numpy(), naive_find(plain, uniform))


def test_the_total_does_not_drift_in_a_million_updates() -> None:
    """Between 1e-6 and 1e6, which would ruin a float32 tree of differences."""
    generator = torch.Generator().manual_seed(0)
    size, batch = 3000, 1000
    priorities = Priorities(size, CPU)
    for _ in range(1_000_000 // batch):
        index = torch.randperm(size, generator=generator)[:batch]
        priorities.put(index, 10 ** (torch.rand(batch, generator=generator) * 12 - 6))
    priorities.put(torch.arange(size), torch.full((size,), 1e-3))
    assert priorities._sums.sum().item() == pytest.approx(size * float(np.float32(1e-3)), rel=1e-12)
    assert priorities.largest().item() == pytest.approx(1e-3)


@pytest.mark.cuda
def test_priorities_on_cuda_equal_the_cpu() -> None:
    rng = np.random.default_rng(0)
    values, uniform = torch.from_numpy(rng.random(5000).astype(np.float32)), torch.from_numpy(rng.random(256))
    found = []
    for name in ("cpu", "cuda"):
        priorities = Priorities(5000, torch.device(name))
        priorities.fill(0, values.to(name))
        priorities.put(torch.arange(0, 5000, 7, device=name), torch.full((715,), 0.25, device=name))
        found.append(priorities.find(uniform.to(name))[0].cpu())
    assert (found[0] == found[1]).float().mean() > 0.99  # sums may round differently
