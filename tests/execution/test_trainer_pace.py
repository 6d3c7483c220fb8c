"""A trainer's updates keep to their pace, and what they learn from is not too old."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from fastdqn.algorithms.control_work import Acted, ControlWork
from fastdqn.algorithms.rollout_work import RolloutWork, Sent
from fastdqn.execution.trainer_thread import Trainer
from fastdqn.types import Metrics, VectorStep
from tests.helpers.waiting import wait_until

INITIAL = 100


class Nothing:
    """A learner, and a replay, that count."""

    def __init__(self) -> None:
        self.updates = 0

    def update(self, _: object) -> Any:
        self.updates += 1
        return Metrics({}, torch.zeros(1))

    def add(self, *_: object) -> None: ...
    def sample(self, _: int) -> None: ...
    def discard(self, _: object) -> None: ...


class Watched(ControlWork):
    """Looks before it takes a step: how many updates there are for the env steps that it has taken."""

    def __init__(self, learner: Any, every: float) -> None:
        super().__init__(learner, Nothing(), 8, every, INITIAL)  # type: ignore[arg-type]
        self.played = 0
        self.off: list[float] = []
        """Updates more than the pace asks for."""
        self.burst = 0
        """The most updates between two steps."""
        self._before = 0

    def take(self, item: Acted) -> None:
        self.look()
        super().take(item)
        self.played += int((~item.step.reset).sum())

    def look(self) -> None:
        """Compare with (env steps - the ones before the first update) / env steps for each update."""
        self.off.append(self.updates - max(0.0, (self.played - (INITIAL - 1)) / self._every))
        self.burst, self._before = max(self.burst, self.updates - self._before), self.updates


class MakesUp(Watched):
    """Counts from the first env step on once it may update."""

    def due(self) -> bool:
        return self.env_steps >= INITIAL and self.updates < int(self.env_steps / self._every)


def step_of(games: int, resets: int = 0) -> Acted:
    reset = np.arange(games) < resets
    none = np.zeros(games, bool)
    zeros = np.zeros((games, 1), np.float32)
    return Acted(zeros, VectorStep(zeros, zeros[:, 0], none, none, reset, ()))


def play(work: Watched, games: int, threaded: bool) -> None:
    """Play past the first update, a reset in every other step; look again when all that is due has been made."""
    trainer: Trainer[Acted] = Trainer(work, [], [], threaded)
    steps = 320 // games
    with trainer:
        for i in range(steps):
            trainer.put(step_of(games, resets=i % 2))
            while trainer.advance():
                pass
        wait_until(lambda: work.played == steps * games - steps // 2 and not work.due(), 30.0)
    work.look()


paces = pytest.mark.parametrize("every", [10.0, 1.0, 0.25])
sizes = pytest.mark.parametrize("games", [1, 4, 16])
ways = pytest.mark.parametrize("threaded", [True, False])


@ways
@paces
@sizes
def test_updates_keep_to_the_pace(games: int, every: float, threaded: bool) -> None:
    """Within 1 of it, of the steps that were taken, resets left out; nothing is made up for after the first ones."""
    learner: Any = Nothing()
    work = Watched(learner, every)
    play(work, games, threaded)
    assert len(work.off) == 320 // games + 1
    assert -1.0 < min(work.off) <= max(work.off) <= 0.0
    assert learner.updates == work.updates == int((work.played - (INITIAL - 1)) / every)
    assert 1 <= work.burst <= games / every + 1


@ways
@paces
@sizes
def test_who_makes_up_for_the_first_env_steps_makes_a_burst(games: int, every: float, threaded: bool) -> None:
    """The control of the test above."""
    work = MakesUp(Nothing(), every)
    play(work, games, threaded)
    assert max(work.off) >= 1.0
    assert work.burst > games / every + 1


def test_who_leaves_the_replay_out_begins_to_count_anew() -> None:
    learner: Any = Nothing()
    replay: Any = Nothing()
    work = ControlWork(learner, replay, 8, 1.0, INITIAL)
    for _ in range(150):
        work.take(step_of(1))
    while work.due():
        work.update()
    assert work.updates == 51
    work.discard(None)
    for _ in range(99):
        work.take(step_of(1))
        assert not work.due()
    work.take(step_of(1))
    assert work.due()


class FourBatches:
    """A rollout."""

    env_steps, episodes = 40, ()

    def explained_variance(self) -> Any:
        return torch.zeros(())

    def batches(self, _: int) -> int:
        return 4

    def minibatches(self, *_: object) -> Any:
        return iter([type("Batch", (), {"action": range(10)})] * 4)


class WhenFull:
    """A learner that waits with each update until as much waits as may, or until all was played: nobody can be older
    than what is played then.
    """

    order, stopped = None, False

    def __init__(self) -> None:
        self.full: Callable[[], bool] = lambda: True

    def update(self, _: object) -> Any:
        wait_until(self.full)
        return Metrics({}, torch.zeros(1))


def ages(room: int) -> list[float]:
    """Return how old the policy was at each of the 4 updates of a rollout, of 10 rollouts."""
    learner: Any = WhenFull()
    weights = [torch.zeros(1)], [torch.zeros(1)]
    trainer: Trainer[Sent] = Trainer(RolloutWork(learner, 10, 1, 1e-3, None), *weights, True, room)
    played = 0
    learner.full = lambda: trainer._queue.qsize() == room or played == 10
    rollout: Any = FourBatches()
    found: list[float] = []
    with trainer:
        while played < 10:
            trainer.renew()
            trainer.put(Sent(rollout, trainer.version))
            played += 1
        while len(found) < 40:
            time.sleep(0.001)
            trainer.check()
            found += [float(made.scalars["policy_age"]) for made in trainer.said()]
    return found


def test_a_policy_is_no_older_than_two_rollouts_and_its_own() -> None:
    """Room for one rollout; the control: with room for three it is."""
    assert 4 <= max(ages(room=1)) < 3 * 4
    assert max(ages(room=3)) >= 3 * 4
