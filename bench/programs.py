"""Programs that a bench runs: those that it times, and those that keep the machine busy meanwhile."""

from __future__ import annotations

from fastdqn.process import programs, signals_held

import contextlib
import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

import psutil

from fastdqn.errors import RunError, UserError

ROOT = Path(__file__).resolve().parent.parent


def said_by(command: Sequence[str], name: str, limit: float | None = None) -> str:
    """Run a command, and what it starts, for at most `limit` seconds; return what it has printed.

    Raises:
        RunError: it failed, or took longer.
    """
    with signals_held():
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
        programs.append(process)  # Ctrl-C ends this process at once, and them
    try:
        out, err = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        raise RunError(f"{name} had not ended after {limit:g} s.") from None
    finally:
        if process.returncode is None:
            for started in (*psutil.Process(process.pid).children(recursive=True), process):
                with contextlib.suppress(psutil.NoSuchProcess):
                    started.kill()
            process.communicate()
        programs.remove(process)
    if process.returncode != 0:
        raise RunError(f"{name} failed with exit code {process.returncode}:\n{err.strip()}")
    return out


@contextlib.contextmanager
def busy_processes(count: int) -> Generator[None]:
    """Let `count` processes compute all the time, until the block is left."""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(count):
            with signals_held():
                processes.append(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
                programs.append(processes[-1])
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()
            programs.remove(process)


def exit_code(work: Callable[[], int]) -> int:
    """Return the exit code of `work`; what goes wrong in it is one sentence."""
    try:
        return work()
    except (UserError, RunError) as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"error: {where}{error.strerror or error}.", file=sys.stderr)
        return 1
