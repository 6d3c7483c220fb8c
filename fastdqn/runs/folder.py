"""A run's folder: its name, its config.json, who runs in it.

A folder holds `config.json` (resolved options, by group), `environment.json` (versions and machine), `episodes.jsonl`
(one line a finished game), `speed.jsonl` (counters over time), TensorBoard's events, `reports.jsonl` where a script
reports on what is inside its learner, `weights.safetensors`, `checkpoints/` and, at the end, `summary.json`. While the
run is going on, `running.json` says in which process, and that one holds a lock on `running.lock`.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import socket
import unicodedata
from collections.abc import Callable, Generator, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import filelock
import psutil
import safetensors

import fastdqn
from fastdqn.errors import RunError, UserError

FORMAT = 3
"""Of config.json; any other is refused."""
RUNNING = "running.json"
"""Names the process of a run that is going on."""
LOCK = "running.lock"
"""Locked by that process, however it ends: the lock ends with it."""
LOCK_SECONDS = 1.0
"""For which a lock is tried: whoever looks whether a run is going on holds it for a moment."""
LOOK_SECONDS = 0.05
"""For which whoever looks tries it: so does another one who looks."""
UNFINISHED = ".unfinished"
"""Ending of a file that is being written."""
OF_THE_END = ("summary.json", "trial.json", "trial.png", "sessions.png")
"""Files that say how a run has ended."""
EXAMINED = ("fresh", "nature", "evaluation", "minutes", "samples_per_s")
"""What summary.json holds of games after the end."""


def version() -> str:
    """Return the version of this code, also where what is installed is of another one."""
    return fastdqn.__version__


def read_config(run: Path) -> dict[str, Any]:
    """Return what the config.json of a run says.

    Raises:
        UserError: there is none, it is damaged, or another version wrote it.
    """
    try:
        config = read_object(run / "config.json")
    except OSError as error:
        raise UserError(f"{run} is not the folder of a run: it has no config.json that can be read.") from error
    except ValueError as error:
        raise UserError(f"The config.json of the run {run} is damaged: it is no JSON object.") from error
    if config and config.get("format") != FORMAT:
        wrote = config.get("version") or _older_version(run)
        raise UserError(
            f"The run {run} was written by {f'fastdqn {wrote}' if is_words(wrote) else 'another program'}, in a format "
            f"that this version, {version()}, does not read."
        )
    try:
        int(config["run"]["seed"])
        said_words = (config["script"], config["game"]["name"], config["wrappers"], config.get("version") or "")
        if not all(map(is_words, said_words)):
            raise TypeError("script, game, wrappers and version must be words")
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise UserError(
            f"The config.json of the run {run} is damaged: it names no script, game, wrappers or seed."
        ) from error
    try:
        check_groups(config)
    except TypeError as error:
        raise UserError(f"The config.json of the run {run} is damaged: {error}.") from error
    if config["game"]["name"] == "pong-fast":  # a game to fastdqn before 0.2.0, and an agent since
        dqn = cast(dict[str, Any], config.get("dqn", {}))
        config |= {"game": {**config["game"], "name": "pong"}, "dqn": {"agent": "pong-fast", **dqn}}
    return config


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object that a file holds.

    Raises:
        OSError: it cannot be read.
        ValueError: it holds none.
    """
    try:
        said: Any = json.loads(path.read_text(encoding="utf-8"))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(said, dict):
        raise ValueError("it is no object")
    return cast(dict[str, Any], said)


def is_words(said: Any) -> bool:
    """Tell whether `said`, read from a file, can be shown and written: text without characters that move a terminal's
    cursor, end a line or change colours, and without halves of characters.
    """
    return isinstance(said, str) and not any(unicodedata.category(one) in ("Cc", "Cs", "Zl", "Zp") for one in said)


def check_groups(config: Mapping[str, Any]) -> None:
    """Raise TypeError unless all but what a run says of itself are groups of plain values, whose words can be shown;
    folders may have any name.
    """
    for name, group in config.items():
        if name in ("format", "version", "script", "wrappers"):
            continue
        if not isinstance(group, dict):
            raise TypeError(f"{name} must be a group of options")
        values = cast(dict[str, Any], group).values()
        if not all(value is None or isinstance(value, str | int | float) for value in values):
            raise TypeError(f"the options of {name} must be plain values")
        if name != "run" and not all(is_words(value) for value in values if isinstance(value, str)):
            raise TypeError(f"the options of {name} must be words")


def reason_of(run: Path) -> str | None:
    """Return why a run was over, as its summary says, None without one."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        reason = read_object(run / "summary.json")["reason"]
        return reason if is_words(reason) else None
    return None


def found_after(run: Path) -> dict[str, Any]:
    """Return what the summary of a run holds of games after its end."""
    with contextlib.suppress(OSError, ValueError):
        summary = read_object(run / "summary.json")
        return {name: summary[name] for name in EXAMINED if name in summary}
    return {}


def new_folder(parent: Path, game: str, script: str) -> Path:
    """Make and return runs/<time>-<game>-<script>; two runs of one second get different folders.

    Raises:
        RunError: there are too many, or there is a file where `parent` would be.
        OSError: it cannot be made.
    """
    try:
        parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        why = "a link that leads nowhere has its name" if parent.is_symlink() else "a file has its name"
        raise RunError(f"Cannot write to {parent}: {why}, or that of a folder above it.") from error
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
        with lock.acquire(timeout=LOOK_SECONDS, poll_interval=LOOK_SECONDS / 5.0):
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
    refuse_links((*run.glob("*"), *(run / "checkpoints").glob("*")))
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
    _remove(run.glob(f"*{UNFINISHED}"))


def _remove(unfinished: Iterable[Path]) -> None:
    """Remove these files, but for those that another process is writing."""
    with contextlib.suppress(OSError):
        for path in unfinished:
            writer = path.name.removesuffix(UNFINISHED).rpartition(".")[2]
            own = not writer.isdecimal() or len(writer) > 9 or int(writer) == os.getpid()
            if own or not psutil.pid_exists(int(writer)):
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
    unfinished = path.with_name(f"{path.name}.{os.getpid()}{UNFINISHED}")  # another process may write the same
    try:
        _remove(path.parent.glob(f"{glob.escape(path.name)}*{UNFINISHED}"))  # of one that was killed, or a link
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


def refuse_links(paths: Iterable[Path]) -> None:
    """Refuse links to what a run would write into or remove.

    Raises:
        UserError: there is one.
    """
    for path in paths:
        if path.is_symlink():
            raise UserError(
                f"{path} is a link, and what a run writes would go where it leads; put the file itself there."
            )


def process_named(path: Path) -> str:
    """Return which process a file names as the one in which something is going on."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        said = read_object(path)
        elsewhere = "" if said["host"] == socket.gethostname() else f" of {said['host']}"
        if is_words(elsewhere):
            return f"process {int(said['pid'])}{elsewhere}"
    return "another process"


def _older_version(run: Path) -> str:
    """Return which version wrote a run whose config.json does not say so, as those before 0.2.0 did not."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return str(read_object(run / "environment.json")["packages"]["fastdqn"])
    return "before 0.2.0"
