"""The way of a script's options through the code is short, and nothing depends on what kind of options they are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.helpers.scripts import ROOT
from tests.helpers.way import way_of

SCRIPTS = sorted(path.stem for path in (ROOT / "experiments").glob("[0-9]*.py"))
LIBRARY = sorted((ROOT / "fastdqn").rglob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS)
def test_options_visit_few_files_and_return_to_none_twice(script: str) -> None:
    way = way_of(script)
    ranked = "fastdqn/runs/ranked.py" in way  # over ranks: two files more, what they are and what their runs are
    resets = "fastdqn/algorithms/resets.py" in way  # one more, which has these options to itself
    assert len(way) <= 10 + 2 * ranked + resets, f"options go through more files: {way}; pass a value on, not its group"
    assert max(way.values()) <= 2, f"options come back to a file: {way}; pass a value on, not its group"


def test_the_way_is_really_followed() -> None:
    """The control: through a module, into a class, by a group that was put down, and into another process."""
    way = way_of("11_pong_in_seconds")
    for file in ("build.py", "envs/vector.py", "envs/opencv.py", "runs/run.py", "runs/checkpointing.py"):
        assert way[f"fastdqn/{file}"] == 1
    assert way["fastdqn/algorithms/exploration.py"] == 1
    assert way_of("03_parallel")["fastdqn/envs/build.py"] == 2  # here, and in the player's process


@pytest.mark.parametrize("path", [*LIBRARY, *(ROOT / "experiments").glob("*.py")], ids=str)
def test_nothing_asks_which_kind_of_options_it_has(path: Path) -> None:
    assert not re.search(r"isinstance\((options|defaults|self\.options)\b", path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", LIBRARY, ids=str)
def test_no_library_file_knows_a_script_by_its_number_or_name(path: Path) -> None:
    """But for what people are told of options: their help (docstrings), and which script has them (cli/synonyms.py)."""
    text = path.read_text(encoding="utf-8")
    if path.parent.name != "options" and path.name != "synonyms.py":
        numbers = "|".join(script.name[:2] for script in (ROOT / "experiments").glob("[0-9]*.py"))
        assert not re.findall(rf"\b(?:{numbers}) to (?:{numbers})\b|\b(?:scripts?|runs of) (?:{numbers})\b", text)
    assert not [script for script in SCRIPTS if script in text]
    if path.name != "synonyms.py":
        assert not re.findall(r"(?<![\w.,:-])0[1-9](?![\w.,:%-])", text)
