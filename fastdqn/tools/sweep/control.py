"""All runs of a sweep: which are left, several at a time, what has come of them, and how to continue."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import filelock

from fastdqn import process
from fastdqn.errors import RunError, UserError, counted
from fastdqn.runs.folder import process_named, refuse_links, remove_unfinished, write_json
from fastdqn.terminal import complain, console, typed
from fastdqn.tools.sweep.jobs import STOP_SECONDS, Job, Outcome
from fastdqn.tools.sweep.plan import RUNNING, Task, atari_26, read_plan, write_plan
from fastdqn.tools.sweep.results import FOLDER as RESULTS
from fastdqn.tools.sweep.results import found_in, median_minutes, write_result
from fastdqn.tools.sweep.show import Shown

LOCK = "sweep.lock"
RUNS = "runs"
RETRIES = 3
"""How often a run is resumed whose process was killed, before it counts as failed."""
_PROBE_BYTES = 65_536
_LOOK_SECONDS = 0.5


class Engine(Protocol):
    """Runs jobs somewhere, several at once; a context manager that stops what is going on at its end."""

    at_once: int

    def __enter__(self) -> Engine: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def submit(self, job: Job) -> Future[Outcome]:
        """Run a job as soon as there is room for it."""
        ...

    def running(self) -> dict[str, tuple[float, float]]:
        """Return the names of the jobs that are going on, for how many seconds each has been, and which share of its
        env steps it has made.
        """
        ...


def run_sweep(
    folder: Path,
    path: Path,
    tasks: Sequence[Task],
    engine: Callable[[], Engine],
    check: Callable[[Sequence[Task]], None],
    keep_checkpoints: bool,
) -> int:
    """Do every run that has no result yet, and write what comes of it into `folder`.

    Args:
        folder: of the sweep.
        path: of the script.
        tasks: what is to be run.
        engine: makes what runs them, once it is known that something is left.
        check: raises UserError for those without a result if one of them would be refused.
        keep_checkpoints: of runs that have ended, too.

    Returns:
        0 after all have ended well, 1 if some have failed, 128 + its number after a signal.

    Raises:
        UserError: another process is at this sweep, the folder has one of another script, or there are links in it.
        RunError: the folder cannot be written to.
    """
    script = path.stem
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--into {folder} is a file; name a folder.")
    missing = [task for task in tasks if not (folder / RESULTS / f"{task.name}.json").exists()]
    if missing:
        check(missing)  # before they are planned, and before there is a folder: what is refused is no part of the sweep
    with saving(folder), process.running():
        folder.mkdir(parents=True, exist_ok=True)
        refuse_links((*folder.glob("*"), *folder.glob(".probe"), *(folder / RESULTS).glob("*")))
        with only_one(folder):
            for place in (folder, folder / RESULTS):  # of a sweep that was killed
                remove_unfinished(place)
            planned = read_plan(folder) is not None
            note = write_plan(folder, script, tasks) if planned else None
            found = found_in(folder, script, tasks, planned)
            note = note if planned else write_plan(folder, script, tasks)
            for sentence in (*([note] if note else []), *found.notes):
                complain(f"{sentence}.")
            left = [task for task in tasks if task.name not in found.results]
            out = console()
            said = f"{counted(len(tasks), 'run')} of {script} in {folder}"
            out.print(f"{said}: {len(tasks) - len(left):,} with a result, {len(left):,} left", soft_wrap=True)
            failed: dict[str, str] = {}
            if left:
                jobs = [Job(script, path, task, folder / RUNS / task.name, keep_checkpoints) for task in left]
                with engine() as workers:
                    failed, stopped = _do(folder, jobs, found.results, workers)
                _say_killed(stopped)
            return _end(folder, tasks, found.results, failed)


@contextlib.contextmanager
def only_one(folder: Path) -> Generator[None]:
    """Let this process be the only one at the sweep in `folder`.

    Raises:
        UserError: another one is.
    """
    lock = filelock.FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout as error:
        raise UserError(f"The sweep {folder} is going on already, in {process_named(folder / RUNNING)}.") from error
    try:
        write_json(folder / RUNNING, {"pid": os.getpid(), "host": socket.gethostname()})
        yield
    finally:
        with contextlib.suppress(OSError):
            (folder / RUNNING).unlink()
        lock.release()


@contextlib.contextmanager
def saving(folder: Path) -> Generator[None]:
    """Turn an error of the file system into one sentence.

    Raises:
        RunError: something cannot be written.
    """
    try:
        yield
    except OSError as error:
        raise RunError(
            f"Cannot write to {folder}: {error.strerror or error}; the sweep has ended, nothing is lost: once that is "
            "mended, the same command continues."
        ) from error


def _do(
    folder: Path, jobs: Sequence[Job], results: dict[str, dict[str, Any]], workers: Engine
) -> tuple[dict[str, str], list[Future[Outcome]]]:
    """Do `jobs`, add to `results`, and return the last line of each run that has failed, and what is not done yet after
    a signal.

    Raises:
        OSError: the folder cannot be written to.
    """
    failed: dict[str, str] = {}
    killed = dict.fromkeys((job.task.name for job in jobs), 0)
    waiting: dict[Future[Outcome], Job] = {}
    with Shown(len(jobs)) as shown:
        for job in jobs:
            waiting[workers.submit(job)] = job
        while waiting and not process.stop_signal():
            done, _ = wait(waiting, _LOOK_SECONDS, FIRST_COMPLETED)
            for future in done:
                job = waiting.pop(future)
                outcome = future.result()
                name = outcome.name
                if outcome.anew is not None:
                    shown.say(f"{name}: it began anew, as its checkpoints cannot be resumed: {outcome.anew}")
                if outcome.result is not None:
                    write_result(folder, outcome.result)
                    results[name] = outcome.result
                    shown.ended(outcome.result)
                elif _was_killed(outcome.code) and not process.stop_signal() and killed[name] < RETRIES:
                    killed[name] += 1
                    shown.say(f"{name}: its process was killed; it is resumed")
                    waiting[workers.submit(job)] = job
                elif not process.stop_signal():
                    _probe(folder)  # a full disk ends the sweep, not one run after the other
                    failed[name] = outcome.last_line or f"exit code {outcome.code}"
                    shown.failed(name, failed[name])
            shown.update(workers.running(), median_minutes(results.values()), len(waiting), workers.at_once)
        if waiting:
            shown.say("the runs that are going on write their checkpoints")
    return failed, list(waiting)


def _say_killed(stopped: Sequence[Future[Outcome]]) -> None:
    """Name the runs that were asked to stop, and did not within the time that they had."""
    for future in stopped:
        if future.done() and not future.cancelled() and future.exception() is None:
            outcome = future.result()
            if outcome.code == -signal.SIGKILL:
                complain(f"{outcome.name}: it had not stopped after {STOP_SECONDS:g} seconds, and was killed.")


def _was_killed(code: int) -> bool:
    """Tell whether an exit code is that of a process which a signal ended, and no fault of its own."""
    return code < 0 or code > 128


def _probe(folder: Path) -> None:
    """Raise OSError if nothing more can be written into `folder`."""
    path = folder / ".probe"
    try:
        path.write_bytes(bytes(_PROBE_BYTES))
    finally:
        path.unlink(missing_ok=True)


def _end(folder: Path, tasks: Sequence[Task], results: dict[str, dict[str, Any]], failed: dict[str, str]) -> int:
    """Say how the sweep has ended; return the exit code."""
    out = console()
    done = sum(task.name in results for task in tasks)
    if process.stop_signal():
        said = f"stopped with {done} of {counted(len(tasks), 'run')} done; the same command continues where they were"
        out.print(said, soft_wrap=True)
        return process.exit_code()
    for name, why in failed.items():
        complain(f"failed: {name}: {why.removeprefix('error: ')}")
    if failed:
        complain(
            f"error: {len(failed)} of {counted(len(tasks), 'run')} failed, {done} with a result; what they printed is "
            f"in {folder / RUNS}; the same command tries them again."
        )
        return 1
    out.print(f"{counted(len(tasks), 'run')}, all with a result{_what_shows(folder, results)}", soft_wrap=True)
    return 0


def _what_shows(folder: Path, results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return by which command the results can be looked at, if there is one."""
    evaluated = [one["game"] for one in results.values() if one["score_of"] == "evaluation"]
    if set(evaluated) & set(atari_26()):
        return f"; fastdqn report {typed(folder)} shows them"
    return f"; fastdqn compare {typed(folder)} shows them" if any((folder / RUNS).glob("*/*/config.json")) else ""
