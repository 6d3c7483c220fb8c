"""A trainer in a thread: a full queue blocks, weights are of finished updates, whatever happens there is heard here."""

from __future__ import annotations

import queue
import threading
import time

import psutil
import pytest
import torch
from torch import Tensor

from fastdqn import process
from fastdqn.errors import RunError
from fastdqn.execution import trainer_thread
from fastdqn.execution.trainer_thread import ROOM, Trainer
from fastdqn.types import Made
from tests.helpers.waiting import wait_until


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
        assert trainer._queue.qsize() <= ROOM
        trainer.put(ROOM + 1)
        trainer.put(ROOM + 2)
        assert time.monotonic() - begin > 0.25
    assert toy.taken == list(range(ROOM + 3))  # what still waits is taken at the end


def test_without_a_thread_nothing_blocks() -> None:
    """One item more than a bounded queue has room for."""
    toy = Toy(every=7)
    trainer, _ = trainer_of(toy, threaded=False)
    with trainer:
        for i in range(ROOM + 1):
            trainer.put(i)
        assert trainer._queue.qsize() == ROOM + 1
        assert toy.updates == 0
        rounds = 0
        while trainer.advance():
            rounds += 1
        assert (toy.updates, rounds) == (3, 3)
        assert len(trainer.said()) == 3
    assert toy.threads == {"MainThread"}


def test_without_a_thread_a_bounded_queue_would_wait_for_ever() -> None:
    """The control of the test above: with the room that a thread has, until somebody else takes an item."""
    toy = Toy(every=7)
    trainer, _ = trainer_of(toy, threaded=False)
    trainer._queue = queue.Queue(maxsize=ROOM)
    with trainer:
        for i in range(ROOM):
            trainer.put(i)
        puts = threading.Thread(target=trainer.put, args=(ROOM,), daemon=True)
        puts.start()
        puts.join(10.0 * trainer_thread.POLL_SECONDS)
        assert puts.is_alive()
        assert trainer._queue.qsize() == ROOM
        trainer.advance()
        puts.join(10.0)
        assert not puts.is_alive()
    assert toy.taken == list(range(ROOM + 1))


def test_taking_stops_when_an_update_is_due() -> None:
    toy = Toy(every=4)
    trainer, _ = trainer_of(toy, threaded=False)
    with trainer:
        for i in range(10):
            trainer.put(i)
        trainer.advance()
        assert (len(toy.taken), toy.updates, trainer._queue.qsize()) == (4, 1, 6)


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
        trainer.put(0)  # whoever has caught it does not go on


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


def test_a_checkpoint_waits_for_a_long_update(monkeypatch: pytest.MonkeyPatch) -> None:
    """But after a signal, which is not to take for ever."""
    monkeypatch.setattr(trainer_thread, "JOIN_SECONDS", 0.1)
    toy = Toy(seconds=0.8)
    trainer, _ = trainer_of(toy)
    with trainer:
        trainer.put(0)
        wait_until(lambda: float(toy.weights[0]) == 1.0)
        assert len(trainer.state()["unsaid"]) == 1
        trainer.put(1)
        wait_until(lambda: float(toy.weights[0]) == 2.0)
        monkeypatch.setattr(process, "_first", 2)
        with pytest.raises(RunError, match=r"has not finished its update within 0\.1 seconds"):
            trainer.state()
        wait_until(lambda: float(toy.weights[1]) == 2.0)


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


class Computing(Toy):
    """Its updates are computed outside Python's lock, by products of matrices."""

    def __init__(self, rounds: int) -> None:
        super().__init__()
        self.rounds = rounds
        self.computing = 0.0  # seconds
        self.begun = 0  # threads, by updates
        self._matrix, self._product = torch.rand(128, 128), torch.zeros(128, 128)

    def update(self) -> Made:
        begin, threads = time.perf_counter(), psutil.Process().num_threads()
        for _ in range(self.rounds):
            torch.mm(self._matrix, self._matrix, out=self._product)
        self.computing += time.perf_counter() - begin
        self.begun += psutil.Process().num_threads() - threads
        return super().update()


@pytest.mark.usefixtures("one_torch_thread")
def test_its_pytorch_has_as_many_threads_as_elsewhere() -> None:
    """Where PyTorch has one, no update begins others. The control: in a thread that does not ask for that it does."""
    control, toy = Computing(4), Computing(4)
    bare = threading.Thread(target=control.update)
    bare.start()
    bare.join()
    if not control.begun:
        pytest.skip("PyTorch has one thread anyway")
    trainer, _ = trainer_of(toy)
    with trainer:
        trainer.put(0)
        wait_until(lambda: toy.updates == 1)
    assert toy.begun <= 0


def at_once(threaded: bool) -> tuple[float, bool]:
    """Return how much goes on at once, of waiting for an environment and of updates that take as long: 1 for one after
    the other, 2 for always both; and whether less than half a core was free meanwhile. What an update takes is measured
    now, and what it took counts.
    """
    tried = Computing(1)
    while tried.computing < 0.01:
        tried = Computing(2 * tried.rounds)
        tried.update()
    pause, toy = tried.computing, Computing(tried.rounds)
    trainer, _ = trainer_of(toy, threaded)
    begin, idle = time.perf_counter(), psutil.cpu_times().idle
    with trainer:
        for i in range(20):
            time.sleep(pause)
            trainer.put(i)
            while trainer.advance():
                pass
        wait_until(lambda: toy.updates == 20, 60.0)
        seconds = time.perf_counter() - begin
    return (20 * pause + toy.computing) / seconds, psutil.cpu_times().idle - idle < 0.5 * seconds


@pytest.mark.usefixtures("one_torch_thread")
def test_it_learns_while_an_environment_waits() -> None:
    """At least 1.5 times as much as one after the other, which is what a trainer without a thread does."""
    assert at_once(threaded=False)[0] <= 1.0
    turns: list[tuple[float, bool]] = []
    while len(turns) < 8 and (not turns or turns[-1][0] < 1.5):
        turns.append(at_once(threaded=True))
    if turns[-1][0] < 1.5 and all(crowded for _, crowded in turns):
        pytest.skip("others use the cores, so that times mean nothing")
    assert max(gain for gain, _ in turns) >= 1.5


def test_several_trainers_are_a_list() -> None:
    toys = [Toy(), Toy(every=2)]
    trainers = [trainer_of(toy)[0] for toy in toys]
    with trainers[0], trainers[1]:
        for i in range(50):
            for trainer in trainers:
                trainer.put(i)
        wait_until(lambda: [toy.updates for toy in toys] == [50, 25])
