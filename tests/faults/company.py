"""What happens around a run: a second process, a clock that is set, a terminal that is closed, a folder that goes."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.faults.table import SETTINGS, Row, Tally, a_sentence, script, try_all, whole_run
from tests.helpers.scripts import ROOT, hear_hangups, records, summary

ENDLESS = (*SETTINGS, "--max-env-steps", "None", "--stop-score", "None")
PLAYER = (
    *("--game", "tests.helpers.toys:Counter", "--batch-size", "4", "--replay-initial", "50", "--replay-size", "5000"),
    *("--max-env-steps", "None", "--stop-score", "None", "--checkpoint-minutes", "None", "--log-seconds", "1000"),
)
SCRIPTS = (("09_cuda_graph", ENDLESS), ("03_parallel", PLAYER), ("01_baseline", PLAYER))
NAMES = tuple(name for name, _ in SCRIPTS)
LATE = 15.0  # seconds in which a run has to end
STEP = """
import runpy, sys, time
by, real, began = float(sys.argv[1]), time.time, time.monotonic()
time.time = lambda: real() + (by if time.monotonic() - began > 4.0 else 0.0)
sys.argv = sys.argv[2:]
sys.path.insert(0, sys.argv[0].rpartition("/")[0])
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs a script whose wall clock is set after four seconds, by so many."""
LIMIT = 8.0  # seconds that such a run is to take


def two_at_once(folder: Path, count: int) -> Tally:
    """Resume a run while it is going on, and from two processes at the same moment: one of them has it."""

    def while_going_on(number: int) -> str | None:
        runs = folder / f"on-{number}"
        words = (*ENDLESS, "--checkpoint-env-steps", "50")
        with _going_on("09_cuda_graph", runs, *words) as (process, run):
            _wait(lambda: list(run.glob("checkpoints/*.checkpoint")))
            wrong = a_sentence(script("--resume", str(run)), (2,))
            goes_on = process.poll() is None
        return wrong or (None if goes_on else "the run itself was disturbed")

    def at_the_same_moment(number: int) -> str | None:
        run = whole_run(folder / f"same-{number}", 100)
        path = str(ROOT / "experiments" / "09_cuda_graph.py")
        words = [sys.executable, path, "--resume", str(run), "--max-env-steps", "600"]
        both = [
            subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for _ in range(2)
        ]
        ends = [(*process.communicate(timeout=120), process.returncode) for process in both]
        refused = [err for _, err, code in ends if code == 2 and "is still going on, in process" in err]
        if sorted(code for _, _, code in ends) != [0, 2] or len(refused) != 1:
            return f"exit codes {[code for _, _, code in ends]}: {[err[-200:] for _, err, _ in ends]}"
        env_steps = [line["env_steps"] for line in records(run, "speed.jsonl")]
        return None if env_steps == sorted(env_steps) else "their logs are mixed"

    trials: list[Callable[[], str | None]] = []
    for i in range(count):
        trials.append(partial((while_going_on, at_the_same_moment)[i % 2], i))
    return try_all(trials, at_once=1)


def stepped_clocks(folder: Path, count: int) -> Tally:
    """Set the wall clock by an hour or a day, forwards and back, in the middle of a run that has a time limit."""

    def trial(number: int, by: float) -> str | None:
        runs = folder / f"{number}"
        words = (*ENDLESS, "--max-minutes", str(LIMIT / 60.0), "--runs-dir", str(runs))
        began = time.monotonic()
        done = script(*words, before=("-c", STEP, str(by)))
        took = time.monotonic() - began
        if done.returncode:
            return f"by {by:g} s: {done.stderr[-300:]}"
        (run,) = runs.iterdir()
        said = summary(run)
        right = said["reason"] == "max-minutes" and LIMIT <= said["elapsed"] <= took < LIMIT + LATE
        return None if right else f"by {by:g} s: {said['reason']} after {said['elapsed']} s, which took {took:.1f} s"

    steps = (3600.0, -3600.0, 86_400.0, -86_400.0)
    return try_all([partial(trial, i, steps[i % len(steps)]) for i in range(count)])


def closed_terminals(folder: Path, count: int) -> Tally:
    """Close the terminal of a run, or the pipe that it prints to, or close its terminal when it runs under nohup."""

    def hung_up(number: int, script_name: str, words: tuple[str, ...]) -> str | None:
        with _going_on(script_name, folder / f"{number}", *words, terminal=True) as (process, run):
            os.close(_TERMINALS.pop(process.pid))  # the system sends SIGHUP, and whatever is printed fails
            code = process.wait(LATE)
        reason = summary(run)["reason"]
        if code != 128 + signal.SIGHUP or reason != "interrupted" or not list(run.glob("checkpoints/*.checkpoint")):
            return f"{script_name}: exit code {code}, {reason}, {[path.name for path in run.rglob('*.checkpoint')]}"
        return None

    def unread(number: int, script_name: str, words: tuple[str, ...]) -> str | None:
        with _going_on(script_name, folder / f"{number}", *words, "--log-seconds", "0.1", pipe=True) as (process, run):
            assert process.stdout is not None
            process.stdout.close()
            return _goes_on(process, run, script_name)

    def under_nohup(number: int, script_name: str, words: tuple[str, ...]) -> str | None:
        with _going_on(script_name, folder / f"{number}", *words, nohup=True) as (process, run):
            os.killpg(process.pid, signal.SIGHUP)
            return _goes_on(process, run, script_name)

    ways = (hung_up, unread, under_nohup)
    return try_all([partial(ways[i % 3], i, *SCRIPTS[i // 3 % 3]) for i in range(count)], at_once=1)


def deleted_folders(folder: Path, count: int) -> Tally:
    """Remove the folder of a run that is going on: it ends with one sentence, soon."""

    def trial(number: int, script_name: str, words: tuple[str, ...]) -> str | None:
        with _going_on(script_name, folder / f"{number}", *words) as (process, run):
            shutil.rmtree(run)
            _, err = process.communicate(timeout=LATE)
        wrong = a_sentence(subprocess.CompletedProcess([], process.returncode, "", err), (1,))
        return f"{script_name}: {wrong}" if wrong else None

    return try_all([partial(trial, i, *SCRIPTS[i % 3]) for i in range(count)], at_once=1)


_TERMINALS: dict[int, int] = {}
"""The other ends of the terminals of processes, by the numbers of these."""


@contextlib.contextmanager
def _going_on(
    script_name: str, runs: Path, *words: str, terminal: bool = False, pipe: bool = False, nohup: bool = False
):  # type: ignore[no-untyped-def]
    """Start a script, wait until it trains, yield its process and its folder; kill what is left of it."""
    path = str(ROOT / "experiments" / f"{script_name}.py")
    out = subprocess.PIPE if pipe else subprocess.DEVNULL
    streams = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": subprocess.PIPE}
    if terminal:
        import pty

        ours, theirs = pty.openpty()
        streams = dict.fromkeys(streams, theirs)

    def begin() -> None:
        hear_hangups()
        if terminal:
            import fcntl
            import termios

            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    command = ["nohup"] if nohup else []
    process = subprocess.Popen(
        [*command, sys.executable, path, "--runs-dir", str(runs), *words],
        cwd=ROOT,
        text=True,
        start_new_session=True,
        preexec_fn=begin,
        **streams,
    )
    if terminal:
        os.close(theirs)
        _TERMINALS[process.pid] = ours
        os.set_blocking(ours, False)
    try:
        _wait(lambda: _updates(runs) > 3, process)
        (run,) = runs.iterdir()
        yield process, run
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        with contextlib.suppress(KeyError):
            os.close(_TERMINALS.pop(process.pid))


def _goes_on(process: subprocess.Popen[str], run: Path, name: str) -> str | None:
    """Return what is wrong unless the run trains on, and ends well when it is asked to."""
    before = _updates(run.parent)
    time.sleep(3.0)
    if process.poll() is not None:
        return f"{name}: it ended with {process.returncode}"
    if _updates(run.parent) <= before:
        return f"{name}: it stands still"
    os.kill(process.pid, signal.SIGTERM)
    code = process.wait(LATE)
    return None if code == 128 + signal.SIGTERM and summary(run)["reason"] == "interrupted" else f"{name}: {code}"


def _updates(runs: Path) -> int:
    (run,) = runs.iterdir()
    return records(run, "speed.jsonl")[-1]["updates"]


def _wait(until: Callable[[], object], process: subprocess.Popen[str] | None = None) -> None:
    end = time.monotonic() + 90.0
    while True:
        with contextlib.suppress(OSError, ValueError, IndexError):
            if until():
                return
        assert process is None or process.poll() is None, f"it ended with {process.returncode}"
        assert time.monotonic() < end, "it took too long"
        if process is not None and process.pid in _TERMINALS:
            with contextlib.suppress(OSError):
                os.read(_TERMINALS[process.pid], 65_536)  # a terminal that nobody reads is full one day
        time.sleep(0.05)


ROWS = (
    Row("two processes, one run", "one has it, the other one is refused", 10, 1, two_at_once),
    Row("a clock that is set", "time limits hold", 4, 1, stepped_clocks),
    Row("a closed terminal or pipe", "a checkpoint and exit code 129, or it goes on", 9, 1, closed_terminals, NAMES),
    Row("a deleted folder", "a one-line error, soon", 6, 1, deleted_folders, NAMES),
)
