"""A trainer in a thread: a full queue blocks, weights are of finished updates, whatever happens there is heard here."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fastdqn import process
from fastdqn.algorithms.control_work import Acted, ControlWork
from fastdqn.errors import RunError
from fastdqn.execution import trainer_thread
from fastdqn.execution.trainer_thread import ROOM, Trainer
from fastdqn.types import Made, Metrics, VectorStep


class Toy:
    """An update after every `every` items; it changes the first weight, sleeps, and changes the second."""

    def __init__(self, every: int = 1, seconds: float = 0.0, fault: BaseException | None = None) -> None:
        self.every, self.seconds, self.fault = every, seconds, fault
        self.weights = [torch.zeros(1), torch.zeros(1)]
        self.taken: list[int] = []
        self.updates = 0
        self.threads: set[str] = set()
        self.behind: list[int] = []

    def take(self, item: int) -> None:
        self.taken.append(item)

    def due(self) -> bool:
        return self.updates < len(self.taken) // self.every

    def update(self) -> Made:
        self.threads.add(threading.current_thread().name)
        if self.fault is not None:
            raise self.fault
        self.behind.append(len(self.taken) // self.every - self.updates)
        self.weights[0] += 1.0
        time.sleep(self.seconds)
        self.weights[1] += 1.0
        self.updates += 1
        return Made({"loss": torch.tensor(float(self.updates))}, 1)


def trainer_of(toy: Toy, threaded: bool = True) -> tuple[Trainer[int], list[Tensor]]:
    played_with = [torch.zeros(1), torch.zeros(1)]
    return Trainer(toy, toy.weights, played_with, threaded), played_with


def wait_until(true: Any, seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_items_come_in_order_and_updates_at_their_pace() -> None:
    toy = Toy(every=3)
    trainer, _ = trainer_of(toy)
    said: list[float] = []
    with trainer:
        for i in range(100):
            trainer.put(i)
            said += [float(one.scalars["loss"]) for one in trainer.said()]
        wait_until(lambda: toy.updates == 33)
        said += [float(one.scalars["loss"]) for one in trainer.said()]
    assert toy.taken == list(range(100))
    assert said == [float(i) for i in range(1, 34)]
    assert max(toy.behind) == 1
    assert toy.threads == {"fastdqn-trainer"}


def test_a_full_queue_blocks() -> None:
    toy = Toy(seconds=0.3)
    trainer, _ = trainer_of(toy)
    with trainer:
        begin = time.monotonic()
        for i in range(ROOM + 1):
            trainer.put(i)
        quick = time.monotonic() - begin
        assert trainer.waiting <= ROOM
        trainer.put(ROOM + 1)
        trainer.put(ROOM + 2)
        assert time.monotonic() - begin > 0.25
        assert quick < 0.25
    assert toy.taken == list(range(ROOM + 3))  # what still waits is taken at the end


def test_without_a_thread_nothing_blocks() -> None:
    """One item more than a bounded queue has room for; the control: one with that room would wait for ever."""
    toy = Toy(every=7)
    trainer, _ = trainer_of(toy, threaded=False)
    with trainer:
        for i in range(ROOM + 1):
            trainer.put(i)
        assert trainer.waiting == ROOM + 1
        assert toy.updates == 0
        rounds = 0
        while trainer.advance():
            rounds += 1
        assert (toy.updates, rounds) == (3, 3)
        assert len(trainer.said()) == 3
    assert toy.threads == {"MainThread"}


def test_taking_stops_when_an_update_is_due() -> None:
    toy = Toy(every=4)
    trainer, _ = trainer_of(toy, threaded=False)
    with trainer:
        for i in range(10):
            trainer.put(i)
        trainer.advance()
        assert (len(toy.taken), toy.updates, trainer.waiting) == (4, 1, 6)


def test_weights_are_those_of_finished_updates() -> None:
    """Read at any time, both weights are of the same update. The control: those that are learnt are not."""
    toy = Toy(seconds=0.01)
    trainer, played_with = trainer_of(toy)
    torn = 0
    seen: set[float] = set()
    with trainer:
        for i in range(60):
            trainer.put(i)
            trainer.renew()
            assert float(played_with[0]) == float(played_with[1])
            seen.add(float(played_with[0]))
            torn += float(toy.weights[0]) != float(toy.weights[1])
            time.sleep(0.004)
    assert torn > 0
    assert len(seen) > 5


@pytest.mark.parametrize("fault", [ValueError("the toy trainer broke"), RunError("The toy trainer has had enough.")])
def test_what_ends_the_thread_is_raised_here(fault: BaseException) -> None:
    toy = Toy(fault=fault)
    trainer, _ = trainer_of(toy)

    def play() -> None:
        with trainer:
            for i in range(10_000):
                trainer.put(i)
                trainer.said()
                time.sleep(0.001)

    with pytest.raises(type(fault), match=str(fault)):
        play()
    assert len(toy.taken) < 1_000
    with pytest.raises(type(fault), match=str(fault)):
        trainer.said()  # whoever has caught it does not go on


def test_a_fault_of_the_last_update_is_raised_at_the_end() -> None:
    toy = Toy(fault=ValueError("the toy trainer broke"))
    trainer, _ = trainer_of(toy)
    with pytest.raises(ValueError, match="broke"), trainer:
        trainer.put(0)
        wait_until(lambda: toy.threads)


def test_for_a_checkpoint_it_stands_and_has_taken_what_waits() -> None:
    toy = Toy(seconds=0.02)
    trainer, _ = trainer_of(toy)
    with trainer:
        for i in range(10):
            trainer.put(i)
        state = trainer.state()
        updates, unsaid = toy.updates, len(state["unsaid"])
        assert toy.taken == list(range(10))
        assert unsaid == updates < 10
        time.sleep(0.1)
        assert toy.updates == updates
        trainer.put(10)  # on it goes
        wait_until(lambda: toy.updates == 11)
    assert len(trainer.said()) == 11


def test_it_is_joined_before_anything_is_saved() -> None:
    toy = Toy(seconds=0.2)
    trainer, _ = trainer_of(toy)
    with trainer:
        trainer.put(0)
        wait_until(lambda: float(toy.weights[0]) == 1.0)
    assert float(toy.weights[1]) == 1.0  # the update that it was at is whole
    assert not trainer._thread.is_alive()


def test_one_that_does_not_end_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer_thread, "JOIN_SECONDS", 0.1)
    toy = Toy(seconds=1.0)
    trainer, _ = trainer_of(toy)
    with pytest.raises(RunError, match=r"^The trainer has not finished its update within 0\.1 seconds\.$"), trainer:
        trainer.put(0)
        wait_until(lambda: float(toy.weights[0]) == 1.0)
    trainer._thread.join()


def test_a_signal_frees_whoever_waits_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    toy = Toy(seconds=0.5)
    trainer, _ = trainer_of(toy)
    with trainer:
        for i in range(ROOM + 1):
            trainer.put(i)
        monkeypatch.setattr(process, "_first", 2)
        for i in range(ROOM + 1, ROOM + 4):
            trainer.put(i)
        assert toy.updates <= 2
    assert toy.taken == list(range(ROOM + 4))


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


def step_of(games: int, resets: int = 0) -> Acted:
    reset = np.arange(games) < resets
    none = np.zeros(games, bool)
    zeros = np.zeros((games, 1), np.float32)
    return Acted(zeros, VectorStep(zeros, zeros[:, 0], none, none, reset, ()))


@pytest.mark.parametrize("threaded", [True, False])
@pytest.mark.parametrize("every", [10.0, 1.0, 0.25])
@pytest.mark.parametrize("games", [1, 4, 16])
def test_updates_keep_to_the_pace(games: int, every: float, threaded: bool) -> None:
    """Of the steps that were taken, resets left out; nothing is made up for after the first env steps."""
    learner: Any = Nothing()
    replay: Any = Nothing()
    work = ControlWork(learner, replay, 8, every, 100)
    trainer: Trainer[Acted] = Trainer(work, [], [], threaded)
    made: list[int] = []
    with trainer:
        for i in range(40):
            trainer.put(step_of(games, resets=i % 2))
            while trainer.advance():
                pass
            made.append(len(trainer.said()))
        env_steps = 40 * games - 20
        expected = max(0, int((env_steps - 99) / every))
        wait_until(lambda: learner.updates >= expected)
    assert learner.updates == work.updates == expected
    if not threaded:
        assert max(made) <= games / every + 1  # no burst


def test_who_leaves_the_replay_out_begins_to_count_anew() -> None:
    learner: Any = Nothing()
    replay: Any = Nothing()
    work = ControlWork(learner, replay, 8, 1.0, 100)
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


@pytest.mark.parametrize("threaded", [True, False])
def test_it_learns_while_an_environment_waits(threaded: bool) -> None:
    """40 steps of 10 ms and as many updates of 10 ms: at least 1.5 times as fast as one after the other."""
    toy = Toy(seconds=0.01)
    trainer, _ = trainer_of(toy, threaded)
    begin = time.monotonic()
    with trainer:
        for i in range(40):
            time.sleep(0.01)
            trainer.put(i)
            while trainer.advance():
                pass
        wait_until(lambda: toy.updates == 40)
        seconds = time.monotonic() - begin
    assert seconds < 0.8 / 1.5 if threaded else seconds > 0.8


def test_several_trainers_are_a_list() -> None:
    toys = [Toy(), Toy(every=2)]
    trainers = [trainer_of(toy)[0] for toy in toys]
    with trainers[0], trainers[1]:
        for i in range(50):
            for trainer in trainers:
                trainer.put(i)
        wait_until(lambda: [toy.updates for toy in toys] == [50, 25])
