"""The list replay, and the batches made of it."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

from fastdqn.envs.build import Wrappers, build_env
from fastdqn.options.game import GameOptions
from fastdqn.replay.memory import FRAME_BYTES, TRANSITION_OVERHEAD_BYTES
from fastdqn.replay.stacks import GameVectors
from fastdqn.replay.transitions import AsyncCollator, TransitionList, collate, empty_batch, fill
from fastdqn.types import LazyFrames, Transition, VectorStep
from tests.helpers.checkpoints import through_a_file
from tests.helpers.graphs import graphs_without_cuda

CPU = torch.device("cpu")


def numbered(count: int) -> list[Transition]:
    """Transitions whose every part tells their number."""
    frames = [np.full((1, 84, 84), i % 256, np.uint8) for i in range(count + 5)]
    stacks = [LazyFrames(tuple(frames[i : i + 4])) for i in range(count + 1)]
    return [Transition(stacks[i], i % 6, float(i), 0.99 if i % 7 else 0.0, stacks[i + 1]) for i in range(count)]


def test_it_keeps_the_newest_in_any_capacity() -> None:
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
    assert (batch.weight, batch.slot) == (None, None)
    assert [t.dtype for t in batch[:5]] == [torch.uint8, torch.int64, torch.float32, torch.float32, torch.uint8]
    assert [tuple(t.shape) for t in batch[:5]] == [(64, 4, 84, 84), (64,), (64,), (64,), (64, 4, 84, 84)]
    for row, item in enumerate(items):
        assert (batch.obs[row].numpy() == np.asarray(item.obs)).all()
        assert (batch.next_obs[row].numpy() == np.asarray(item.next_obs)).all()
        assert (batch.action[row], batch.reward[row]) == (item.action, item.reward)
        assert batch.discount[row] == np.float32(item.discount)


def test_async_batches_equal_plain_ones_in_buffers_that_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on CUDA, but for page-locked memory, streams and the device itself."""
    graphs_without_cuda(monkeypatch)
    collator = AsyncCollator(32, (4, 84, 84), torch.device("cuda"))
    monkeypatch.setattr(collator, "_device", CPU)
    items = numbered(160)
    for begin in range(0, 160, 32):
        part = items[begin : begin + 32]
        batch = collator(part)
        assert (batch.weight, batch.slot) == (None, None)
        assert all(torch.equal(fast, plain) for fast, plain in zip(batch[:5], collate(part, CPU)[:5], strict=True))


@pytest.mark.cuda
def test_async_batches_equal_plain_ones_on_cuda() -> None:
    device = torch.device("cuda")
    items = numbered(500)
    collator = AsyncCollator(32, (4, 84, 84), device)
    for begin in range(0, 480, 32):
        part = items[begin : begin + 32]
        for fast, plain in zip(collator(part)[:5], collate(part, device)[:5], strict=True):
            assert fast.is_cuda
            assert torch.equal(fast, plain)


@pytest.mark.parametrize("wrappers", ["classic", pytest.param("opencv", marks=pytest.mark.slow)])
def test_a_frame_is_in_memory_once(wrappers: Wrappers) -> None:
    """Played for real: what the process grows by is one frame for each transition, within the stated overhead."""
    env = build_env(GameOptions(name="pong"), wrappers)
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


@pytest.mark.parametrize("continuous", [False, True])
def test_transitions_of_vectors_resume_and_are_stacked(tmp_path: Path, continuous: bool) -> None:
    """Vectors of float32 and continuous actions, whose array the caller uses again, over windows of two env steps."""
    rng = np.random.default_rng(0)
    stacks, replay = GameVectors(2, 2, 0.9), TransitionList(100, rng)
    stacks.reset(rng.normal(size=(2, 3)).astype(np.float32))
    actions = np.zeros((2, 2), np.float32) if continuous else np.zeros(2, np.int64)
    no, played = np.zeros(2, bool), []
    for step in range(5):
        actions[:] = step
        frames = rng.normal(size=(2, 3)).astype(np.float32)
        replay.extend(stacks.add(actions, VectorStep(frames, np.full(2, step, np.float32), no, no, no, ())))
        played.append(step)
    again, open_again = TransitionList(100, np.random.default_rng(1)), GameVectors(2, 2, 0.9)
    again.load(through_a_file(tmp_path, replay))
    open_again.load(through_a_file(tmp_path, stacks))
    for one, other in zip(replay.sample(20), again.sample(20), strict=True):
        for value, expected in zip(one, other, strict=True):
            np.testing.assert_array_equal(np.asarray(value), np.asarray(expected))
            assert np.asarray(value).dtype == np.asarray(expected).dtype
    last = VectorStep(np.zeros((2, 3), np.float32), np.zeros(2, np.float32), ~no, no, no, ())
    for one, other in zip(stacks.add(actions, last), open_again.add(actions, last), strict=True):
        np.testing.assert_array_equal(np.asarray(one.obs), np.asarray(other.obs))
        np.testing.assert_array_equal(np.asarray(one.action), np.asarray(other.action))
    batch = collate(again.sample(30), CPU)
    assert batch.obs.dtype == torch.float32
    assert batch.obs.shape == (30, 3)
    assert batch.action.shape == ((30, 2) if continuous else (30,))
    assert set(batch.action.flatten().tolist()) == set(played[:-1])  # of windows that are complete
    assert torch.equal(
        batch.reward, batch.action.reshape(30, -1)[:, 0] + 0.9 * (batch.action.reshape(30, -1)[:, 0] + 1)
    )


def test_pictures_that_are_no_stacks_resume(tmp_path: Path) -> None:
    replay, picture = TransitionList(4, np.random.default_rng(0)), np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    replay.append(Transition(picture, 1, 2.0, 0.5, picture + 1))
    again = TransitionList(4, np.random.default_rng(0))
    again.load(through_a_file(tmp_path, replay))
    found = again.sample(1)[0]
    np.testing.assert_array_equal(np.asarray(found.obs), picture)
    np.testing.assert_array_equal(np.asarray(found.next_obs), picture + 1)


@pytest.mark.parametrize(("size", "held"), [(4, 10), (12, 10)])
def test_transitions_of_a_replay_of_another_size_are_refused(tmp_path: Path, size: int, held: int) -> None:
    replay = TransitionList(held, np.random.default_rng(0))
    replay.extend(numbered(held + 1))
    with pytest.raises(ValueError, match=f"10 transitions are not those of a replay of {size}"):
        TransitionList(size, np.random.default_rng(0)).load(through_a_file(tmp_path, replay))
