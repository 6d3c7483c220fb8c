"""Command lines from dataclasses, and mistakes as one sentence; imports little, so that --help is quick."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import re
import sys
from collections.abc import Generator, Sequence
from typing import Any, TypeVar

import tyro

from fastdqn.errors import UserError

AnyT = TypeVar("AnyT")
_BOX = "╭╮╰╯│─ "


def parsed(
    options_type: Any,
    words: Sequence[str],
    default: AnyT,
    description: str,
    program: str | None = None,
    pairs: bool = False,
) -> AnyT:
    """Return `words` parsed by tyro, whose boxed explanations are cut down to their sentence.

    Args:
        options_type: a dataclass, or a union of them for subcommands.
        words: the command line.
        default: what is not said is as here; None for a union.
        description: what --help begins with.
        program: what --help calls the program.
        pairs: whether every flag has both --name and --no-name.

    Raises:
        UserError: an option that does not exist, or a value of the wrong type.
        SystemExit: after `--help`, also if nobody reads it to its end.
    """
    said = io.StringIO()
    options: dict[str, Any] = {} if default is None else {"default": default}
    try:
        with contextlib.redirect_stderr(said), _whoever_reads():
            return tyro.cli(
                options_type,
                prog=program,
                args=words,
                description=description,
                config=(tyro.conf.OmitArgPrefixes, *(() if pairs else (tyro.conf.FlagCreatePairsOff,))),
                **options,
            )
    except SystemExit as end:
        if not end.code:
            raise
    lines = [line.strip(_BOX) for line in said.getvalue().splitlines()[1:]]
    blocks = [" ".join(block).strip() for empty, block in itertools.groupby(lines, lambda line: not line) if not empty]
    sentence = blocks[0].rstrip(".") if blocks else "The options cannot be understood"
    meant = re.search(r"Perhaps you meant:\s+(--[a-z0-9-]+)", blocks[1]) if len(blocks) > 1 else None
    raise UserError(f"{sentence}; {f'did you mean {meant[1]}?' if meant else '--help lists all options.'}")


@contextlib.contextmanager
def _whoever_reads() -> Generator[None]:
    """Print to somebody who may leave before the end, as in `--help | head`."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left is not written at the exit either
        raise SystemExit(0) from None
