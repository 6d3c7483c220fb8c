"""Checkpoint files: everything that a run needs to resume exactly where it was, in one file.

A file is a line of JSON (what it is, how long, its checksum) and then the parts' states, in JSON and safetensors
(fastdqn/runs/encoding.py), piece by piece. It is written beside its place and moved there when it is whole, and the
one before it is kept, so that whatever kills a run leaves a good one.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
import time
import zlib
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from fastdqn.errors import CheckpointError, RunError, UserError, shortage_of
from fastdqn.runs.encoding import from_file, in_pieces
from fastdqn.runs.folder import check_groups, is_words, read_config, version, write_whole, written_at
from fastdqn.states import abandon, fetched

FORMAT = 5
"""Of the file; any other is refused."""
FOLDER = "checkpoints"
_MAGIC = "fastdqn checkpoint"
_HEADER_BYTES = 1_000_000  # more than any header has
_MOST = 2**63  # which no size and no checksum reaches
_PIECE_BYTES = 16_000_000  # that are read at once for the checksum
KEPT = 2


class Saved(NamedTuple):
    """A checkpoint that has been written."""

    path: Path
    env_steps: int
    size: int  # bytes
    stopped: float  # seconds in which the run stood still
    written: float  # seconds until the file was there


class Header(NamedTuple):
    """What the first line of a checkpoint says."""

    path: Path
    script: str
    game: str
    env_steps: int
    config: dict[str, Any]  # resolved options
    size: int  # bytes of the rest
    crc32: int
    begin: int  # where the rest begins


class Checkpoints:
    """Writes a run's checkpoints, one at a time, in a thread beside it.

    Args:
        run: the run's folder.
        about: what the header says of the run: its `script`, `game` and `config`.
        begun: env steps of the checkpoint that the run resumes; later ones of others go with the first new one.
    """

    def __init__(self, run: Path, about: Mapping[str, Any], begun: int | None = None) -> None:
        self.folder = run / FOLDER
        self._about = dict(about)
        self._begun = begun
        self._own: set[Path] = set()
        self._thread: threading.Thread | None = None
        self._saved: Saved | None = None
        self._error: BaseException | None = None

    @property
    def busy(self) -> bool:
        """Whether one has been begun of which `ended` has not told the end yet."""
        return self._thread is not None

    @property
    def writing(self) -> bool:
        """Whether one is being written now."""
        thread = self._thread
        return thread is not None and thread.is_alive()

    def begin(self, env_steps: int, states: Callable[[], dict[str, Any]]) -> None:
        """Take the states now and write them while the run continues. The one before must have been waited for."""
        began = time.perf_counter()
        taken = states()
        stopped = time.perf_counter() - began

        def write() -> None:
            try:
                path, size = self._write(env_steps, fetched(taken))
                self._saved = Saved(path, env_steps, size, stopped, time.perf_counter() - began)
            except BaseException as error:
                abandon(taken)
                self._error = error

        self._thread = threading.Thread(target=write, name="fastdqn-checkpoint", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # there are no more threads: it is written now
            write()

    def ended(self, wait: bool = False) -> Saved | None:
        """Return the checkpoint that has been written since the last call, None if there is none.

        Raises:
            OSError: it could not be written, for want of room on the disk or in memory, say; those before it are still
                there.
        """
        thread = self._thread
        if thread is None or (thread.is_alive() and not wait):
            return None
        if thread.ident is not None:  # it was started
            thread.join()
        self._thread = None
        error, saved = self._error, self._saved
        self._error = self._saved = None
        short = isinstance(error, Exception) and not isinstance(error, OSError) and shortage_of(error)
        if short:
            raise OSError(short) from error
        if error is not None:
            raise error
        return saved

    def _write(self, env_steps: int, states: dict[str, Any]) -> tuple[Path, int]:
        about = {**self._about, "env_steps": env_steps}
        states = {**states, "about": json.dumps(about)}
        self.folder.mkdir(exist_ok=True)
        path = self.folder / f"{env_steps:012}.checkpoint"

        def write(unfinished: Path) -> None:
            with unfinished.open("wb") as file:
                room = file.write(_first_line(about, _MOST, _MOST))  # how long it gets is known at the end
                size = crc32 = 0
                for piece in in_pieces(states):
                    size += file.write(piece)
                    crc32 = zlib.crc32(piece, crc32)
                file.seek(0)
                file.write(_first_line(about, size, crc32, room))

        write_whole(path, write)
        _sync_folder(self.folder)
        found = checkpoints_in(self.folder.parent)
        # What others wrote after the run was resumed there is of a future that was given up.
        given_up = path.stem if self._begun is None else f"{self._begun:012}"
        before = [other for other in found if other.stem < path.stem and (other in self._own or other.stem <= given_up)]
        kept = {path, *before[1 - KEPT :]}
        self._own.add(path)
        for old in {*found, *self.folder.glob("*.unfinished")} - kept:
            with contextlib.suppress(OSError):
                old.unlink()
        return path, path.stat().st_size


def _first_line(about: Mapping[str, Any], size: int, crc32: int, room: int = 0) -> bytes:
    """Return what a checkpoint says of itself, at least `room` bytes of it."""
    header = {"what": _MAGIC, "format": FORMAT, "version": version(), "size": size, "crc32": crc32, **about}
    return json.dumps(header).encode().ljust(room - 1) + b"\n"


def checkpoints_in(run: Path) -> list[Path]:
    """Return the checkpoints of a run, the newest last."""
    return sorted(path for path in (run / FOLDER).glob("*.checkpoint") if re.fullmatch(r"\d{12,}", path.stem))


def give_up(run: Path, env_steps: int) -> None:
    """Remove the checkpoints after so many env steps: their logs are about to be cut off."""
    for path in checkpoints_in(run):
        if int(path.stem) > env_steps:
            path.unlink()


def newest(run: Path, previous: bool = False) -> Header:
    """Return the header of the newest checkpoint of a run, or of the one before.

    Raises:
        UserError: there is none.
        CheckpointError: it is damaged, another run's, or of another version.
    """
    if not run.is_dir():
        raise UserError(f"--resume {run}: there is no such folder of a run.")
    config = read_config(run) if (run / "config.json").exists() else None
    found = checkpoints_in(run)
    if not found:
        raise UserError(f"The run {run} has no checkpoint to resume.")
    if previous and len(found) < 2:
        raise UserError(f"The run {run} has one checkpoint only, not a previous one.")
    header = read_header(found[-2 if previous else -1])
    if config is not None and (config["script"], config["game"]["name"]) != (header.script, header.game):
        raise CheckpointError(
            f"The checkpoint {header.path} is of another run: {header.script} on {header.game}, not "
            f"{config['script']} on {config['game']['name']}."
        )
    return header


def latest_run(runs: Path, script: str | None = None) -> Path:
    """Return the run with the newest checkpoint among those in the folder `runs`, and in sweeps in it; of `script`, if
    that is named.

    Raises:
        UserError: there is none.
    """
    found = [path for pattern in ("*", "*/*/*", "*/*/*/*") for path in runs.glob(f"{pattern}/{FOLDER}/*.checkpoint")]
    for path in sorted(found, key=written_at, reverse=True):
        with contextlib.suppress(UserError):  # whoever resumes what cannot be read is told why
            if script is not None and _said_of_itself(path)[0].get("script", script) != script:  # of any format
                continue
        return path.parent.parent
    raise UserError(f"--resume latest: no run {f'of {script} ' if script else ''}in {runs} has a checkpoint.")


def _said_of_itself(path: Path) -> tuple[dict[str, Any], int]:
    """Return the JSON object in the first line of a file, an empty one if there is none, and how long the line is."""
    try:
        with path.open("rb") as file:
            line = file.readline(_HEADER_BYTES)
    except OSError as error:
        raise CheckpointError(f"The checkpoint {path} cannot be read: {error.strerror}.") from error
    with contextlib.suppress(ValueError, RecursionError):
        found: Any = json.loads(line)
        return cast(dict[str, Any], found) if isinstance(found, dict) else {}, len(line)
    return {}, len(line)


def read_header(path: Path) -> Header:
    """Return what a checkpoint says of itself; whether the rest is whole, `read` finds out.

    Raises:
        CheckpointError: it is damaged, no checkpoint at all, or of another format.
    """
    said, length = _said_of_itself(path)
    if said.get("what") != _MAGIC:
        raise CheckpointError(f"{path} is not a checkpoint of fastdqn, or a damaged one{_other(path)}.")
    if said.get("format") != FORMAT:
        raise CheckpointError(
            f"The checkpoint {path} was written by fastdqn {_shown(said.get('version'))} in format "
            f"{_shown(said.get('format'))}; this version, {version()}, reads format {FORMAT}."
        )
    try:
        config: dict[str, Any] = said["config"]
        check_groups(config)
        return Header(
            path,
            _word(said["script"]),
            _word(said["game"]),
            int(said["env_steps"]),
            dict(config),
            int(said["size"]),
            int(said["crc32"]),
            length,
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise CheckpointError(f"The checkpoint {path} is damaged{_other(path)}.") from error


def read(header: Header) -> dict[str, Any]:
    """Return the states that a checkpoint holds.

    Raises:
        CheckpointError: it is damaged.
        RunError: there was no memory for it.
    """
    path = header.path
    try:
        with path.open("rb") as file:
            file.seek(header.begin)
            size, crc32 = _summed(file)
            if (size, crc32) != (header.size, header.crc32):
                why = f"it has {size:,} of {header.size:,} bytes" if size != header.size else "its checksum is wrong"
                raise CheckpointError(f"The checkpoint {path} is damaged: {why}{_other(path)}.")
            file.seek(header.begin)
            states = from_file(file, size)
        about: dict[str, Any] = json.loads(states.pop("about"))
    except CheckpointError:
        raise
    except OSError as error:
        raise CheckpointError(f"The checkpoint {path} cannot be read: {error.strerror}.") from error
    except Exception as error:  # whatever its bytes make of the readers of others
        _refuse_shortage(error, path)
        raise CheckpointError(
            f"The checkpoint {path} holds something that this version does not read{_other(path)}."
        ) from error
    if about != {"script": header.script, "game": header.game, "config": header.config, "env_steps": header.env_steps}:
        raise CheckpointError(f"The checkpoint {path} is damaged: its first line is not its own{_other(path)}.")
    return states


def _summed(file: BinaryIO) -> tuple[int, int]:
    """Return how many bytes are left in `file`, and their checksum."""
    size = crc32 = 0
    while piece := file.read(_PIECE_BYTES):
        size += len(piece)
        crc32 = zlib.crc32(piece, crc32)
    return size, crc32


def _refuse_shortage(error: Exception, place: Path) -> None:
    """Raise RunError where a checkpoint was not loaded for want of memory or the like: the same one may be, later."""
    why = shortage_of(error)
    if why is not None:
        raise RunError(f"{place} could not be resumed: {why}; nothing is lost.") from error


def _shown(said: Any) -> str:
    return str(said) if is_words(str(said)) else "?"


def _word(said: Any) -> str:
    if not is_words(said):
        raise TypeError("not a word")
    return str(said)


def _other(path: Path) -> str:
    """Return how to resume without `path`, if there is a way."""
    kin = checkpoints_in(path.parent.parent)
    return "; --resume-previous resumes from the one before" if path in kin[1:] else ""


def _sync_folder(folder: Path) -> None:
    """Let the file's new name reach the disk, where the system can be told to."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextlib.contextmanager
def understood(run: Path) -> Generator[None]:
    """Turn what goes wrong with a state that is another version's into one sentence.

    Raises:
        CheckpointError: with this sentence, or that of a part which does not take its state.
        RunError: there was no memory for it, or the like.
    """
    try:
        yield
    except RunError:
        raise
    except UserError as error:
        raise CheckpointError(str(error)) from error
    except Exception as error:
        _refuse_shortage(error, run)
        why = (str(error).strip().splitlines() or [type(error).__name__])[-1].strip()
        raise CheckpointError(
            f"The checkpoint of {run} does not fit this version of fastdqn, or of ale-py: {why}."
        ) from error
