"""Running one run of a sweep to its end: a process of its own, on cores of its own, resumed where it was.

The folder of a run holds what its script leaves (a folder of its own in it), `output.log` with all that it prints,
and `ended.json` once it has ended well: then it is never started again.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import filelock

from fastdqn.errors import CheckpointError, RunError, UserError

if TYPE_CHECKING:
    from fastdqn.tools.sweep.plan import Task

WORKER = "fastdqn.cli.worker"
"""The module that is such a process."""
ASKED = "asked.json"
ENDED = "ended.json"
OUTPUT = "output.log"
CHECKPOINTS = "checkpoints"
LOCK = "worker.lock"
WAIT_SECONDS = 150.0
"""For which a worker before this one, whose sweep was killed, may write its checkpoint."""
POLL_SECONDS = 0.1
STOP_SECONDS = 120.0
"""For which a run that is asked to stop may write its checkpoint."""
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


@dataclass(frozen=True)
class Job:
    """A run to be done."""

    script: str  # its name
    path: Path  # of the script
    task: Task
    folder: Path  # of this run
    keep_checkpoints: bool = False


class Outcome(NamedTuple):
    """How a job has ended."""

    name: str
    code: int  # the exit code; negative for a signal that killed it
    last_line: str  # that it printed
    result: dict[str, Any] | None  # where it has ended well
    anew: str | None = None  # why it began anew, though it had checkpoints


def run_job(job: Job, cores: Sequence[int] | int, stopping: Callable[[], bool]) -> Outcome:
    """Run a job, from its newest checkpoint that can be resumed, and return how it has ended.

    Args:
        job: the run.
        cores: that it is bound to, or how many it may use wherever they are.
        stopping: called often; once it is true, the run is asked to stop with a checkpoint.

    Raises:
        OSError: its folder cannot be written to.
    """
    from fastdqn.runs.folder import refuse_links  # not at the top: a worker is to begin at once
    from fastdqn.tools.sweep.results import result_of

    name, said, anew = job.task.name, "", None
    try:
        refuse_links((job.folder, *job.folder.glob("*")))
    except UserError as error:
        return Outcome(name, 1, str(error), None)
    if not _alone(job.folder, stopping):
        return Outcome(name, 1, f"another process still runs in {job.folder}", None)
    _prepare(job)
    if _ended(job.folder) is None:
        code = 1
        for words in _attempts(job.folder):
            anew = None if words else said or None
            code = _run(job, words, cores, stopping)
            said = last_line(job.folder / OUTPUT)
            if code != CheckpointError.exit_code or stopping():
                break
        if code:
            return Outcome(name, code, said, None, anew)
    run = _ended(job.folder)
    if run is None:
        return Outcome(name, 1, f"{job.path.name} has left no run in {job.folder}", None, anew)
    try:
        result = result_of(job.script, job.task, run, _number(cores))
    except RunError as error:
        (job.folder / ENDED).unlink(missing_ok=True)
        return Outcome(name, 1, str(error), None, anew)
    if not job.keep_checkpoints:
        shutil.rmtree(run / CHECKPOINTS, ignore_errors=True)
    return Outcome(name, 0, last_line(job.folder / OUTPUT), result, anew)


def note_end(folder: Path) -> None:
    """Note that the run in `folder` has ended well; what its worker does last.

    Raises:
        OSError: it cannot be written.
    """
    from fastdqn.runs.folder import write_json

    runs = runs_in(folder)
    if runs:
        write_json(folder / ENDED, {"run": runs[-1].name})


def runs_in(folder: Path) -> list[Path]:
    """Return the folders of runs in that of a job, the one that was started or resumed last at the end: names begin
    with the time, which may have been put back.
    """
    from fastdqn.runs.folder import written_at

    configs = [folder / name / "config.json" for name in _names_in(folder) if "config.json" in _names_in(folder / name)]
    return [path.parent for path in sorted(configs, key=lambda path: (written_at(path), path))]


def _names_in(folder: Path, ending: str = "") -> list[str]:
    """Return what is in a folder and ends so; nothing of what is no folder.

    Raises:
        OSError: the folder cannot be read, which a glob would keep to itself.
    """
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return [name for name in os.listdir(folder) if name.endswith(ending)]  # noqa: PTH208 - as the system says it
    return []


def progress_of(folder: Path) -> float:
    """Return which share of its env steps, or of its minutes if that is more, the newest run in a job's folder has
    made; 0 where that is not known.
    """
    from fastdqn.runs.folder import read_object

    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, IndexError, RecursionError):
        run = runs_in(folder)[-1]
        limits = read_object(run / "config.json")["run"]
        made = json.loads(last_line(run / "speed.jsonl"))
        most, minutes = limits["max_env_steps"], limits.get("max_minutes")
        shares = [made["env_steps"] / most if most else 0.0, made["elapsed"] / (60.0 * minutes) if minutes else 0.0]
        return min(1.0, max(0.0, *shares))
    return 0.0


def last_line(path: Path) -> str:
    """Return the last line of a file that says something, empty if there is none."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 8192))
            lines = file.read().decode("utf-8", "replace").split("\n")
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _alone(folder: Path, stopping: Callable[[], bool]) -> bool:
    """Wait for a worker whose sweep was killed and which still writes here; return whether it has ended.

    Before anything is looked at or removed: its first checkpoint may be on its way.
    """
    if not folder.is_dir():
        return True
    lock, until = filelock.FileLock(folder / LOCK), time.monotonic() + WAIT_SECONDS
    while True:
        try:
            with lock.acquire(timeout=POLL_SECONDS):
                return True
        except filelock.Timeout:
            if stopping() or time.monotonic() > until:
                return False


def _prepare(job: Job) -> None:
    """Make the folder of a job; one of a run with other options, whose plan has gone, is set aside."""
    from fastdqn.runs.folder import read_object, remove_unfinished, write_json
    from fastdqn.tools.sweep.plan import set_aside

    remove_unfinished(job.folder)
    path = job.folder / ASKED
    if path.exists():
        said: Any = None
        with contextlib.suppress(ValueError):
            said = read_object(path)
        if said == job.task.asked:
            return
        set_aside(job.folder)
    job.folder.mkdir(parents=True, exist_ok=True)
    write_json(path, job.task.asked)


def _attempts(folder: Path) -> Iterator[tuple[str, ...]]:
    """Yield what to add to the words of a run, one after the other while a checkpoint cannot be resumed: the newest
    checkpoint, the one before, begin it anew.
    """
    saved = {run: len(_names_in(run / CHECKPOINTS, ".checkpoint")) for run in runs_in(folder)}
    begun = [run for run, checkpoints in saved.items() if checkpoints]
    if begun:
        newest = f"--resume={begun[-1]}"  # in one word: a folder may begin with a dash
        yield (newest,)
        if saved[begun[-1]] > 1:
            yield (newest, "--resume-previous")
    for run, checkpoints in saved.items():
        if not checkpoints:  # of one that was killed before its first
            shutil.rmtree(run, ignore_errors=True)
    yield ()


def _ended(folder: Path) -> Path | None:
    """Return the run that has ended well in a job's folder."""
    from fastdqn.runs.folder import read_object

    with contextlib.suppress(OSError, ValueError, KeyError):
        run = folder / Path(str(read_object(folder / ENDED)["run"])).name
        return run if (run / "config.json").exists() else None
    return None


def words_of(job: Job, more: Sequence[str], cores: Sequence[int] | int) -> list[str]:
    """Return the words of a job's command line, its attempt's `more` among them.

    One that is bound to no cores is told how many threads to take, unless the sweep says it: by itself it would take as
    many as its machine has cores.
    """
    from fastdqn.tools.sweep.plan import said_by

    words = [*job.task.words, *more, f"--runs-dir={job.folder}"]
    if isinstance(cores, int) and "threads" not in said_by(job.task.words):
        words += ["--threads", str(cores)]
    return words


def _run(job: Job, more: Sequence[str], cores: Sequence[int] | int, stopping: Callable[[], bool]) -> int:
    """Start a worker, wait for its end, and return its exit code."""
    words = words_of(job, more, cores)
    command = [sys.executable, "-m", WORKER, str(os.getpid()), str(job.folder), str(job.path), *words]
    environment = {**os.environ, **dict.fromkeys(_THREADS, str(_number(cores))), "PYTHONUNBUFFERED": "1"}
    with (job.folder / OUTPUT).open("ab") as output, _bound_to(cores):
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,  # what a terminal sends reaches the sweep alone, which hands it on
        )
    asked = None
    try:
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return child.wait(timeout=POLL_SECONDS)
            if asked is None and stopping():
                asked = time.monotonic()
                child.send_signal(signal.SIGTERM)
            elif asked is not None and time.monotonic() - asked > STOP_SECONDS:
                child.kill()
    finally:
        child.kill()
        child.wait()


def _number(cores: Sequence[int] | int) -> int:
    return cores if isinstance(cores, int) else len(set(cores))


@contextlib.contextmanager
def _bound_to(cores: Sequence[int] | int) -> Generator[None]:
    """Let what this thread starts meanwhile run on these cores alone."""
    if isinstance(cores, int) or not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
