"""Pictures of runs: learning curves and speeds, a panel for each game, seeds of one kind as a mean and a band."""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastdqn.envs import games as atari
from fastdqn.errors import UserError
from fastdqn.runs.limits import WINDOW_EPISODES
from fastdqn.tools.labels import Groups, in_order, shared_agent
from fastdqn.tools.pictures import drawing, save_picture
from fastdqn.tools.reading import Chosen, RunData, chosen, is_number, whole_lines

GRID = 400  # points of a mean curve
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Of Okabe & Ito 2008, "Color Universal Design", whom the colour-blind can tell apart; without yellow."""
UNFINISHED = (0, (2, 1.5))
"""The line of a run that has not finished."""
WIDTH = 9.0  # inches; with it 10 points are as large as the text of a page that shows the picture at its own width
TICKS = (1, 2, 2.5, 5, 10)  # what ticks are multiples of
LETTERS = 118  # of a line of the legend

Axis = Literal["env_steps", "elapsed"]


class Scale(NamedTuple):
    """The unit of a horizontal axis."""

    words: str
    size: float


class Panel(NamedTuple):
    """A panel's place, what it shows, and over what."""

    axes: Any
    game: str
    over: Axis


def style_of(number: int) -> tuple[str, Any]:
    """Return the colour and the line of one of several: another line for each round of the colours."""
    turn, color = divmod(number, len(COLORS))
    return COLORS[color], ("-", "-.")[turn] if turn < 2 else (0, (8, 2, *(1, 2) * (turn - 2)))  # and one more dot each


@drawing()
def draw_curves(groups: Groups, out: Path, games: int = WINDOW_EPISODES, over: Axis | None = None) -> None:
    """Draw the mean score of the last games, a panel for each game and a colour for each label.

    Runs that differ in their seed alone are drawn as their mean and the range from the lowest to the highest: those
    that have finished, the newest of each seed; a run that has ended counts on with its last value. A run that has not
    finished is a thin dashed line of its own, if its seed has none that has.

    Args:
        groups: runs by game and label, at least one, each with a finished game.
        out: the picture; PNG, SVG or PDF by its ending.
        games: that are averaged.
        over: the horizontal axis; by default both in turn for one game, env steps for several.

    Raises:
        RunError: the picture cannot be written.
    """
    axes: tuple[Axis, ...] = (over,) if over else ("elapsed", "env_steps") if len(groups) == 1 else ("env_steps",)
    runs = _all(groups)
    picture = Picture(groups, {axis: max(float(run.episodes[-1][axis]) for run in runs) for axis in axes})
    dotted = games > 1 and all(len(labels) <= 3 for labels in groups.values())
    dots, bands = False, False
    for panel in picture.panels:
        size = picture.scales[panel.over].size
        for label, sorted_runs in picture.chosen[panel.game].items():
            color, line = picture.styles[label]
            curves = [
                curve for curve in (run.curve(panel.over, games) for run in sorted_runs.finished) if curve[0].size
            ]
            if len(curves) > 1:
                bands = True
                grid, stacked = common_grid(curves)
                panel.axes.plot(grid / size, stacked.mean(axis=0), color=color, linestyle=line, marker=_marker(grid))
                low, high = stacked.min(axis=0), stacked.max(axis=0)
                panel.axes.fill_between(grid / size, low, high, color=color, alpha=0.15, linewidth=0)
            elif curves:
                x, y = curves[0]
                panel.axes.plot(x / size, y, color=color, linestyle=line, marker=_marker(x))
            for run in sorted_runs.unfinished:
                x, y = run.curve(panel.over, games)
                panel.axes.plot(x / size, y, color=color, linestyle=UNFINISHED, linewidth=1.0, marker=_marker(x))
            alone = _drawn(sorted_runs)
            if dotted and len(alone) == 1:
                dots = True
                x, y = alone[0].curve(panel.over, 1)
                panel.axes.plot(x / size, y, ".", markersize=3.5, alpha=0.45, markeredgewidth=0, color=color, zorder=1)
    score = f"score, mean of the last {games} games" if games > 1 else "score of each game"
    said = [words for words, there in (("dot: a game", dots), ("band: lowest to highest run", bands)) if there]
    picture.finish(out, "learning curves", score, said)


@drawing()
def draw_speeds(groups: Groups, out: Path) -> None:
    """Draw env steps/s over time, a panel for each game, a line for each run and a colour for each label.

    Raises:
        UserError: a run has no speeds.
        RunError: the picture cannot be written.
    """
    sorted_by_kind = [chosen(runs) for labels in groups.values() for runs in labels.values()]
    speeds = {run.folder: speeds_of(run) for kind in sorted_by_kind for run in _drawn(kind)}
    picture = Picture(groups, {"elapsed": max(float(x[-1]) for x, _ in speeds.values())}, means=False)
    for panel in picture.panels:
        for label, sorted_runs in picture.chosen[panel.game].items():
            color, line = picture.styles[label]
            for run in _drawn(sorted_runs):
                x, y = speeds[run.folder]
                style: dict[str, Any] = {"linestyle": line if run.finished else UNFINISHED, "linewidth": 0.8}
                panel.axes.plot(x / picture.scales["elapsed"].size, y, color=color, marker=_marker(x), **style)
        panel.axes.set_ylim(bottom=0)
    picture.finish(out, "speed", "env steps/s", [])


def common_grid(
    curves: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return a common x (points,) and the curves on it, (runs, points); each continues with its last value.

    It begins where every run has finished a game.
    """
    first, last = max(float(x[0]) for x, _ in curves), max(float(x[-1]) for x, _ in curves)
    grid: NDArray[np.float64] = np.linspace(first, last, GRID if last > first else 1)
    return grid, np.stack([np.interp(grid, x, y) for x, y in curves])


class Picture:
    """Panels in a grid under one title and above one legend.

    Args:
        groups: runs by game and label.
        over: horizontal axes, each with the last value that is drawn over it; each game has a panel for each of them.
        means: whether the runs of a label that have finished are drawn as their mean.
    """

    def __init__(self, groups: Groups, over: Mapping[Axis, float], means: bool = True) -> None:
        from matplotlib.figure import Figure

        self._runs = _all(groups)
        self.chosen = {game: {name: chosen(runs) for name, runs in labels.items()} for game, labels in groups.items()}
        names = sorted({label for labels in groups.values() for label in labels}, key=in_order)
        self.styles: Mapping[str, tuple[str, Any]] = {name: style_of(i) for i, name in enumerate(names)}
        self._means = means
        self.scales = {axis: _scale(axis, last) for axis, last in over.items()}
        count = len(groups) * len(over)
        columns = count if count <= 3 else 2 if count == 4 else 3
        rows = math.ceil(count / columns)
        self._height = 3.6 if rows == 1 else 2.5 * rows
        self._figure: Any = Figure(figsize=(WIDTH, self._height), layout="constrained")
        grid = self._figure.subplots(rows, columns, sharey=len(groups) == 1, squeeze=False)
        self._columns = columns
        places: list[Any] = grid.flatten().tolist()
        self.panels = [Panel(places.pop(0), game, axis) for game in groups for axis in over]
        for unused in places:
            unused.remove()

    def finish(self, out: Path, what: str, y: str, said: Sequence[str]) -> None:
        """Add titles, axes' labels and the legend, and write the picture.

        Args:
            out: the picture.
            what: it shows, for the title.
            y: label of the vertical axes.
            said: of what is drawn, besides the labels.

        Raises:
            RunError: it cannot be written.
        """
        one_game = len(self.chosen) == 1
        agent = shared_agent(self._runs)
        title = f"{atari.title_of(next(iter(self.chosen)))}: {what}" if one_game else what.capitalize()
        self._figure.suptitle(f"{title}, agent {agent}" if agent else title, fontsize=12)
        for i, panel in enumerate(self.panels):
            words = self.scales[panel.over].words
            if not one_game:
                panel.axes.set_title(atari.title_of(panel.game), fontsize=10)
            elif len(self.panels) > 1:
                panel.axes.set_title("over time" if panel.over == "elapsed" else "over env steps", fontsize=10)
            if i >= len(self.panels) - self._columns:
                panel.axes.set_xlabel(words)
            tidy(panel.axes)
        if len(self.panels) > self._columns:
            self._figure.supylabel(y, fontsize=10)
        else:
            self.panels[0].axes.set_ylabel(y)
        self._legend(said)
        save_picture(self._figure, out, dpi=150)

    def _legend(self, said: Sequence[str]) -> None:
        """Draw the legend below the panels, in as many columns as its words leave room for."""
        from matplotlib.lines import Line2D

        handles = [
            Line2D([], [], color=self.styles[label][0], linestyle=line or self.styles[label][1], linewidth=width)
            for label, line, width, _ in self._entries()
        ]
        words = [textwrap.fill(words, LETTERS - 8) for *_, words in self._entries()]
        longest = max(len(line) for text in words for line in text.splitlines())
        columns = max(1, min(len(words), LETTERS // (longest + 8)))
        rows = math.ceil(len(words) / columns) + sum(text.count("\n") for text in words) + bool(said)
        self._figure.set_size_inches(WIDTH, self._height + 0.2 * rows + 0.3)
        place: dict[str, Any] = {"loc": "outside lower center", "ncols": columns, "frameon": False}
        self._figure.legend(handles, words, title="; ".join(said) or None, fontsize=9, title_fontsize=9, **place)

    def _entries(self) -> Iterator[tuple[str, Any, float, str]]:
        """Yield for each line of the legend: label, style of the line or None for the label's, width, words."""
        for label in self.styles:
            here = [labels[label] for labels in self.chosen.values() if label in labels]
            counts = [len(runs.finished) for runs in here if runs.finished]
            if counts:
                low, high = min(counts), max(counts)
                runs = f"{low if low == high else f'{low} to {high}'} runs"
                many = f" ({'mean of ' if self._means else ''}{runs})" if high > 1 else ""
                yield label, None, 1.5, f"{label}{many}"
            for ended, count in _unfinished(here).items():
                many = f" ({count} runs)" if count > 1 else ""
                yield label, UNFINISHED, 1.0, f"{label}: {ended}{many}"


def _unfinished(sorted_runs: Sequence[Chosen]) -> dict[str, int]:
    """Return how the unfinished runs ended, and how many of them each."""
    endings = [run.ended for runs in sorted_runs for run in runs.unfinished]
    return {ended: endings.count(ended) for ended in dict.fromkeys(endings)}


def _drawn(sorted_runs: Chosen) -> list[RunData]:
    return [*sorted_runs.finished, *sorted_runs.unfinished]


def _all(groups: Groups) -> list[RunData]:
    return [run for labels in groups.values() for runs in labels.values() for run in runs]


def _scale(axis: Axis, last: float) -> Scale:
    if axis == "elapsed":
        return Scale("hours since the start", 3600.0) if last > 3 * 3600 else Scale("minutes since the start", 60.0)
    return Scale("million env steps", 1e6) if last > 2e6 else Scale("thousand env steps", 1e3)


def _marker(x: NDArray[np.float64]) -> str | None:
    """Return how the points of a curve are marked: one that is a single point would be no line."""
    return "o" if x.size == 1 else None


def speeds_of(run: RunData) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return elapsed seconds and env steps/s of a run while it trained.

    Raises:
        UserError: it has no speeds, or they are damaged.
    """
    try:
        lines = whole_lines((run.folder / "speed.jsonl").read_text(encoding="utf-8"))
        known = [(line["elapsed"], line["env_steps_per_s"]) for line in lines if line["env_steps_per_s"] is not None]
        if not all(map(is_number, itertools.chain(*known))):
            raise ValueError("no numbers")
        points = np.array(known, np.float64).reshape(-1, 2)
    except OSError as error:
        raise UserError(f"{run.folder} has no speeds: {error.strerror}.") from error
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise UserError(f"The speed.jsonl of the run {run.folder} is damaged.") from error
    if not len(points):
        raise UserError(f"{run.folder} has no speeds yet.")
    return points[:, 0], points[:, 1]


def tidy(axes: Any) -> None:
    """Let the axes of a panel look as those of all pictures do."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.3)
    axes.set_xlim(left=0)
    axes.tick_params(labelsize=9)
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=TICKS))
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=TICKS))
    axes.yaxis.set_major_formatter(FuncFormatter(_figure))


def _figure(value: float, _: int | None = None) -> str:
    """Return what stands at a tick."""
    return f"{value:,.10g}"
