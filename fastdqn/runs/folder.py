"""A run's folder: its name, its config.json, who runs in it.

A folder holds `config.json` (resolved options, by group), `environment.json` (versions and machine), `episodes.jsonl`
(one line a finished game), `speed.jsonl` (counters over time), TensorBoard's events, `reports.jsonl` where a script
reports on what is inside its learner, `weights.safetensors`, `checkpoints/` and, at the end, `summary.json`. While the
run is going on, `running.json` says in which process, and that one holds a lock on `running.lock`.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import socket
from collections.abc import Callable, Generator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import filelock
import safetensors

from fastdqn.errors import RunError, UserError

FORMAT = 3
"""Of config.json; any other is refused."""
RUNNING = "running.json"
"""Names the process of a run that is going on."""
LOCK = "running.lock"
"""Locked by that process, however it ends: the lock ends with it."""
LOCK_SECONDS = 1.0
"""For which a lock is tried: whoever looks whether a run is going on holds it for a moment."""
UNFINISHED = ".unfinished"
"""Ending of a file that is being written."""


def version() -> str | None:
    """Return the version of this package, None where it is not installed."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version("fastdqn")
    return None


def read_config(run: Path) -> dict[str, Any]:
    """Return what the config.json of a run says.

    Raises:
        UserError: there is none, it is damaged, or another version wrote it.
    """
    try:
        said: Any = json.loads((run / "config.json").read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{run} is not the folder of a run: it has no config.json that can be read.") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"The config.json of the run {run} is damaged: it is no JSON.") from error
    config = cast(dict[str, Any], said) if isinstance(said, dict) else {}
    if config and config.get("format") != FORMAT:
        raise UserError(
            f"The run {run} was written by fastdqn {config.get('version') or _older_version(run)}, in a format that "
            f"this version, {version()}, does not read."
        )
    try:
        int(config["run"]["seed"])
        said_words = (config["script"], config["game"]["name"], config["wrappers"])
        if not all(isinstance(word, str) for word in said_words):
            raise TypeError("script, game and wrappers must be words")
        _check_groups(config)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise UserError(
            f"The config.json of the run {run} is damaged: it names no script, game, wrappers or seed."
        ) from error
    if config["game"]["name"] == "pong-fast":  # a game to fastdqn before 0.2.0, and an agent since
        dqn = cast(dict[str, Any], config.get("dqn", {}))
        config |= {"game": {**config["game"], "name": "pong"}, "dqn": {"agent": "pong-fast", **dqn}}
    return config


def _check_groups(config: Mapping[str, Any]) -> None:
    """Raise TypeError unless all but what a run says of itself are groups of plain values."""
    for name, group in config.items():
        if name in ("format", "version", "script", "wrappers"):
            continue
        if not isinstance(group, dict):
            raise TypeError(f"{name} must be a group of options")
        values = cast(dict[str, Any], group).values()
        if not all(value is None or isinstance(value, str | int | float) for value in values):
            raise TypeError(f"the options of {name} must be plain values")


def reason_of(run: Path) -> str | None:
    """Return why a run was over, as its summary says, None without one."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return str(json.loads((run / "summary.json").read_text(encoding="utf-8"))["reason"])
    return None


def new_folder(parent: Path, game: str, script: str) -> Path:
    """Make and return runs/<time>-<game>-<script>; two runs of one second get different folders.

    Raises:
        RunError: there are too many, or there is a file where `parent` would be.
        OSError: it cannot be made.
    """
    try:
        parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise RunError(f"Cannot write to {parent}: a file has its name, or that of a folder above it.") from error
    stem = f"{datetime.now():%Y%m%d-%H%M%S}-{''.join(c if c.isalnum() or c in '-_' else '_' for c in game)}-{script}"
    for attempt in range(1000):
        folder = parent / (stem if attempt == 0 else f"{stem}-{attempt}")
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
            return folder
    raise RunError(f"There are already a thousand folders called {stem} in {parent}.")


def running_in(run: Path) -> str | None:
    """Return in which process a run is going on, in words, None where it is not."""
    if not (run / LOCK).exists():
        return None
    lock = filelock.FileLock(run / LOCK)
    try:
        with lock.acquire(timeout=0):
            return None
    except filelock.Timeout:
        return process_named(run / RUNNING)
    except OSError:  # of a folder in which this user cannot write
        return process_named(run / RUNNING) if (run / RUNNING).exists() else None


def hold(run: Path) -> filelock.BaseFileLock:
    """Let this process be the one in which a run is going on, until it lets go of what is returned, or ends.

    Raises:
        UserError: it is going on in another one, or there are links in its folder.
        OSError: the folder cannot be written to.
    """
    _refuse_links(run)
    lock = filelock.FileLock(run / LOCK, thread_local=False)
    try:
        lock.acquire(timeout=LOCK_SECONDS)
    except filelock.Timeout as error:
        raise UserError(f"The run {run} is still going on, in {process_named(run / RUNNING)}.") from error
    write_json(run / RUNNING, {"pid": os.getpid(), "host": socket.gethostname()})
    return lock


def let_go(run: Path, lock: filelock.BaseFileLock) -> None:
    """Say that nobody runs it any more."""
    with contextlib.suppress(OSError):
        (run / RUNNING).unlink()
    with contextlib.suppress(OSError):
        lock.release()


def remove_unfinished(run: Path) -> None:
    """Remove the files that a process which was killed has left half written."""
    with contextlib.suppress(OSError):
        for path in run.glob(f"*{UNFINISHED}"):
            path.unlink()


def written_at(path: Path) -> float:
    """Return when a file was written, as seconds; one that has gone meanwhile is the oldest."""
    with contextlib.suppress(OSError):
        return path.stat().st_mtime
    return 0.0


def write_json(path: Path, value: Any) -> None:
    """Write `value`, indented, whole or not at all."""
    text = json.dumps(value, indent=2) + "\n"
    write_whole(path, lambda unfinished: unfinished.write_text(text, encoding="utf-8"))


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a file beside `path`, then move it there: whoever looks finds the old one or the new one, also
    after the machine has lost its power.
    """
    unfinished = path.with_name(f"{path.name}{UNFINISHED}")
    try:
        unfinished.unlink(missing_ok=True)  # of one that was killed, or a link to somewhere else
        write(unfinished)
        with unfinished.open("rb+") as file:
            os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise


@contextlib.contextmanager
def saving(run: Path) -> Generator[None]:
    """Turn an error of the file system into one sentence.

    Raises:
        RunError: something cannot be written.
    """
    try:
        yield
    except (OSError, safetensors.SafetensorError) as error:
        why = (isinstance(error, OSError) and error.strerror) or str(error)
        raise RunError(f"Cannot write to {run}: {why}; the run has ended.") from error


def _refuse_links(run: Path) -> None:
    """Refuse a folder from which links lead to files that a run would write into or remove.

    Raises:
        UserError: there is one.
    """
    for path in (*run.glob("*"), *(run / "checkpoints").glob("*")):
        if path.is_symlink():
            raise UserError(f"{path} is a link, and a run writes into its folder; put the file itself there.")


def process_named(path: Path) -> str:
    """Return which process a file names as the one in which something is going on."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        said: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        elsewhere = "" if said["host"] == socket.gethostname() else f" of {said['host']}"
        return f"process {int(said['pid'])}{elsewhere}"
    return "another process"


def _older_version(run: Path) -> str:
    """Return which version wrote a run whose config.json does not say so, as those before 0.2.0 did not."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return str(json.loads((run / "environment.json").read_text(encoding="utf-8"))["packages"]["fastdqn"])
    return "before 0.2.0"
