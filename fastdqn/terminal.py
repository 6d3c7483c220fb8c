"""The terminal: what is printed goes to whoever reads it, and never ends a run because nobody does any more."""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import os
import shlex
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, TextIO, cast

from rich.console import Console

from fastdqn import process


def console_for_tables() -> Console:
    """Return a console on stdout that is 160 columns wide where there is no terminal: a file or a pipe has room."""
    made = console()
    if not made.is_terminal:
        made.width = 160
    return made


def console() -> Console:
    """Return a console for standard output, which shows words as they are: paths may have brackets in them.

    A terminal may be closed, and the reader of a pipe may end. What is printed from then on goes nowhere.
    """
    made = Console(file=cast(TextIO, _Unbroken()), highlight=False, markup=False, emoji=False)
    if made.width < 1:  # COLUMNS=0: nothing would be printed
        made.width = 80
    return made


def moves(console: Console) -> bool:
    """Tell whether what is shown may be shown anew: on a terminal, but not in a file, even with FORCE_COLOR."""
    return console.is_terminal and not console.is_dumb_terminal and console.file.isatty()


@contextlib.contextmanager
def counting(console: Console, label: str, total: int) -> Generator[Callable[[int, object], None]]:
    """Show on a terminal how many of `total` are done; what is returned takes that number, and something else that it
    ignores.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn  # a start need not wait for it

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True, disable=not moves(console)) as progress:
        task = progress.add_task(label, total=total)
        yield lambda done, _: progress.update(task, completed=done)


def typed(path: Path | str) -> str:
    """Return a path as a shell takes it, for commands that are printed; one that begins with a dash is no option."""
    words = str(path)
    return shlex.quote(f"./{words}" if words.startswith("-") else words)


def say(sentence: str) -> None:
    """Print a line on standard output, if somebody reads it."""
    _write(f"{sentence}\n", _stdout(), flush=True)


def write(text: str, error: bool = False) -> None:
    """Write text, not a line of its own, on standard output or standard error, if somebody reads it."""
    _write(text, (sys.stderr or _nowhere()) if error else _stdout(), flush=True)


def complain(sentence: str) -> None:
    """Print a line on standard error, if somebody reads it."""
    _write(f"{sentence}\n", sys.stderr or _nowhere(), flush=True)


_lost: list[OSError] = []
_NO_ROOM = {errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)}
_PIECE = 1_024
"""Characters that are written at once: a pipe that can be written to has room for 4,096 bytes."""
_PATIENCE, _LOOKS = 1.0, 0.25
"""Seconds for which a reader is waited for after a signal to stop, and between two looks at whether one has come."""


class _Unbroken(io.TextIOBase):
    """Standard output as it is when something is written."""

    @property
    def encoding(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return _stdout().encoding or "utf-8"

    def write(self, text: str, /) -> int:
        _write(text, _stdout())
        return len(text)

    def flush(self) -> None:
        out = _stdout()
        with _unbroken(out):
            if _has_room(out):
                out.flush()

    def isatty(self) -> bool:
        return _stdout().isatty()

    def fileno(self) -> int:
        return _stdout().fileno()


def unwritten() -> str | None:
    """Return why not all of standard output is where it was sent to, for want of room; None otherwise, even if nobody
    reads it any more.
    """
    return _lost[0].strerror if _lost else None


def _stdout() -> TextIO:
    out: Any = sys.stdout or _nowhere()
    return getattr(out, "rich_proxied_file", out)  # what stands for it while rich shows something that moves


@functools.cache
def _nowhere() -> TextIO:
    """Return what is written to where a standard stream was closed before the process began."""
    return open(os.devnull, "w")  # noqa: PTH123 - no path, and open to the end


def _write(text: str, stream: TextIO, flush: bool = False) -> None:
    """Write to a stream, if somebody reads it; what its encoding lacks becomes a question mark."""
    pieces = [text[begin : begin + _PIECE] for begin in range(0, len(text), _PIECE)]
    with _unbroken(stream):
        for piece in pieces:
            if not _has_room(stream):
                return
            try:
                stream.write(piece)
            except UnicodeEncodeError:
                known = stream.encoding or "ascii"
                stream.write(piece.encode(known, "replace").decode(known))
            if flush or len(pieces) > 1:
                stream.flush()


def _has_room(stream: TextIO) -> bool:
    """Wait until a piece can be written to a stream whose reader stands still, say a terminal after Ctrl-S; return
    False if a signal to stop has come meanwhile, which is heeded between two steps of a run.
    """
    try:
        number = stream.fileno()
    except (OSError, ValueError, AttributeError):  # no file of the system's
        return True
    late = time.monotonic() + _PATIENCE
    while not process.takes(number, _LOOKS):
        if process.stop_signal() and time.monotonic() > late:
            return False
    return True


@contextlib.contextmanager
def _unbroken(stream: TextIO) -> Generator[None]:
    """Let what cannot be written to `stream` go nowhere, now and from now on."""
    try:
        yield
    except OSError as error:
        if error.errno in _NO_ROOM and stream is _stdout():
            _lost.append(error)
        with contextlib.suppress(OSError, ValueError), open(os.devnull, "w") as nowhere:  # noqa: PTH123 - no path
            os.dup2(nowhere.fileno(), stream.fileno())
