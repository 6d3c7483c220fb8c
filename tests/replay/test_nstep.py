"""N-step returns against brute force and by hand."""

from __future__ import annotations

import numpy as np
import pytest

from fastdqn.replay.nstep import NStep
from fastdqn.types import Transition


def play_random_episodes(
    n: int, gamma: float, seed: int
) -> tuple[list[Transition], list[tuple[int, int, float, bool, bool]]]:
    """Feed an NStep with random episodes; observations are the numbers of the env steps."""
    rng = np.random.default_rng(seed)
    n_step = NStep(n, gamma)
    out: list[Transition] = []
    log: list[tuple[int, int, float, bool, bool]] = []
    for t in range(400):
        action, reward = int(rng.integers(6)), float(rng.normal())
        terminated, truncated = bool(rng.random() < 0.12), bool(rng.random() < 0.06)
        log.append((t, action, reward, terminated, truncated))
        out.extend(n_step.add(t, action, reward, t + 0.5, terminated, truncated))  # type: ignore[arg-type]
    return out, log


@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_n_step_equals_brute_force(n: int, seed: int) -> None:
    gamma = 0.9
    out, log = play_random_episodes(n, gamma, seed)
    expected = []
    for t, action, _, _, _ in log:
        total, k, terminated, ended = 0.0, 0, False, False
        while k < n and t + k < len(log) and not ended:
            _, _, reward, terminated, truncated = log[t + k]
            total += gamma**k * reward
            ended = terminated or truncated
            k += 1
        if k == n or ended:
            expected.append((t, action, total, 0.0 if terminated else gamma**k, t + k - 0.5))
    assert len(out) == len(expected)
    for (obs, action, reward, discount, next_obs), want in zip(out, expected, strict=True):
        assert (obs, action, next_obs) == (want[0], want[1], want[4])
        assert reward == pytest.approx(want[2])
        assert discount == pytest.approx(want[3])


def test_n_step_by_hand() -> None:
    n_step = NStep(3, 0.5)
    add = n_step.add
    assert add("a", 0, 1.0, "b", False, False) == ()  # type: ignore[arg-type]
    assert add("b", 1, 2.0, "c", False, False) == ()  # type: ignore[arg-type]
    assert add("c", 2, 4.0, "d", False, False) == (Transition("a", 0, 3.0, 0.125, "d"),)  # type: ignore[arg-type]
    assert add("d", 3, 8.0, "e", True, False) == (  # type: ignore[arg-type]
        Transition("b", 1, 6.0, 0.0, "e"),  # type: ignore[arg-type]
        Transition("c", 2, 8.0, 0.0, "e"),  # type: ignore[arg-type]
        Transition("d", 3, 8.0, 0.0, "e"),  # type: ignore[arg-type]
    )
    assert add("p", 0, 1.0, "q", False, True) == (Transition("p", 0, 1.0, 0.5, "q"),)  # type: ignore[arg-type]
