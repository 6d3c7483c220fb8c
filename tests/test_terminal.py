"""The terminal: a stream that is closed, or that lacks a letter, ends nothing."""

from __future__ import annotations

import array
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.table import Table

from fastdqn.terminal import console, console_for_tables, moves, typed
from tests.helpers.marks import posix_signals
from tests.helpers.scripts import with_root
from tests.helpers.waiting import wait_until

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


@posix_signals
def test_a_file_that_may_not_grow_is_a_failure(tmp_path: Path) -> None:
    words = ["sh", "-c", 'ulimit -f 1; exec "$0" -m fastdqn.cli.main games > list', sys.executable]
    done = subprocess.run(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=with_root(), check=False)
    assert (done.returncode, done.stderr) == (1, "error: Not all could be printed: File too large.\n")


@posix_signals
def test_a_pipe_that_does_not_wait_gets_everything_all_the_same() -> None:
    """As a program in between may leave one behind: what it has no room for comes later."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    command = [sys.executable, "-c", "from fastdqn.terminal import say; say('ä' * 100_000); say('the end')"]
    with subprocess.Popen(command, stdout=writer, env={**with_root(), "PYTHONIOENCODING": "utf-8"}) as child:
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            time.sleep(1.0)
            assert pipe.read() == ("ä" * 100_000 + "\nthe end\n").encode()
        assert child.wait(60) == 0


STANDS = """
import sys
from fastdqn import process
process.take_over()
from fastdqn.terminal import console, say
with process.running():
    shown = console()
    while not process.stop_signal():
        say("x" * 200)
        shown.print("y" * 200)
    say("and more")
    open(sys.argv[1], "w").close()
sys.exit(process.exit_code())
"""


@posix_signals
def test_a_reader_that_stands_still_does_not_keep_a_run_from_stopping(tmp_path: Path) -> None:
    """A pager, or a terminal after Ctrl-S: what a run leaves behind at a signal is left behind."""
    command = [sys.executable, "-c", STANDS, str(tmp_path / "saved")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=with_root()) as child:
        try:
            wait_until(lambda: full(child), 60.0)
            child.terminate()
            code = child.wait(30)
        finally:
            child.kill()
    assert (code, (tmp_path / "saved").exists()) == (143, True)


def full(child: subprocess.Popen[bytes]) -> bool:
    """Tell whether a child's pipe has no room for a piece more."""
    from fcntl import ioctl
    from termios import FIONREAD

    assert child.stdout is not None
    held = array.array("i", [0])
    ioctl(child.stdout, FIONREAD, held)
    return held[0] > 60_000


def test_a_narrow_terminal_has_the_list_of_games_whole() -> None:
    command = [sys.executable, "-m", "fastdqn.cli.main", "games", "battle"]
    env = {**with_root(), "COLUMNS": "20", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    row = next(line for line in done.stdout.splitlines() if "battle_zone" in line)
    assert ("37,187.5" in row, "2,360.0" in row) == (True, True), done.stdout


def test_what_moves_is_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    """FORCE_COLOR, which many systems that test set, asks for colours in files, not for a display there."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    assert (console().is_terminal, moves(console())) == (True, False)


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
