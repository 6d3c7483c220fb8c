"""A few faults of each kind; `make faults` tries many."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.faults import systems
from tests.faults.__main__ import ROWS, Faults, main, rows_of
from tests.faults.table import Row, Tally

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs POSIX signals, limits and /proc")


LONG = (
    "kill -9 at a random moment",
    "kill -9 of 21 and 22 at a random moment",
    "kill -9 of 31 at a random moment",
    "kill -9 of 32 at a random moment",
    "kill -9 of 33 at a random moment",
    "kill -9 at each operation on a file",
    "malformed checkpoints, right checksum",
    "code named by a stranger's run",
    "two processes, one run",
    "a clock that is set",
    "damage to any file of a run",
    "wild options in a run's files",
)
"""Rows that take so long, even for one trial, that they are among the slow tests."""


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, marks=[pytest.mark.slow] * (row.name in LONG or row in systems.ROWS), id=row.name)
        for row in ROWS
        if row.short
    ],
)
def test_a_few_of_each_kind(row: Row, tmp_path: Path) -> None:
    tally = row.run(tmp_path, row.short)
    assert tally.tried >= 1
    assert not tally.wrong


def test_what_goes_wrong_is_counted() -> None:
    tally = Tally().take([None, "it did not end", None])
    assert (tally.tried, tally.good, tally.wrong) == (3, 2, ["it did not end"])


def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--help"])
    assert not left.value.code
    assert "usage: python -m tests.faults [WORDS] ... [OPTIONS]\n" in capsys.readouterr().out
    for words in (["--onyl", "32"], ["--only", "07"], ["--only", "moon"], ["--only", "32", "moonlight"]):
        assert main(words) == 2
        said = capsys.readouterr()
        assert said.err.startswith("error: ")
        assert said.err.count("\n") == 1
        assert not said.out


def test_rows_of_some_scripts_alone() -> None:
    assert {name for row in rows_of(Faults(only="32")) for name in row.scripts} == {"32_sac_hogwild"}
    two = rows_of(Faults(("kill",), "31_sac, 22"))
    assert {row.scripts for row in two} == {("31_sac",), ("21_a3c_data", "22_a3c_grad")}
    assert all("kill" in row.name for row in two)
    assert rows_of(Faults()) == list(ROWS)
