"""The command lines that bench's own words and the documents show: each is parsed, and the scripts take every run of
bench/speedup.py.
"""

from __future__ import annotations

import ast
import re
import runpy
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import speedup
from bench.speedup import PLAIN, SpeedupOptions
from fastdqn.cli import parser
from fastdqn.errors import UserError
from tests.helpers.scripts import ROOT, parse

SHOWN = re.compile(r"^ *python (bench/\w+\.py)(.*)$", re.MULTILINE)


class Parsed(BaseException):
    """Raised with the options as soon as there are any."""


def examples() -> list[str]:
    """Return every command line of bench's that is shown, without what is said of it."""
    shown: dict[str, None] = {}
    for path in sorted([*(ROOT / "bench").glob("*.py"), *(ROOT / "docs").glob("*.md"), ROOT / "README.md"]):
        text = path.read_text(encoding="utf-8")
        for script, words in SHOWN.findall(
            (ast.get_docstring(ast.parse(text)) or "") if path.suffix == ".py" else text
        ):
            if "parsed(" in (ROOT / script).read_text(encoding="utf-8"):
                shown[re.split(r"\s{3,}|\s+# ", f"{script}{words}")[0].strip()] = None
    return list(shown)


def options_of(example: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the options that a script of bench takes from this command line.

    Raises:
        UserError: it does not take them.
    """
    real = parser.parsed
    script, *words = shlex.split(example)

    def parsed(*given: Any) -> Any:
        raise Parsed(real(*given))

    monkeypatch.setattr(parser, "parsed", parsed)
    monkeypatch.setattr(sys, "argv", [script, *words])
    with pytest.raises(Parsed) as caught:
        runpy.run_path(str(ROOT / script), run_name="__main__")
    monkeypatch.undo()
    return caught.value.args[0]


def test_what_is_shown_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(examples()) > 30
    for example in examples():
        assert options_of(example, monkeypatch) is not None, example
    with pytest.raises(SystemExit):
        options_of("bench/speedup.py --process 2", monkeypatch)


def runs_of(options: Any) -> None:
    """Let the scripts check every run that bench/speedup.py would make.

    Raises:
        UserError: a script refuses one.
    """
    for name, varied, world in speedup.planned(SpeedupOptions(**vars(options))):
        command = speedup.command_of(name, world, options, varied, "somewhere")
        parse(Path(command[1]).stem, *command[2:])
        assert world == PLAIN or "--processes" in command


def test_every_run_of_the_speed_ups_that_are_shown_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [options_of(one, monkeypatch) for one in examples() if one.startswith("bench/speedup.py")]
    assert len(found) > 4
    for options in found:
        runs_of(options)
    with pytest.raises(UserError, match="ends the run by the first update, which waits for --replay-initial 2048"):
        runs_of(SpeedupOptions(only="sac", processes="1,2", env_steps_each=2000))
