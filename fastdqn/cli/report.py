"""`fastdqn report`: what a sweep over Atari-100k comes to, beside published agents."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fastdqn.cli.folders import RunFolders
from fastdqn.errors import RunError, UserError
from fastdqn.terminal import say

if TYPE_CHECKING:
    from fastdqn.tools.report.metrics import Interval
    from fastdqn.tools.report.read import Report as Found


@dataclasses.dataclass(frozen=True)
class Report:
    """Write what a sweep over Atari-100k comes to, beside published agents: Markdown, CSV and a picture."""

    folders: RunFolders
    """Folders of sweeps, or of their results alone."""
    out: Path | None = None
    """Folder of report.md, report.csv and report.png; by default that of the first sweep."""


def report(options: Report) -> int:
    """Write the report and print its aggregates; return the exit code.

    Raises:
        UserError: there is nothing to report.
        RunError: it cannot be written.
    """
    if not options.folders:
        raise UserError("Name the folder of a sweep.")
    from fastdqn.runs.folder import write_whole
    from fastdqn.tools.report.page import csv_of, games_of, markdown, own_intervals, partial
    from fastdqn.tools.report.picture import draw_report
    from fastdqn.tools.report.read import read_report

    found = read_report(options.folders)
    out = options.out or found.folder
    intervals = own_intervals(found)
    pages = {"report.md": markdown(found, intervals, "report.png"), "report.csv": csv_of(found)}
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, text in pages.items():
            write_whole(out / name, lambda path, text=text: path.write_text(text, "utf-8", "backslashreplace"))
        if games_of(found):
            draw_report(found, intervals, out / "report.png")
    except OSError as error:
        raise RunError(f"Cannot write the report to {out}: {error.strerror}.") from error
    _show(found, intervals)
    for sentence in (*(f"PARTIAL: {one}" for one in partial(found)), *found.notes):
        say(sentence)
    say(f"written: {out / 'report.md'}, report.csv{', report.png' if games_of(found) else ''}")
    return 0


def _show(found: Found, intervals: Mapping[str, Mapping[str, Interval]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from fastdqn.tools.compare import show
    from fastdqn.tools.report.page import games_of, table_rows

    if not games_of(found):
        return
    headings, rows = table_rows(found, intervals)
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="right" if place else "left", no_wrap=place > 0)
    for number, row in enumerate(rows):
        table.add_row(*row, style="bold" if number < len(found.entries) else "")
    show(table, [f"human-normalised, over {len(games_of(found))} of the 26 games"])
