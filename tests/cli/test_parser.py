"""Command lines: somebody who reads no further."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fastdqn.cli.parser import _at_home
from tests.helpers.scripts import ROOT, parse


@pytest.mark.parametrize("words", [("experiments/11_pong_in_seconds.py",), ("-m", "fastdqn.cli.main", "plot")])
@pytest.mark.parametrize("lines", [0, 1])
def test_help_for_somebody_who_leaves(words: tuple[str, ...], lines: int) -> None:
    """`--help | head`: no traceback."""
    command = [sys.executable, "-u", *words, "--help"] if lines else [sys.executable, *words, "--help"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    assert process.stderr is not None
    for _ in range(lines):
        assert process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(timeout=60) == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
@pytest.mark.parametrize("out", [">/dev/full", ">&-"])
def test_help_that_goes_nowhere(out: str) -> None:
    words = ["sh", "-c", f'exec "$0" -m fastdqn.cli.main compare --help {out}', sys.executable]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_words_that_are_no_text_are_one_sentence() -> None:
    """As a shell hands them on from a name of a file in another encoding."""
    words = [sys.executable.encode(), b"-m", b"fastdqn.cli.main", b"evaluate", b"demo", b"--protocol", b"\xff"]
    done = subprocess.run(words, capture_output=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
    assert done.stderr.startswith(b"error: --protocol takes one of training, nature")


def test_the_home_folder_that_a_shell_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/at/home")
    assert _at_home("--runs-dir=~/runs") == "--runs-dir=/at/home/runs"
    assert [_at_home(word) for word in ("--x=a~/b", "~/x", "--x=~y/z")] == ["--x=a~/b", "~/x", "--x=~y/z"]


def test_two_threads_that_parse_leave_the_streams_as_they_were() -> None:
    before = sys.stdout, sys.stderr
    with ThreadPoolExecutor(4) as threads:
        seeds = list(threads.map(lambda seed: parse("01_baseline", "--seed", str(seed)).run.seed, range(12)))
    assert seeds == list(range(12))
    assert (sys.stdout, sys.stderr) == before
