"""Work in the background: all of it is done once, beside the caller or with its help."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

import pytest
import torch

from fastdqn.execution.background import Background
from fastdqn.execution.devices import flush_denormals

pytestmark = pytest.mark.usefixtures("one_torch_thread")


def test_pieces_are_done_while_the_caller_does_something_else() -> None:
    go, done = threading.Event(), threading.Semaphore(0)
    where: list[tuple[int, int, int]] = []

    def piece(number: int) -> None:
        assert go.wait(20)
        where.append((number, threading.get_ident(), torch.get_num_threads()))
        done.release()

    wait = Background(2).start([partial(piece, number) for number in range(3)])
    assert not where
    go.set()
    for _ in range(3):
        assert done.acquire(timeout=20)
    wait()
    numbers, threads, torch_threads = zip(*where, strict=True)
    assert numbers == (0, 1, 2)
    assert set(torch_threads) == {1}
    assert threading.get_ident() not in threads


def test_who_waits_does_what_is_left() -> None:
    helped, done = threading.Event(), list[int]()

    def first() -> None:
        assert helped.wait(20)
        done.append(0)

    def other(number: int) -> None:
        done.append(number)
        helped.set()

    begun = threading.Event()
    background = Background(2)
    background.start([begun.set])
    wait = background.start([first, *(partial(other, number) for number in range(1, 5))])
    assert begun.wait(20)
    wait()
    assert sorted(done) == list(range(5))


def test_who_has_done_all_does_not_wait_for_a_thread_that_is_busy() -> None:
    begun, go, done = threading.Event(), threading.Event(), list[int]()

    def first() -> None:
        begun.set()
        assert go.wait(20)

    background = Background(2)
    wait_for_first = background.start([first])
    assert begun.wait(20)
    background.start([lambda: done.append(threading.get_ident())])()
    assert done == [threading.get_ident()]
    go.set()
    wait_for_first()


@pytest.mark.parametrize(("cores", "torch_threads"), [(1, 1), (2, 2)])
def test_elsewhere_all_is_done_at_once_by_the_caller(cores: int, torch_threads: int) -> None:
    torch.set_num_threads(torch_threads)
    threads: list[int] = []
    wait = Background(cores).start([lambda: threads.append(threading.get_ident())] * 3)
    assert threads == [threading.get_ident()] * 3
    wait()
    assert len(threads) == 3


@pytest.mark.parametrize("place", [0, 4])
def test_what_a_piece_raises_is_raised_by_waiting(place: int) -> None:
    done: list[int] = []

    def piece(number: int) -> None:
        if number == place:
            raise ValueError(number)
        done.append(number)

    pieces: list[Callable[[], None]] = [partial(piece, number) for number in range(5)]
    with pytest.raises(ValueError, match=str(place)):
        Background(2).start(pieces)()


def test_what_was_raised_is_raised_again() -> None:
    """By whoever waits once more, for what is missing, here of what the caller did itself."""
    background, go, begun = Background(2), threading.Event(), threading.Event()

    def busy() -> None:
        begun.set()
        assert go.wait(20)

    def failing() -> None:
        raise MemoryError

    background.start([busy])
    assert begun.wait(20)
    wait = background.start([failing])
    for _ in range(2):
        with pytest.raises(MemoryError):
            wait()
    go.set()


def test_on_exit_what_nobody_waits_for_is_left_undone() -> None:
    begun, go = threading.Event(), threading.Event()
    done: list[int] = []

    def piece(number: int) -> None:
        begun.set()
        assert go.wait(20)
        done.append(number)

    with Background(2) as background:
        for first in (0, 5, 10):
            background.start([partial(piece, number) for number in range(first, first + 5)])
        assert begun.wait(20)
        threading.Timer(0.2, go.set).start()
    assert done == [0]


def test_tiny_numbers_are_zero_in_the_background_too() -> None:
    tiny = torch.full((64,), 1e-39)
    torch.set_flush_denormal(False)
    assert (tiny * 1.0).ne(0).all()
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot")
    flush_denormals()
    seen: list[tuple[int, bool]] = []
    started = threading.Event()

    def piece() -> None:
        seen.append((threading.get_ident(), bool((tiny * 1.0).ne(0).any())))
        started.set()

    wait = Background(2).start([piece])
    assert started.wait(20)
    wait()
    ((thread, found),) = seen
    assert thread != threading.get_ident()
    assert not found
