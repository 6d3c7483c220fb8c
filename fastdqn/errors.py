"""Errors that a user can act on; the command line prints them as one sentence."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence


class UserError(Exception):
    """A mistake in what the user asked for: printed as one sentence, exit code 2."""

    exit_code = 2


class CheckpointError(UserError):
    """A checkpoint that cannot be resumed, whatever the options: printed as one sentence, exit code 3."""

    exit_code = 3


class RunError(Exception):
    """A run that cannot go on (disk full, a dead player): printed as it is, exit code 1."""

    exit_code = 1


class Interrupted(Exception):  # noqa: N818 - it is no error
    """The run was asked to stop, and others without whom it cannot end as usual did not come in time."""


_OF_PATHS = {
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.ELOOP),
    *(errno.ENOTDIR, errno.EISDIR, errno.EEXIST),
}


NO_MEMORY = "the memory did not suffice"
_NAMED = 6
"""Words that a sentence names, of more."""


def told(error: Exception) -> UserError | RunError | None:
    """Return what the command line says of an error: itself where it is a sentence, one for a path that cannot be used
    as was asked, such as one that may not be entered; None for any other.
    """
    if isinstance(error, UserError | RunError):
        return error
    if isinstance(error, OSError) and error.errno in _OF_PATHS and error.filename is not None:
        return UserError(f"{os.fsdecode(error.filename)}: {error.strerror}.")
    return None


_REFUSED = ("CUDA error", "can't start new thread", "Resource temporarily unavailable")
"""What a RuntimeError says where the system, or a device, has refused something."""


def shortage_of(error: Exception) -> str | None:
    """Return what there was too little of, or what the system refused; None for an error of any other kind."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    said = str(error)
    if isinstance(error, MemoryError) or "DefaultCPUAllocator" in said or "out of memory" in said:
        return NO_MEMORY
    refused = isinstance(error, RuntimeError) and any(words in said for words in _REFUSED)
    return said.splitlines()[0].rstrip(".") if refused else None


def counted(number: int, unit: str) -> str:
    """Return a number of things, such as "1 game" or "1,200 games"."""
    return f"{number:,} {unit}{'' if number == 1 else 's'}"


def listed(words: Sequence[object]) -> str:
    """Return `words` one after the other; of many the first, and how many more there are."""
    more = [f"{len(words) - _NAMED} more"] if len(words) > _NAMED + 1 else []
    return ", ".join(str(word) for word in [*words[: _NAMED if more else None], *more])
