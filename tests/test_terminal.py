"""The terminal: a stream that is closed, or that lacks a letter, ends nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.table import Table

from fastdqn.terminal import console, console_for_tables, typed
from tests.helpers.scripts import with_root

CODE = "from fastdqn.terminal import complain, console, say; say('Größe'); console().print('é'); complain('ends')"


@pytest.mark.skipif(sys.platform == "win32", reason="needs a shell")
@pytest.mark.parametrize(
    ("closed", "out", "err"), [("", "Gr??e\n?\n", "ends\n"), (">&-", "", "ends\n"), (">&- 2>&-", "", "")]
)
def test_streams_that_take_nothing(closed: str, out: str, err: str) -> None:
    words = ["sh", "-c", f'"$0" -c "$1" {closed}', sys.executable, CODE]
    done = subprocess.run(words, capture_output=True, text=True, env={**with_root(), "PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stdout, done.stderr) == (0, out, err)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is full")
@pytest.mark.parametrize("words", [("games", "pong"), ("--version",)])
def test_what_is_printed_onto_a_full_disk_is_a_failure(words: tuple[str, ...]) -> None:
    """A reader that ends, as head does, is none."""
    command = [sys.executable, "-m", "fastdqn.cli.main", *words]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=with_root())
    assert (done.returncode, done.stderr) == (1, "error: Not all could be printed: No space left on device.\n")
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as closed:
        done = subprocess.run(command, stdout=closed, stderr=subprocess.PIPE, text=True, env=with_root())
    assert (done.returncode, done.stderr) == (0, "")


def test_paths_are_shown_as_they_are_and_typed_in_quotes(capsys: pytest.CaptureFixture[str]) -> None:
    """Neither brackets nor colons are rich's here."""
    for made in (console(), console_for_tables()):
        made.print("[old] runs[/x] in zoo:car: 8", soft_wrap=True)
        table = Table("game")
        table.add_row("[old]:car:")
        made.print(table)
    said = capsys.readouterr().out
    assert said.count("[old] runs[/x] in zoo:car: 8\n") == 2
    assert said.count(" [old]:car: ") == 2
    assert (typed("runs/1"), typed(Path("my runs/1"))) == ("runs/1", "'my runs/1'")
    assert typed("-runs/1") == "./-runs/1"


def test_a_terminal_of_no_width_is_printed_to(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "0")
    console().print("solved")
    assert capsys.readouterr().out == "solved\n"
