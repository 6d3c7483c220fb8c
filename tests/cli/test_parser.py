"""Command lines: somebody who reads no further."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.helpers.scripts import ROOT


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
