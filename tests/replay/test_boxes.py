"""The replay of vectors against a plain list: what it holds, how it draws, that it resumes, and what it refuses."""

from __future__ import annotations

import collections
import threading
from typing import Any

import numpy as np
import pytest
import torch

from fastdqn.errors import UserError
from fastdqn.replay.boxes import BoxReplay, box_replay_bytes, check_box_memory
from fastdqn.runs.encoding import from_bytes, to_bytes
from fastdqn.states import fetched
from fastdqn.types import VectorStep

CPU = torch.device("cpu")
GAMMA = 0.9
D, A = 3, 2


def replay_of(capacity: int, num_envs: int, newest_in_batch: bool = False, seed: int = 0, **more: Any) -> BoxReplay:
    rng = np.random.default_rng(seed)
    return BoxReplay(capacity, num_envs, D, A, GAMMA, CPU, rng, newest_in_batch, **more)


class Play:
    """N games of random numbers, whose episodes end often, either way; keeps all transitions in a plain list."""

    def __init__(self, num_envs: int, seed: int = 0) -> None:
        self.rng, self.num_envs = np.random.default_rng(seed), num_envs
        self.over = np.zeros(num_envs, bool)
        self.newest = self.numbers(D)
        self.rows: list[list[tuple[float, ...]]] = []

    def numbers(self, width: int) -> Any:
        return self.rng.standard_normal((self.num_envs, width)).astype(np.float32)

    def step(self, replay: BoxReplay) -> None:
        actions, frames, reward = self.numbers(A), self.numbers(D), self.numbers(1)[:, 0]
        reset = self.over
        ends = self.rng.random((2, self.num_envs)) < 0.2
        terminated, truncated = ends[0] & ~reset, ends[1] & ~ends[0] & ~reset
        self.over = terminated | truncated
        replay.add(actions, VectorStep(frames, reward, terminated, truncated, reset, ()))
        row: list[tuple[float, ...]] = []
        for i in np.flatnonzero(~reset):
            discount = np.float32(0.0 if terminated[i] else GAMMA)
            row.append((*self.newest[i], *actions[i], reward[i], discount, *frames[i]))
        self.rows.append(row)
        self.newest = frames

    def held(self, rows: int) -> list[tuple[float, ...]]:
        """Return the transitions of the newest so many rows, in their order."""
        return [one for row in self.rows[-rows:] for one in row]


def tuples(batch: Any) -> list[tuple[float, ...]]:
    columns = (batch.obs, batch.action, batch.reward.unsqueeze(1), batch.discount.unsqueeze(1), batch.next_obs)
    return [tuple(line.numpy()) for line in torch.cat(columns, dim=1)]


def played(capacity: int, num_envs: int, steps: int, **more: Any) -> tuple[BoxReplay, Play]:
    play, replay = Play(num_envs), replay_of(capacity, num_envs, **more)
    replay.reset(play.newest)
    for _ in range(steps):
        play.step(replay)
    return replay, play


@pytest.mark.parametrize(
    ("num_envs", "capacity", "steps"), [(1, 7, 40), (3, 12, 3), (3, 14, 50), (4, 4, 9), (2, 40, 19)]
)
def test_it_holds_what_a_list_holds_and_draws_all_of_it_equally(num_envs: int, capacity: int, steps: int) -> None:
    play, replay = Play(num_envs), replay_of(capacity, num_envs)
    replay.reset(play.newest)
    for _ in range(steps):
        play.step(replay)
        expected = play.held(capacity // num_envs)
        assert len(replay) == len(expected)
    expected = play.held(capacity // num_envs)
    assert len(set(expected)) == len(expected)
    counts = collections.Counter(tuples(replay.sample(4000)))
    assert counts.keys() == set(expected)
    each = 4000 / len(expected)
    chi_square = sum((count - each) ** 2 / each for count in counts.values())
    freedom = len(expected) - 1
    assert chi_square < freedom + 4.5 * np.sqrt(2 * max(freedom, 1)) + 5


def test_batches_have_the_shapes_and_types_of_the_legend() -> None:
    batch = played(20, 2, 15)[0].sample(5)
    assert [tuple(x.shape) for x in batch[:5]] == [(5, D), (5, A), (5,), (5,), (5, D)]
    assert {x.dtype for x in batch[:5]} == {torch.float32}


def test_the_newest_transition_is_in_every_batch_if_asked_for() -> None:
    replay, play = played(400, 2, 200, newest_in_batch=True)
    for _ in range(30):
        play.step(replay)
        if play.rows[-1]:
            assert tuples(replay.sample(4))[-1] == play.held(1)[-1]
    replay, play = played(400, 2, 200)
    missed = sum(play.held(1)[-1] not in tuples(replay.sample(4)) for _ in range(30) if play.rows[-1])
    assert missed > 20  # the control


def test_every_observation_is_stored_once() -> None:
    replay = replay_of(1000, 4)
    assert replay._table.nbytes <= box_replay_bytes(1000 + 4, D, A)
    assert box_replay_bytes(1000, D, A) == 1000 * (4 * (D + A + 2) + 8)


def test_nothing_can_be_drawn_before_the_first_transition() -> None:
    replay = replay_of(10, 2)
    replay.reset(np.zeros((2, D), np.float32))
    with pytest.raises(IndexError, match="no transition yet"):
        replay.sample(1)


@pytest.mark.parametrize("steps", [0, 5, 37])
def test_a_loaded_replay_continues_bit_for_bit(steps: int) -> None:
    """Through the bytes of a checkpoint; with a ring that has not begun, is half full, and has gone round."""
    replay, play = played(30, 3, steps)
    state = from_bytes(to_bytes(fetched({"replay": replay.state()})))["replay"]
    other = replay_of(30, 3, seed=9)
    other.load(state)
    for _ in range(25):
        rng = play.rng.bit_generator.state
        before, rows = (play.over, play.newest), len(play.rows)
        play.step(replay)
        play.rng.bit_generator.state, (play.over, play.newest) = rng, before
        del play.rows[rows:]
        play.step(other)
        if len(replay):
            assert tuples(replay.sample(6)) == tuples(other.sample(6))
    assert set(tuples(other.sample(2000))) == set(play.held(10))


def test_a_checkpoint_is_of_its_moment_though_the_run_goes_on() -> None:
    """A step that would overwrite what is not yet compressed waits for it."""
    replay, play = played(30, 3, 25)
    held = play.held(10)
    state = replay.state()
    adding = threading.Thread(target=lambda: [play.step(replay) for _ in range(15)])
    adding.start()
    adding.join(0.2)
    assert adding.is_alive()  # the control: nothing has been read yet
    state = fetched(state)
    adding.join(10.0)
    assert not adding.is_alive()
    other = replay_of(30, 3)
    other.load(state)
    assert set(tuples(other.sample(2000))) == set(held)


def test_what_a_checkpoint_left_out_begins_with_the_newest_observations() -> None:
    play = Play(2)
    replay = replay_of(20, 2, newest=lambda: play.newest)
    replay.reset(play.newest)
    for _ in range(6):
        play.step(replay)
    replay.discard(np.array([True, False]))
    assert len(replay) == len(play.held(6))  # a reset is the next row of a game that begins anew
    replay.discard(None)
    assert len(replay) == 0
    play.step(replay)
    assert set(tuples(replay.sample(50))) == set(play.held(1))


def test_what_does_not_fit_is_one_sentence() -> None:
    with pytest.raises(UserError, match=r"^--replay-size 3 is too small for 4 games at once; it must be at least 4\.$"):
        replay_of(3, 4)
    said = r"^A replay of 1000 env steps needs 0\.0 GB, but.*; --replay-size 27 would fit\.$"
    with pytest.raises(UserError, match=said):
        check_box_memory(1000, D, A, CPU, available_bytes=1000, beside=False)
    with pytest.raises(UserError, match="--replay-size"):
        replay_of(10**12, 1)
