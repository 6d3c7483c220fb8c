"""Tries every kind of fault, and prints how often all was well.

    python -m tests.faults                 # all trials; make faults
    python -m tests.faults --short         # a few of each kind
    python -m tests.faults --only 32,41    # those of these scripts
    python -m tests.faults kill full       # the rows whose names have one of these words in them

The exit code is 0 if all was well, else 1. With make, options are given as make faults ARGS="--only 32,41".
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import tyro

from fastdqn.cli.parser import parsed
from fastdqn.errors import UserError
from fastdqn.terminal import complain
from tests.faults import company, files, kills, systems
from tests.faults.table import Row, show
from tests.helpers.scripts import ROOT

ROWS = (*kills.ROWS, *files.ROWS, *company.ROWS, *systems.ROWS)


@dataclass(frozen=True)
class Faults:
    """Which faults to try."""

    words: tyro.conf.Positional[tuple[str, ...]] = ()
    """Rows whose names have one of these words in them; by default all."""
    only: str | None = None
    """Rows of these scripts alone, by number or name, with commas in between: 32,41."""
    short: bool = False
    """A few trials of each kind."""


def rows_of(options: Faults) -> list[Row]:
    """Return the rows that are asked for.

    Raises:
        UserError: there are none.
    """
    asked = [] if options.only is None else [one.strip() for one in options.only.split(",")]
    known = sorted({name for row in ROWS for name in row.scripts})
    for one in asked:
        if not {one, *_of(one)} & set(known):
            raise UserError(f"--only {one}: no row is of such a script; there are rows of {', '.join(known)}.")
    scripts = {name for one in asked for name in (one, *_of(one))}
    rows = [row for row in ROWS if options.only is None or scripts & set(row.scripts)]
    rows = [row for row in rows if not options.words or any(word in row.name for word in options.words)]
    rows = [row for row in rows if row.short or not options.short]
    if not rows:
        raise UserError(f"No row is so called: {' '.join(options.words)}; --help says how they are chosen.")
    return rows


def _of(number: str) -> list[str]:
    """Return the names of the scripts with this number."""
    return [path.stem for path in (ROOT / "experiments").glob("[0-9]*.py") if path.stem.split("_")[0] == number]


def main(words: Sequence[str] | None = None) -> int:
    """Return the exit code: 0 if all was good, 1 if not, 2 for a mistake in the options."""
    words = sys.argv[1:] if words is None else words
    try:
        options = parsed(Faults, words, Faults(), __doc__ or "", program="python -m tests.faults")
        rows = rows_of(options)
    except UserError as error:
        complain(f"error: {error}")
        return error.exit_code
    return 0 if show(rows, lambda row: row.short if options.short else row.full) else 1


if __name__ == "__main__":
    sys.exit(main())
