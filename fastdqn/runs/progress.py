"""The progress of a run on a terminal: a line of figures, and a bar for the nearer limit."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from rich.console import Group
from rich.control import Control
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.segment import ControlType, Segment
from rich.table import Table
from rich.text import Text

from fastdqn import process, terminal
from fastdqn.runs.counters import Counters
from fastdqn.runs.limits import StopTest
from fastdqn.runs.stopwatch import percentages

FIRST = ("env steps", "mean-100", "left", "env steps/s", "elapsed", "games")
"""What a narrow terminal shows as long as it has room for it, the most important first."""
_GAP = 2  # columns between two cells
_BAR = (10, 28)  # columns, at least and at most
DAY = 86_400
KNOWN_AFTER = 30.0
"""Seconds of training after which the speed is known well enough to say how long a run will take."""


class Progress:
    """Shows how a run stands, once a second on a terminal and every 10 s elsewhere, unless told otherwise.

    A narrow terminal shows fewer figures. When one has been resized, what it has made of the lines shown last is taken
    away first.

    Args:
        counters: of the run.
        stop: its stop test.
        formats: which of the script's values and metrics are shown, and in which format.
        warm_up: env steps before the first update.
        seconds: between two reports, None for the default.
    """

    def __init__(
        self, counters: Counters, stop: StopTest, formats: Mapping[str, str], warm_up: int, seconds: float | None
    ) -> None:
        self._counters, self._stop_test, self._formats, self._warm_up = counters, stop, dict(formats), warm_up
        self._speed: float | None = None
        self._metrics: Mapping[str, float] = {}
        self._console = terminal.console()
        self._alive = terminal.moves(self._console)
        self._seconds = seconds or (1.0 if self._alive else 10.0)
        self._next = 0.0
        self._live: Live | None = None
        self._drawn: list[int] = []  # columns of each line shown last
        self._trained: tuple[float, int] | None = None  # when this process first showed a trained run; env steps then
        self._warned = False

    def say(self, sentence: str) -> None:
        """Print a sentence."""
        self._erase_wrapped()
        self._console.print(sentence, soft_wrap=True)

    def newest(self, env_steps_per_s: float | None, metrics: Mapping[str, float]) -> None:
        """Take the newest speed and the newest metrics of an update."""
        self._speed, self._metrics = env_steps_per_s, metrics

    def start(self) -> None:
        """Begin to show."""
        if self._alive:
            self._live = Live(self._display(), console=self._console, auto_refresh=False)
            self._live.start()

    def stop(self) -> None:
        """Leave the terminal as it is."""
        if self._live is not None:
            self._draw(self._live)
            self._live.stop()
            self._drawn = []

    def show(self, now: float) -> None:
        """Show how the run stands, if it is time to; `now` is `time.perf_counter`'s. Once it is known, say how long a
        run of more than a day will take.
        """
        if now < self._next:
            return
        self._warn(now)
        if self._live is not None:
            self._draw(self._live)
        elif self._next > 0.0:
            self.say(" | ".join(f"{name} {value}" for name, value in self._line().items()))
        self._next = now + self._seconds

    def _line(self) -> dict[str, str]:
        counters, mean, left = self._counters, self._stop_test.mean_score, self._left(self._speed)
        shown = {name: counters.values.get(name, self._metrics.get(name)) for name in self._formats}
        return {
            "env steps": f"{counters.env_steps:,}",
            "env steps/s": "-" if self._speed is None else f"{self._speed:,.1f}",
            "games": f"{self._stop_test.episodes:,}",
            "mean-100": "-" if mean is None else f"{mean:.2f}",
            **{name: "-" if value is None else format(value, self._formats[name]) for name, value in shown.items()},
            "elapsed": clock(process.elapsed()),
            "left": "-" if left is None else days(left),
        }

    def _fraction(self) -> float:
        """How much of the nearer limit is used up, 0 to 1."""
        limits, elapsed = self._stop_test.limits, process.elapsed()
        parts = [0.0]
        if limits.max_env_steps:
            parts.append(self._counters.env_steps / limits.max_env_steps)
        if limits.deadline is not None:
            parts.append(elapsed / max(elapsed, elapsed + limits.deadline - time.monotonic()))
        return min(1.0, max(parts))

    def _left(self, speed: float | None) -> float | None:
        """Seconds to the nearer limit at so many env steps/s."""
        limits = self._stop_test.limits
        left: list[float] = []
        if limits.deadline is not None:
            left.append(limits.deadline - time.monotonic())
        if limits.max_env_steps and speed:
            left.append((limits.max_env_steps - self._counters.env_steps) / speed)
        return max(0.0, min(left)) if left else None

    def _warn(self, now: float) -> None:
        """Say once how many days it is to the nearer limit, where it is more than one."""
        if self._warned or self._counters.updates == 0:
            return
        since, env_steps = self._trained = self._trained or (now, self._counters.env_steps)
        if now - since < KNOWN_AFTER:
            return
        self._warned = True
        speed = (self._counters.env_steps - env_steps) / (now - since)
        left = self._left(speed)
        if left is not None and left > DAY:
            self.say(f"at {speed:,.0f} env steps/s it is {left / DAY:.1f} days to the limit")

    def _doing(self) -> str:
        counters = self._counters
        left = self._warm_up + counters.discarded_at - counters.env_steps
        return f"{left:,} env steps to the first update" if left > 0 else "training"

    def _draw(self, live: Live) -> None:
        display = self._display()
        self._erase_wrapped()
        live.update(display, refresh=True)
        self._drawn = [Segment.get_line_length(line) for line in self._console.render_lines(display, pad=False)]

    def _erase_wrapped(self) -> None:
        """Erase the rows that a terminal made narrower has added to the lines shown last; rich erases one for each."""
        added = sum(max(0, length - 1) // self._console.width for length in self._drawn)
        self._drawn = []
        if not added:  # a notebook would show it as an empty output
            return
        up = (ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2), (ControlType.CURSOR_UP, 1))
        self._console.control(Control(*up * added))

    def _display(self) -> Group:
        width = self._console.width
        cells = fitting(self._line(), width)
        table = Table(box=None, pad_edge=False, padding=(0, _GAP // 2))
        for name in cells:
            table.add_column(name, justify="right", style="bold", header_style="dim", no_wrap=True)
        table.add_row(*cells.values())
        share = f"{int(100 * self._fraction())}%"
        least, most = _BAR
        texts = (f"{share} of the limit, {self._doing()}", f"{share}, {self._doing()}", share)
        text = next((text for text in texts if least + 1 + len(text) <= width), share)
        bar = Table.grid(padding=(0, 1))
        bar.add_column(no_wrap=True)
        bar.add_column(no_wrap=True)
        shown = ProgressBar(total=1.0, completed=self._fraction(), width=max(1, min(most, width - 1 - len(text))))
        bar.add_row(shown, Text(text))
        return Group(table, bar)


def fitting(cells: Mapping[str, str], width: int) -> dict[str, str]:
    """Return those of `cells` that `width` columns have room for, with their headings: the most important, in order."""
    kept: set[str] = set()
    left = width + _GAP
    for name in (*FIRST, *(name for name in cells if name not in FIRST)):
        needs = max(len(name), len(cells[name])) + _GAP
        if needs <= left or not kept:
            kept.add(name)
            left -= needs
    return {name: value for name, value in cells.items() if name in kept}


def clock(seconds: float) -> str:
    """Return h:mm:ss."""
    minutes, second = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{second:02}"


def days(seconds: float) -> str:
    """Return h:mm:ss, or from a day on days and hours: 2 d 3 h."""
    if seconds < DAY:
        return clock(seconds)
    day, hour = divmod(int(seconds // 3600), 24)
    return f"{day} d {hour} h"


def ending(summary: Mapping[str, Any], stop_score: float | None) -> str:
    """Return what the end of a run says of its summary; one without a stop score had nothing to solve."""
    how = "SOLVED" if summary["solved"] else "ended" if stop_score is None else "not solved"
    mean, speed = summary["mean_100"], summary["median_env_steps_per_s"]
    said = (
        f"{how} ({summary['reason']}) after {clock(summary['elapsed'])}: "
        f"{summary['env_steps']:,} env steps, {summary['updates']:,} updates, {summary['episodes']:,} games, "
        f"mean-100 {'-' if mean is None else f'{mean:.2f}'}, "
        f"median {'-' if speed is None else f'{speed:.1f}'} env steps/s"
    )
    where = f"\nwhere the time went since the first update: {percentages(summary['profile'])}"
    return said + (where if summary["profile"] else "")
