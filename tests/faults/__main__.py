"""Tries every kind of fault, and prints how often all was well.

python -m tests.faults            # all trials; make faults
python -m tests.faults --short    # a few of each kind
python -m tests.faults kill full  # the rows whose names have these words in them
"""

from __future__ import annotations

import sys

from tests.faults import company, files, kills
from tests.faults.table import Row, show

ROWS = (*kills.ROWS, *files.ROWS, *company.ROWS)


def main() -> int:
    """Return the exit code: 0 if all was good."""
    words = sys.argv[1:]
    short = "--short" in words
    wanted = [word for word in words if word != "--short"]
    rows = [row for row in ROWS if not wanted or any(word in row.name for word in wanted)]

    def count(row: Row) -> int:
        return row.short if short else row.full

    return 0 if show(rows, count) else 1


if __name__ == "__main__":
    sys.exit(main())
