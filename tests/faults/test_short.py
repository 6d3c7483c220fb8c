"""A few faults of each kind; `make faults` tries many."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.faults.__main__ import ROWS
from tests.faults.table import Row, Tally

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs POSIX signals, limits and /proc")


LONG = (
    "kill -9 of 21 and 22 at a random moment",
    "kill -9 of 31 at a random moment",
    "kill -9 of 32 at a random moment",
    "kill -9 of 33 at a random moment",
    "kill -9 at each operation on a file",
    "odd checkpoints, right checksum",
    "code named by a stranger's run",
    "two processes, one run",
    "a clock that is set",
    "damage to any file of a run",
    "wild options in a run's files",
)
"""Rows that take so long, even for one trial, that they are among the slow tests."""


@pytest.mark.parametrize(
    "row", [pytest.param(row, marks=[pytest.mark.slow] * (row.name in LONG), id=row.name) for row in ROWS]
)
def test_a_few_of_each_kind(row: Row, tmp_path: Path) -> None:
    tally = row.run(tmp_path, row.short)
    assert tally.tried >= 1
    assert not tally.wrong


def test_what_goes_wrong_is_counted() -> None:
    tally = Tally().take([None, "it did not end", None])
    assert (tally.tried, tally.good, tally.wrong) == (3, 2, ["it did not end"])
