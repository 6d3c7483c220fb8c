"""A recorder: the agent sees everything, the replay holds what came outside of pauses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from fastdqn.replay.newest import NewestStacks
from fastdqn.replay.prioritized import PrioritizedReplay
from fastdqn.replay.recorder import Recorder
from fastdqn.replay.returns import ReturnReplay
from fastdqn.states import abandon
from fastdqn.types import Came, VectorStep
from tests.helpers.replays import CPU, GAMMA, make_replay

ENVS, SIDE, ROWS = 3, 36, 60


def label(time: int, game: int) -> int:
    """The one value of a frame, never 0."""
    return 1 + (time * ENVS + game) % 251


def frames(time: int) -> np.ndarray:
    return np.stack([np.full((SIDE, SIDE), label(time, i), np.uint8) for i in range(ENVS)])


def step(time: int) -> Came:
    none = np.zeros(ENVS, bool)
    reward = np.full(ENVS, time, np.float32)
    return Came(np.full(ENVS, time % 5), VectorStep(frames(time + 1), reward, none, none, none, ()))


def make(n_step: int = 3, least: int = ENVS, prioritized: bool = False) -> Recorder:
    replay = make_replay(ROWS, ENVS, n_step, side=SIDE)
    shown = NewestStacks(ENVS, (4, SIDE, SIDE), CPU)
    recorder = Recorder(PrioritizedReplay(replay) if prioritized else replay, shown, least)
    recorder.reset(frames(0))
    return recorder


def played(
    recorder: Recorder, times: range, then: bool | None = None, value: Callable[[int], Any] = lambda time: 0.0
) -> None:
    """In the order of a training loop: what a step has shown is valued at once, and stored while the games play again;
    with the last one a pause begins or ends, if `then` says so.
    """
    values = recorder.returns.values
    for time in times:
        recorder.show(step(time))
        seen = recorder.stacks()[:, :, 0, 0].tolist()
        assert seen == [[label(t, i) if t >= 0 else 0 for t in range(time - 2, time + 2)] for i in range(ENVS)]
        if values is not None:
            values[:] = value(time)
        recorder.add(step(time))
        if then is not None and time == times[-1]:
            recorder.pause(then)
        recorder.note()


def test_without_a_pause_the_replay_holds_what_it_would_without_a_recorder() -> None:
    plain = make_replay(ROWS, ENVS, 3, side=SIDE)
    plain.reset(frames(0))
    for time in range(100):
        plain.add(*step(time))
    recorder = make()
    played(recorder, range(100))
    for one, other in zip(plain.sample(500), recorder.replay.sample(500), strict=True):
        assert (one is None and other is None) or torch.equal(one, other)


def test_the_newest_stacks_are_saved_before_the_replay() -> None:
    """Their few rows would else be waited for until all of the replay is compressed."""
    recorder = make()
    played(recorder, range(20))
    state = recorder.state()
    fetch = [name for name, said in state.items() if isinstance(said, dict) and "frames" in said]
    assert fetch == ["shown", "replay"]
    abandon(state)


@pytest.mark.parametrize("prioritized", [False, True])
@pytest.mark.parametrize("n_step", [1, 3])
def test_nothing_of_a_pause_is_stored_and_no_window_crosses_it(n_step: int, prioritized: bool) -> None:
    """Times 0 to 19 are stored, 20 to 219 are not, 220 to 239 are."""
    recorder = make(n_step, prioritized=prioritized)
    played(recorder, range(20), then=True)
    stored = len(recorder.replay)
    played(recorder, range(20, 219))
    assert len(recorder.replay) == stored
    played(recorder, range(219, 220), then=False)
    played(recorder, range(220, 240))
    batch = recorder.replay.sample(4000)
    first = {label(time, i): time for time in (*range(20), *range(220, 240)) for i in range(ENVS)}
    seen: set[int] = set()
    for obs, action, reward, discount, next_obs in zip(
        batch.obs[:, :, 0, 0].tolist(),
        batch.action.tolist(),
        batch.reward.tolist(),
        batch.discount.tolist(),
        batch.next_obs[:, :, 0, 0].tolist(),
        strict=True,
    ):
        assert obs[-1] in first
        time = first[obs[-1]]
        game = next(i for i in range(ENVS) if label(time, i) == obs[-1])
        seen.add(time)
        begin = 0 if time < 20 else 220
        assert obs == [label(t, game) if t >= begin else 0 for t in range(time - 3, time + 1)]
        steps = min(n_step, 20 - time) if time < 20 else n_step
        assert action == time % 5
        assert reward == pytest.approx(sum(GAMMA**k * (time + k) for k in range(steps)))
        assert discount == pytest.approx(GAMMA**steps)  # bootstraps from the last observation before the pause
        assert next_obs[-1] == label(time + steps, game)
    assert seen == {*range(20), *range(220, 241 - n_step)}


def test_a_pause_waits_until_enough_is_stored() -> None:
    recorder = make(least=10 * ENVS)
    recorder.pause(True)
    assert not recorder.resting
    played(recorder, range(30))
    assert len(recorder.replay) == 10 * ENVS
    assert recorder.resting
    recorder.pause(False)
    assert not recorder.resting


def test_it_continues_in_the_middle_of_a_pause() -> None:
    whole, first, second = make(), make(), make()
    for recorder in (whole, first):
        played(recorder, range(20), then=True)
        played(recorder, range(20, 50))
    state = first.state()
    pieces = state["replay"]["frames"].fetch(), state["shown"]["frames"].fetch()
    state["replay"]["frames"], state["shown"]["frames"] = pieces
    second.load(state)
    for recorder in (whole, second):
        played(recorder, range(50, 52), then=False)
        played(recorder, range(52, 60))
    for one, other in zip(whole.replay.sample(500), second.replay.sample(500), strict=True):
        assert (one is None and other is None) or torch.equal(one, other)


def test_each_observation_keeps_the_value_that_was_given_to_it_also_around_a_pause() -> None:
    """The value of an observation is its newest frame's number here."""
    replay = ReturnReplay(0.9, 5, None, ROWS * ENVS, ENVS, (SIDE, SIDE), 4, GAMMA, CPU, 0)
    recorder = Recorder(replay, NewestStacks(ENVS, (4, SIDE, SIDE), CPU), ENVS)
    recorder.reset(frames(0))
    assert recorder.returns.values is not None

    def value(_: int) -> torch.Tensor:
        return recorder.stacks()[:, -1, 0, 0]

    recorder.returns.values[:] = value(-1)
    recorder.note()
    played(recorder, range(12), True, value)
    played(recorder, range(12, 40), False, value)
    played(recorder, range(40, 52), None, value)
    head = replay._host_head
    assert head == 12 + 1 + 12
    stored = replay.size // ENVS
    for row in range(head):
        place = slice(row % stored * ENVS, (row % stored + 1) * ENVS)
        assert replay._value[place].tolist() == replay._frames[place, 0].tolist()
    before = slice(11 * ENVS, 12 * ENVS)  # the last before the pause bootstraps from the observation after it
    bootstrapped = [11 + GAMMA * label(12, game) for game in range(ENVS)]
    assert replay._return[before].tolist() == pytest.approx(bootstrapped)


@pytest.mark.parametrize("seen", [10, 11, 12])
def test_a_block_that_ends_as_a_pause_begins_is_drawn_from_later_resumed_or_not(seen: int) -> None:
    """Blocks of 5 rows; returns of one are known before its transitions have priorities."""

    def made() -> tuple[PrioritizedReplay, Recorder]:
        replay = PrioritizedReplay(ReturnReplay(0.9, 5, None, ROWS * ENVS, ENVS, (SIDE, SIDE), 4, GAMMA, CPU, 0))
        recorder = Recorder(replay, NewestStacks(ENVS, (4, SIDE, SIDE), CPU), ENVS)
        recorder.reset(frames(0))
        recorder.note()
        return replay, recorder

    (whole, first), (again, second) = made(), made()
    played(first, range(seen), True, float)
    played(first, range(seen, 19), None, float)
    state = first.state()
    for part in (state["replay"]["frames"], state["shown"]):
        part["frames"] = part["frames"].fetch()
    second.load(state)
    for recorder in (first, second):
        played(recorder, range(19, 20), False, float)
        played(recorder, range(20, 30), None, float)
    assert torch.equal(whole.priorities.leaves(), again.priorities.leaves())
    drawable = whole.priorities.leaves().view(ROWS, ENVS)[:, 0] > 0
    known = whole.frames.starts()[1] + 1
    assert drawable[:known].sum() == known - 1  # but for the row that stands for the pause
    assert not drawable[known:].any()
