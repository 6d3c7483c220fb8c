"""What the child processes of a test do; the child imports it from here."""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from fastdqn.errors import RunError
from fastdqn.execution.child import Outbox


def count(first: int, last: int, outbox: Outbox) -> None:
    """Send the numbers from `first` up to `last`, and leave."""
    for number in range(first, last + 1):
        outbox.put(number)


def count_until_asked(outbox: Outbox) -> None:
    """Send 0, 1, 2, ... until the parent wants no more."""
    number = 0
    while not outbox.asked_to_stop():
        outbox.put(number)
        number += 1


def count_and_fail(last: int, outbox: Outbox) -> None:
    """Send the numbers up to `last`, and fail."""
    count(0, last, outbox)
    raise ValueError("the toy work broke as it was told to")


def count_and_say_why(last: int, reason: type[Exception], outbox: Outbox) -> None:
    """Send the numbers up to `last`, and fail for a reason that is a sentence."""
    count(0, last, outbox)
    raise reason("The toy ran out of numbers.")


def fail_at_length(length: int, outbox: Outbox) -> None:
    """Send a number, and fail with a text of so many letters."""
    outbox.put(0)
    raise RunError("x" * length)


def clean_up_and_fail(place: Path, outbox: Outbox) -> None:
    """Fail with something to be done at the end, as an environment has whose programs are to be ended."""
    atexit.register(place.touch)
    count(0, 0, outbox)
    raise ValueError("the toy work broke as it was told to")


def count_and_leave(code: int, outbox: Outbox) -> None:
    """Send a number, and leave with an exit code before anybody knows."""
    outbox.put(0)
    time.sleep(0.5)
    os._exit(code)


def count_and_hang(outbox: Outbox) -> None:
    """Send a number, and neither send nor listen any more."""
    outbox.put(0)
    time.sleep(3600)


def count_late(seconds: float, outbox: Outbox) -> None:
    """Send a number after so many seconds."""
    time.sleep(seconds)
    outbox.put(0)


def measure(outbox: Outbox) -> None:
    """Send a number, then the length of each request's value until asked to stop."""
    outbox.put(0)
    while (request := outbox.request(wait=True)) is not None and request.kind != "stop":
        outbox.put(len(request.value))


def start_and_terminate(outbox: Outbox) -> None:
    """Start a program, ask it to end, and say with which code it did."""
    program = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(20)"])
    program.terminate()
    outbox.put(program.wait(30))


def describe(variable: str, outbox: Outbox) -> None:
    """Send a variable of the environment, a random number, the signals that are blocked, and what SIGTERM does."""
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    outbox.put((os.environ.get(variable), np.random.random(), blocked, signal.getsignal(signal.SIGTERM)))


def hold(megabytes: int, outbox: Outbox) -> None:
    """Hold so much memory until asked to leave."""
    held = b"1" * (megabytes << 20)
    outbox.put(len(held))
    outbox.request(wait=True)
