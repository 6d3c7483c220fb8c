"""A script whose environment has a process of its own, which gets what a terminal sends and is then ended.

python tests/helpers/simulators.py METHOD
"""

import multiprocessing
import os
import signal
import sys
import time
from typing import Any

import fastdqn.cli.begin  # noqa: F401 - first
from fastdqn import process


def simulate(ready: Any) -> None:
    """Be there for a while."""
    ready.set()
    time.sleep(60.0)


def outcome(method: str) -> str:
    """Return what becomes of the simulator at Ctrl-C and when the terminal is closed, and when it is ended."""
    context: Any = multiprocessing.get_context(method)
    ready = context.Event()
    simulator = context.Process(target=simulate, args=(ready,))
    simulator.start()
    assert ready.wait(60.0)
    for number in (signal.SIGINT, signal.SIGHUP):
        os.kill(simulator.pid, number)
    simulator.join(0.5)
    said = "alive" if simulator.is_alive() else "gone"
    simulator.terminate()
    simulator.join(10.0)
    code = simulator.exitcode
    simulator.kill()
    return f"{said}, ended by {code}"


if __name__ == "__main__":
    with process.running():
        print(outcome(sys.argv[1]))
