"""The list replay, n-step returns, and the batches made of them."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import psutil
import pytest
import torch

from fastdqn.config import FRAME_BYTES, Options, Protocol
from fastdqn.envs.frames import FrameStore
from fastdqn.envs.make import Wrappers, make_env
from fastdqn.errors import UserError
from fastdqn.replay.nstep import NStep
from fastdqn.replay.transitions import (
    TRANSITION_OVERHEAD_BYTES,
    AsyncCollator,
    TransitionList,
    check_memory,
    collate,
    empty_batch,
    fill,
)
from fastdqn.types import LazyFrames, Transition
from fastdqn.variants import make_replay

CPU = torch.device("cpu")


def numbered(count: int) -> list[Transition]:
    """Transitions whose every part tells their number."""
    frames = [np.full((1, 84, 84), i % 256, np.uint8) for i in range(count + 5)]
    stacks = [LazyFrames(tuple(frames[i : i + 4])) for i in range(count + 1)]
    return [Transition(stacks[i], i % 6, float(i), 0.99 if i % 7 else 0.0, stacks[i + 1]) for i in range(count)]


def test_ring_keeps_the_newest_in_any_capacity() -> None:
    for capacity in (1, 7, 10):
        replay = TransitionList(capacity, np.random.default_rng(0))
        items = numbered(25)
        for count, item in enumerate(items, 1):
            replay.append(item)
            assert len(replay) == min(count, capacity)
            kept = {t.reward for t in replay.sample(400)}
            assert kept == {float(i) for i in range(max(0, count - capacity), count)}


def test_sampling_is_uniform_with_replacement() -> None:
    replay = TransitionList(50, np.random.default_rng(1))
    replay.extend(numbered(50))
    counts = np.bincount([int(t.reward) for t in replay.sample(50_000)], minlength=50)
    chi_square = float(((counts - 1000.0) ** 2 / 1000.0).sum())
    assert chi_square < 85.4  # 99.9% quantile of 49 degrees of freedom
    assert len({id(t) for t in replay.sample(50)}) < 50


def test_sampling_an_empty_replay_raises() -> None:
    with pytest.raises(IndexError, match="empty"):
        TransitionList(5, np.random.default_rng(0)).sample(1)


def test_same_generator_same_samples() -> None:
    draws = []
    for _ in range(2):
        replay = TransitionList(50, np.random.default_rng(3))
        replay.extend(numbered(50))
        draws.append([t.reward for t in replay.sample(64)])
    assert draws[0] == draws[1]


@pytest.mark.parametrize("make", ["plain", "async", "fill"])
def test_a_batch_holds_exactly_its_transitions(make: str) -> None:
    items = numbered(64)
    if make == "fill":
        batch = empty_batch(64, (4, 84, 84))
        fill(batch, items)
    else:
        batch = collate(items, CPU) if make == "plain" else AsyncCollator(64, (4, 84, 84), CPU)(items)
    assert [t.dtype for t in batch] == [torch.uint8, torch.int64, torch.float32, torch.float32, torch.uint8]
    assert [tuple(t.shape) for t in batch] == [(64, 4, 84, 84), (64,), (64,), (64,), (64, 4, 84, 84)]
    for row, item in enumerate(items):
        assert (batch.obs[row].numpy() == np.asarray(item.obs)).all()
        assert (batch.next_obs[row].numpy() == np.asarray(item.next_obs)).all()
        assert (batch.action[row], batch.reward[row]) == (item.action, item.reward)
        assert batch.discount[row] == np.float32(item.discount)


@pytest.mark.cuda
def test_async_batches_equal_plain_ones_on_cuda() -> None:
    device = torch.device("cuda")
    items = numbered(500)
    collator = AsyncCollator(32, (4, 84, 84), device)
    for begin in range(0, 480, 32):
        for fast, plain in zip(
            collator(items[begin : begin + 32]), collate(items[begin : begin + 32], device), strict=True
        ):
            assert fast.is_cuda
            assert torch.equal(fast, plain)


@pytest.mark.parametrize("wrappers", ["classic", "opencv"])
def test_a_frame_is_in_memory_once(wrappers: Wrappers) -> None:
    """Played for real: what the process grows by is one frame for each transition, within the stated overhead."""
    env = make_env("pong", Protocol(), wrappers)
    replay = TransitionList(7000, np.random.default_rng(0))
    process, rng = psutil.Process(), np.random.default_rng(0)
    obs, _ = env.reset(seed=0)
    before = 0
    for i in range(7000):
        if i == 1000:
            gc.collect()
            before = process.memory_info().rss
        action = int(rng.integers(6))
        next_obs, reward, terminated, truncated, _ = env.step(action)
        replay.append(Transition(obs, action, float(reward), 0.0 if terminated else 0.99, next_obs))
        obs = next_obs if not (terminated or truncated) else env.reset()[0]
    gc.collect()
    per_transition = (process.memory_info().rss - before) / 6000
    assert 0.9 * FRAME_BYTES <= per_transition < FRAME_BYTES + TRANSITION_OVERHEAD_BYTES + 200  # pages of other things
    unique = {id(frame) for t in replay._items for stack in (t.obs, t.next_obs) for frame in stack.frames}  # type: ignore[union-attr]
    assert len(unique) < 7000 + 60


def test_a_store_hands_out_memory_once_and_gives_it_back() -> None:
    store = FrameStore((1, 84, 84), 4)
    frames = [store.new() for _ in range(10)]
    for i, frame in enumerate(frames):
        frame[...] = i
    assert all((frame == i).all() for i, frame in enumerate(frames))
    bases = [weakref.ref(frame.base) for frame in frames]
    del frame, frames[:4]
    gc.collect()
    assert [base() is None for base in bases] == [True] * 4 + [False] * 6


def test_memory_is_checked_before_the_run() -> None:
    assert check_memory(100_000, 10**10) == 100_000 * (FRAME_BYTES + TRANSITION_OVERHEAD_BYTES)
    with pytest.raises(UserError, match=r"needs 7\.7 GB, but 1\.0 GB .* --replay-size 130616 would fit"):
        check_memory(1_000_000, 10**9)
    huge = Options()
    object.__setattr__(huge, "dqn", type(huge.dqn)(replay_size=10**10))
    with pytest.raises(UserError, match="would fit"):
        make_replay(huge)


# N-step returns


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
