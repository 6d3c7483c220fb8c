"""Comparing runs: a line for each; for runs that differ in their seed alone also medians and the interquartile mean."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from fastdqn.envs.games import title_of
from fastdqn.envs.scores import human_normalised
from fastdqn.terminal import console_for_tables
from fastdqn.tools.labels import Groups, shared_agent
from fastdqn.tools.reading import Chosen, RunData, chosen
from fastdqn.tools.report.metrics import intervals_of

NARROW = 14  # letters of a label, at least
AROUND = "±: the standard error over the games of one run, not over seeds."
EVALUATION = "evaluation"
HUMAN = "human: of the final games where a run has them, else of mean-100."
FEW = 4
"""Runs of which an interquartile mean leaves none out, and an interval is the lowest and the highest."""
ABOUT = (
    "IQM: of scores the mean of their middle half (of fewer than four runs that of all), and its 95% interval by "
    "bootstrap over the runs, too narrow with fewer than ten (of fewer than four runs the lowest and the highest "
    "score); of minutes, env steps and speeds the median, where beside runs that were solved the others took for ever."
)


def _reached(run: RunData, name: str, unit: float) -> float | None:
    """Return how far a run came by its summary, or by its last game where that is of an earlier process or missing."""
    last: Any = run.episodes[-1][name] if run.episodes else None
    value = last if run.ended == "running" else run.summary.get(name, last)
    return None if value is None else value / unit


def _human(run: RunData) -> float | None:
    final = _examined(run, EVALUATION)
    score = run.mean_100 if final is None else final
    return None if score is None else human_normalised(run.game, score)


def _speed(run: RunData) -> float | None:
    return run.summary.get("median_env_steps_per_s")


def _mean(run: RunData) -> float | None:
    return run.mean_100


def _examined(run: RunData, examined: str, name: str = "mean") -> float | None:
    return run.summary.get(examined, {}).get(name)


class Column(NamedTuple):
    """A figure of a run, and how it is written."""

    heading: str
    of: Callable[[RunData], float | None]
    form: str
    score: bool = False  # of several runs the interquartile mean, otherwise the median
    until_solved: bool = False  # a run that was not solved never reached it
    examined: str = ""  # for a score of games after the training: its name in summary.json


COLUMNS = (
    Column("minutes", partial(_reached, name="elapsed", unit=60.0), "{:,.1f}", until_solved=True),
    Column("env\nsteps", partial(_reached, name="env_steps", unit=1.0), "{:,.0f}", until_solved=True),
    Column("env\nsteps/s", _speed, "{:,.1f}"),
    Column("mean-100", _mean, "{:,.2f}", True),
    Column("human", _human, "{:,.0%}", True),
    Column("fresh\ngames", partial(_examined, examined="fresh"), "{:,.2f}", True, examined="fresh"),
    Column("Nature's\nprotocol", partial(_examined, examined="nature"), "{:,.2f}", True, examined="nature"),
    Column("final\ngames", partial(_examined, examined=EVALUATION), "{:,.2f}", True, examined=EVALUATION),
)
"""From `human` on they are shown only where a run has them. Games are fresh that were played after the run was solved;
the final ones are Atari-100k's."""
ALWAYS = COLUMNS[:4]


def table_of(groups: Groups) -> Table:
    """Return the table of runs: a section for each game and label, a line for each run.

    Where several runs of a label have finished, lines have their medians, the interquartile means of their scores and
    the ends of the intervals; a run that does not count among them is marked.
    """
    runs = [run for labels in groups.values() for members in labels.values() for run in members]
    columns = [column for column in COLUMNS if column in ALWAYS or any(column.of(run) is not None for run in runs)]
    kinds = {game: {label: chosen(runs) for label, runs in labels.items()} for game, labels in groups.items()}
    several = any(len(kind.finished) > 1 for labels in kinds.values() for kind in labels.values())
    around = any(_examined(run, column.examined, "standard_error") is not None for run in runs for column in columns)
    final = any(_examined(run, EVALUATION) is not None and _human(run) is not None for run in runs)
    captions = [*([ABOUT] if several else []), *([AROUND] if around else []), *([HUMAN] if final else [])]
    table = _table(" ".join(captions) or None)
    table.add_column("seed", justify="right", no_wrap=True)
    table.add_column("ended", no_wrap=True)
    for column in columns:
        table.add_column(column.heading, justify="right", no_wrap=True)
    agent = shared_agent(runs)
    for game, labels in groups.items():
        table.add_row(Text(f"{title_of(game)}, agent {agent}" if agent else title_of(game), style="bold"))
        for label, members in labels.items():
            kind, words = kinds[game][label], label
            counting = {run.folder for run in kind.finished}
            for run in members:
                counts = run.folder in counting
                ended = f"{_ended(run)}{'' if counts or len(members) == 1 else ' *'}"
                cells = [str(run.seed), ended, *(_cell(run, column) for column in columns)]
                table.add_row(Text(words), *cells, style="" if counts else "dim")
                words = ""
            if len(kind.finished) > 1:
                for line, style in zip(_together(kind, columns), ("bold", "", ""), strict=True):
                    table.add_row(*line, style=style)
            table.add_section()
    return table


def means_of(groups: Groups, means: Mapping[Path, float]) -> Table:
    """Return the table of what runs score in an evaluation: a line for each game and label, over its runs that count.

    Args:
        groups: runs by game and label.
        means: the mean score of each, by its folder.
    """
    table = _table()
    for heading in ("runs", "mean", "lowest", "highest", "human"):
        table.add_column(heading, justify="right", no_wrap=True)
    for game, labels in groups.items():
        table.add_row(Text(title_of(game), style="bold"))
        for label, members in labels.items():
            scores = [means[run.folder] for run in chosen(members).finished]
            if scores:
                mean = statistics.fmean(scores)
                human = human_normalised(game, mean)
                cells = [f"{value:,.2f}" for value in (mean, min(scores), max(scores))]
                table.add_row(Text(label), str(len(scores)), *cells, "-" if human is None else _shown("{:,.0%}", human))
        table.add_section()
    return table


def show(table: Table, notes: Sequence[str]) -> None:
    """Print a table, as wide as it needs to be, and sentences on it."""
    console = console_for_tables()
    wide = console.width
    console.width = 1000  # to measure what the table would like to have
    longest = max(len(str(cell)) for cell in table.columns[0].cells)
    least = console.measure(table).maximum - max(longest - NARROW, 0)  # only the first column can be folded
    console.width = max(wide, least)
    console.print(table)
    for note in notes:
        console.print(note, soft_wrap=True)


def notes_of(groups: Groups) -> list[str]:
    """Return a sentence for each run that is marked in the table, and one if their speeds cannot be compared."""
    notes = left_out(groups)
    machines = {run.machine for labels in groups.values() for members in labels.values() for run in members}
    if len(machines - {None}) > 1:
        said = "The runs had different machines or numbers of cores"
        notes.append(f"{said}: their minutes and env steps/s say little of each other.")
    return notes


def left_out(groups: Groups, lone: bool = False) -> list[str]:
    """Return a sentence for each run that does not count with others of its kind; `lone` ones have no others."""
    return [
        f"* {folder} {why}: it does not count."
        for labels in groups.values()
        for members in labels.values()
        if lone or len(members) > 1
        for folder, why in chosen(members).left_out.items()
    ]


def _table(caption: str | None = None) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    table.caption, table.caption_justify = caption, "left"
    table.add_column("run", min_width=NARROW, overflow="fold")
    return table


def _cell(run: RunData, column: Column) -> str:
    value, error = column.of(run), _examined(run, column.examined, "standard_error")
    if value is None:
        return "-"
    return _shown(column.form, value) + ("" if error is None else f" ± {error:.2f}")


def _shown(form: str, value: float) -> str:
    """Return a value in a column's form; what is rounded to 0 has no sign."""
    said = form.format(value)
    return said if any(digit in said for digit in "123456789") else said.lstrip("-")


def _ended(run: RunData) -> str:
    """Return how a run ended; one that its fresh games refute counts as no record."""
    return "not confirmed" if run.ended == "solved" and not _confirmed(run) else run.ended


def _confirmed(run: RunData) -> bool:
    return run.summary.get("confirmed") is not False


def _together(kind: Chosen, columns: Sequence[Column]) -> list[list[str]]:
    """Return the lines of several finished runs: medians and interquartile means, and the ends of their intervals."""
    runs = kind.finished
    solved = [run.ended == "solved" and _confirmed(run) for run in runs]
    asked = any(run.config["run"].get("stop_score") is not None for run in runs)
    name, ends = ("mean", ("lowest", "highest")) if len(runs) < FEW else ("IQM", ("95% from", "to"))
    lines = [[f"{name} of {len(runs)} runs", "", f"{sum(solved)}/{len(runs)} solved" if asked else ""]]
    lines += [[f"  {end}", "", ""] for end in ends]
    for column in columns:
        values = [value for value in map(column.of, runs) if value is not None]
        if any(solved) and column.until_solved and len(values) == len(runs):
            values = [value if done else math.inf for value, done in zip(values, solved, strict=True)]
        cells = ["-", "", ""]
        if len(values) == len(runs):
            found = intervals_of({"": np.array(values)})["iqm"] if column.score else [statistics.median(values)]
            cells[: len(found)] = [
                "-" if value is None or value == math.inf else _shown(column.form, value) for value in found
            ]
        for line, cell in zip(lines, cells, strict=True):
            line.append(cell)
    return lines
