"""Replays from a checkpoint draw what they would have drawn; a game that begins anew ends its windows there."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fastdqn import states
from fastdqn.envs.vector import AtariVector
from fastdqn.options.game import GameOptions
from fastdqn.replay.prioritized import DeviceReplay, PrioritizedReplay
from fastdqn.replay.ring import FrameReplay
from fastdqn.replay.stacks import GameStacks
from fastdqn.replay.transitions import TransitionList
from fastdqn.runs.checkpoint import Checkpoints, newest, read
from fastdqn.types import LazyFrames, Transition, VectorStep
from tests.helpers.checkpoints import ABOUT, through_a_file
from tests.helpers.replays import CPU, ENDS, GAMMA, Script, feed, make_replay

BOTH = pytest.mark.parametrize("prioritized", [False, True])


def replay_of(prioritized: bool, **frames: Any) -> DeviceReplay:
    """Return an empty replay of 16 rows of two small games, drawn from uniformly or by priority."""
    replay = FrameReplay(32, 2, (36, 36), 4, 3, GAMMA, CPU, seed=0, **frames)
    return PrioritizedReplay(replay) if prioritized else replay


def same_batches(a: DeviceReplay, b: DeviceReplay, count: int = 5) -> None:
    prioritized = isinstance(a, PrioritizedReplay)
    for _ in range(count):
        left, right = a.sample(16), b.sample(16)
        assert all(torch.equal(x, y) for x, y in zip(left, right, strict=True) if x is not None and y is not None)
        for batch in (left, right):
            assert [field for field, value in batch._asdict().items() if value is None] == (
                [] if prioritized else ["weight", "slot"]
            )


@pytest.mark.parametrize("steps", [6, 24, 40])
@BOTH
def test_frame_replay_resumes(tmp_path: Path, steps: int, prioritized: bool) -> None:
    """Before the ring is full, and after it has gone round: the same batches, then and after more steps."""
    script, replay, again = Script(ENDS), replay_of(prioritized), replay_of(prioritized)
    feed(script, replay, steps)
    if isinstance(replay, PrioritizedReplay):
        replay.set_beta(0.7)
        for _ in range(9):
            replay.write_back(replay.sample(8), torch.rand(8) * 3)
    again.reset(np.zeros((2, 36, 36), np.uint8))
    again.load(through_a_file(tmp_path, replay))
    assert torch.equal(again.stacks(), replay.stacks())
    same_batches(replay, again)
    for _ in range(5):
        actions, step = script.step()
        replay.add(actions, step)
        again.add(actions, step)
        same_batches(replay, again, 1)


def test_a_checkpoint_holds_the_frames_of_its_moment_however_slow_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run continues while frames are compressed, and overwrites none that is still to be read."""
    script, replay, again = Script(ENDS), make_replay(16, 2, 3, side=36), make_replay(16, 2, 3, side=36)
    feed(script, replay, 40)
    then = replay._frames.clone()
    real = states.pack

    def slow(array: Any) -> dict[str, Any]:
        time.sleep(0.05)
        return real(array)

    monkeypatch.setattr("fastdqn.replay.saving.pack", slow)
    monkeypatch.setattr("fastdqn.replay.saving.PIECE_BYTES", 2 * 36 * 36)
    checkpoints = Checkpoints(tmp_path, ABOUT)
    checkpoints.begin(40, lambda: {"part": replay.state()})
    busy = 0
    for _ in range(14):
        replay.add(*script.step())
        busy += checkpoints.writing
    assert busy > 3  # it did continue meanwhile
    assert checkpoints.ended(wait=True) is not None
    again.load(read(newest(tmp_path))["part"])
    assert torch.equal(again._frames[: again.size], then[: again.size])
    assert not torch.equal(again._frames[: again.size], replay._frames[: again.size])


@pytest.mark.parametrize(("discarded", "discounts"), [(True, [0.9**2, 0.9**3]), (False, [0.9**3, 0.9**3])])
def test_the_last_window_of_a_game_that_begins_anew_is_a_truncation(discarded: bool, discounts: list[float]) -> None:
    """And, as a control, goes on into the next steps where no game does."""
    script, replay = Script({}), make_replay(16, 2, 3, side=36)
    feed(script, replay, 8)
    if discarded:
        replay.discard(np.array([True, False]))
    for _ in range(4):
        replay.add(*script.step())
    batch = replay.transitions(torch.tensor([6, 6]), torch.tensor([0, 1]))
    assert batch.discount.tolist() == pytest.approx(discounts)


@BOTH
def test_a_replay_that_the_checkpoint_lacks_begins_with_the_newest_frames(prioritized: bool) -> None:
    script = Script(ENDS)
    newest_frames = script.frames() + 1
    replay = replay_of(prioritized, newest=lambda: newest_frames)
    feed(script, replay, 24)
    assert len(replay) == 32
    assert len(replay.sample(8).action) == 8
    replay.discard(None)
    assert len(replay) == 0
    with pytest.raises(IndexError):
        replay.sample(8)
    stacks = replay.stacks().numpy()
    np.testing.assert_array_equal(stacks[:, -1], newest_frames)
    assert not stacks[:, :-1].any()
    new, again = replay_of(prioritized), Script(ENDS)
    new.reset(newest_frames)
    script = Script(ENDS)
    for _ in range(9):
        replay.add(*script.step())
        new.add(*again.step())
    assert len(replay) == len(new) == 18
    assert {tuple(obs.flatten().tolist()) for obs in replay.sample(400).obs} == {
        tuple(obs.flatten().tolist()) for obs in new.sample(400).obs
    }  # nothing of what was there before is drawn


def test_list_replay_resumes_and_shares_its_frames(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frames = [rng.integers(256, size=(1, 8, 8), dtype=np.uint8) for _ in range(60)]
    stacks = [LazyFrames(tuple(frames[i : i + 4])) for i in range(55)]
    replay, again = (TransitionList(40, np.random.default_rng(3)) for _ in range(2))
    for i in range(50):
        replay.append(Transition(stacks[i], i % 4, float(i), 0.99 if i % 7 else 0.0, stacks[i + 3]))
    replay.sample(5)
    again.load(through_a_file(tmp_path, replay))
    for left, right in zip(replay.sample(300), again.sample(300), strict=True):
        assert left[1:4] == right[1:4]
        np.testing.assert_array_equal(np.asarray(left.obs), np.asarray(right.obs))
        np.testing.assert_array_equal(np.asarray(left.next_obs), np.asarray(right.next_obs))
    assert len({id(f) for item in again._items for obs in (item.obs, item.next_obs) for f in obs.frames}) == 46  # type: ignore[attr-defined]
    replay.append(Transition(stacks[0], 9, 9.0, 0.5, stacks[1]))
    again.append(Transition(stacks[0], 9, 9.0, 0.5, stacks[1]))
    assert [item.action for item in replay.sample(200)] == [item.action for item in again.sample(200)]


def test_game_stacks_resume(tmp_path: Path) -> None:
    games = AtariVector("breakout", GameOptions(), 3, np.random.SeedSequence(5), threads=2)
    stacks = GameStacks(3, (84, 84), 4, 3, 0.9)
    stacks.reset(games.reset())
    rng = np.random.default_rng(0)

    def step() -> tuple[Any, Any]:
        actions = rng.integers(4, size=3)
        games.send(actions)
        return actions, games.recv()

    for _ in range(150):
        stacks.add(*step())
    again = GameStacks(3, (84, 84), 4, 3, 0.9)
    again.reset(games.newest)
    again.load(through_a_file(tmp_path, stacks))
    for _ in range(40):
        np.testing.assert_array_equal(stacks.obs(), again.obs())
        now = step()
        for left, right in zip(stacks.add(*now), again.add(*now), strict=True):
            assert left[1:4] == right[1:4]
            np.testing.assert_array_equal(np.asarray(left.obs), np.asarray(right.obs))
            np.testing.assert_array_equal(np.asarray(left.next_obs), np.asarray(right.next_obs))


@pytest.mark.parametrize("told", [True, False])
def test_no_transition_leads_from_a_game_that_is_gone_into_the_next(told: bool) -> None:
    """In stacks on the host, as 06, 20 to 22 and 41 have them; as a control, one does where nobody says it is gone."""

    def step(value: int, reset: bool = False) -> VectorStep:
        still = np.zeros(1, bool)
        frames = np.full((1, 8, 8), value, np.uint8)
        return VectorStep(frames, np.zeros(1, np.float32), still, still, np.array([reset]), ())

    stacks, none = GameStacks(1, (8, 8), 2, 3, GAMMA), np.zeros(1, np.int64)
    stacks.reset(np.full((1, 8, 8), 1, np.uint8))
    stacks.add(none, step(2))
    if told:
        stacks.discard(np.array([True]))
    stacks.add(none, step(100, reset=True))
    added = [transition for number in range(101, 105) for transition in stacks.add(none, step(number))]
    begun = [int(np.asarray(transition.obs)[-1, 0, 0]) for transition in added]
    assert begun == ([100, 101] if told else [1, 100, 101])


def test_a_list_that_the_checkpoint_lacks_is_empty() -> None:
    replay = TransitionList(4, np.random.default_rng(0))
    frame = np.zeros((8, 8), np.uint8)
    replay.extend([Transition(LazyFrames((frame,)), 0, 0.0, 0.0, LazyFrames((frame,)))] * 6)
    replay.discard(np.array([True]))
    assert len(replay) == 4
    replay.discard(None)
    assert len(replay) == 0
    with pytest.raises(IndexError):
        replay.sample(1)
