"""Returns and advantages: numbers by hand, and a brute-force reference on episodes that end and are truncated."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from fastdqn.algorithms.returns import bootstrapped_returns, generalised_advantages
from fastdqn.replay.nstep import NStep
from tests.helpers.sb3 import gae

GAMMA = 0.5


def test_returns_by_hand() -> None:
    """One window goes on, one was truncated after two env steps, one terminated."""
    r_t, discount_t = torch.tensor([1.0, 3.0, -1.0]), torch.tensor([0.5**4, 0.5**2, 0.0])
    found = bootstrapped_returns(r_t, discount_t, torch.tensor([16.0, 8.0, 1000.0]))
    assert found.tolist() == [2.0, 5.0, -1.0]


def test_a_silent_broadcast_is_refused() -> None:
    with pytest.raises(ValueError, match="same shape"):
        bootstrapped_returns(torch.ones(3), torch.ones(3), torch.ones(3, 1))
    with pytest.raises(ValueError, match="same shape"):
        generalised_advantages(*[torch.ones(3, 2)] * 4, torch.ones(3), 0.9)


@pytest.mark.parametrize("n", [1, 2, 4])
def test_windows_and_values_are_the_returns_of_brute_force(n: int) -> None:
    """Every env step's return: its next n rewards at most, and the value after them unless the episode terminated."""
    rng = np.random.default_rng(n)
    steps = 400
    reward = rng.normal(size=steps)
    terminated, truncated = rng.random(steps) < 0.1, rng.random(steps) < 0.1
    value_of = rng.normal(size=2 * steps + 1)  # by the number of an observation
    number, window = 0, NStep(n, GAMMA)
    seen: list[tuple[int, int]] = []  # numbers of the observations before and after each env step
    ours: dict[int, float] = {}
    for t in range(steps):
        before, after = number, number + 1
        seen.append((before, after))
        for one in window.add(before, 0, reward[t], after, terminated[t], truncated[t]):  # type: ignore[arg-type]
            parts = (torch.tensor([part]) for part in (one.reward, one.discount, value_of[one.next_obs]))  # type: ignore[index]
            ours[one.obs] = float(bootstrapped_returns(*parts))  # type: ignore[index]
        number = after + int(terminated[t] or truncated[t])  # the first observation of the next game is another
    kinds = set()
    for t in range(steps - n):
        total = 0.0
        for k in range(n):
            total += GAMMA**k * reward[t + k]
            if terminated[t + k] or truncated[t + k] or k == n - 1:
                kinds.add((bool(terminated[t + k]), bool(truncated[t + k])))
                total += 0.0 if terminated[t + k] else GAMMA ** (k + 1) * value_of[seen[t + k][1]]
                break
        assert ours[seen[t][0]] == pytest.approx(total, abs=1e-12)
    assert len(kinds) == 4


def test_advantages_by_hand() -> None:
    """lambda 1/2, gamma 1/2: the second env step is the last of its episode, by truncation here, by an end there."""
    r_t = torch.tensor([[1.0, 1.0], [2.0, 2.0], [4.0, 4.0]])
    discount_t = torch.tensor([[0.5, 0.5], [0.5, 0.0], [0.5, 0.5]])
    continues_t = torch.tensor([[1.0, 1.0], [0.0, 0.0], [1.0, 1.0]])
    v_tm1 = torch.tensor([[2.0, 2.0], [4.0, 4.0], [0.0, 0.0]])
    v_t = torch.tensor([[4.0, 4.0], [6.0, 6.0], [8.0, 8.0]])
    found = generalised_advantages(r_t, discount_t, v_tm1, v_t, continues_t, 0.5)
    assert found.tolist() == [[1.0 + 0.25 * 1.0, 1.0 + 0.25 * -2.0], [1.0, -2.0], [8.0, 8.0]]


@pytest.mark.parametrize("trace_decay", [0.0, 0.95, 1.0])
def test_advantages_are_stable_baselines(trace_decay: float) -> None:
    """With rows in which games were only reset; these enter nothing, whatever is in them."""
    rng, gamma, steps = np.random.default_rng(3), 0.99, 500
    over = rng.random(steps) < 0.15
    terminated, truncated = over & (rng.random(steps) < 0.5), over.copy()
    truncated &= ~terminated
    reset = np.concatenate(([False], over[:-1]))
    over[reset] = terminated[reset] = truncated[reset] = False
    reset = np.concatenate(([False], over[:-1]))
    reward, before, after = rng.normal(size=(3, steps))
    kept = np.flatnonzero(~reset)
    for t, following in itertools.pairwise(kept):  # what follows within an episode is one observation
        if not over[t]:
            before[following] = after[t]
    reward[reset] = before[reset] = after[reset] = 1e9
    expected = gae(
        *(column[kept].tolist() for column in (reward, terminated, truncated, before, after)), gamma, trace_decay
    )
    columns = (reward, np.where(terminated, 0.0, gamma), before, after, np.where(over, 0.0, 1.0))
    found = generalised_advantages(*(torch.from_numpy(column)[:, None] for column in columns), trace_decay)
    np.testing.assert_allclose(found[:, 0].numpy()[kept], expected, rtol=1e-10, atol=1e-10)
    assert terminated.sum() > 10
    assert truncated.sum() > 10
