"""The terminal: a stream that is closed, or that lacks a letter, ends nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

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
