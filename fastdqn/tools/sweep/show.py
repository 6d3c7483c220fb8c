"""How a sweep stands: a line for each run that is going on, and the time that is left for all."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any

from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fastdqn.terminal import console, moves
from fastdqn.tools.sweep.results import minutes_of

_KNOWN = 0.02
"""Share of a run after which its speed says how long it will take."""


class Shown:
    """Shows a sweep on a terminal, and elsewhere says each end of a run, as a context manager.

    Args:
        total: runs that are to be done.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = self._failed = 0
        self._left: float | None = None
        self._first: dict[str, float] = {}  # which share of a run was made when it was first seen: here or before
        self._console = console()
        self._live = Live(console=self._console, refresh_per_second=2, transient=True, auto_refresh=False)

    def __enter__(self) -> Shown:
        if moves(self._console):
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def say(self, sentence: str) -> None:
        """Print a line above what moves."""
        self._console.print(sentence, soft_wrap=True)

    def ended(self, result: Mapping[str, Any]) -> None:
        """Say what has come of a run."""
        self._done += 1
        said = (
            f"{result['name']}: score {result['score']:,.2f} ({result['score_of']}), {minutes_of(result):,.1f} minutes"
        )
        self.say(f"{said} [{self._stand()}]")

    def failed(self, name: str, why: str) -> None:
        """Say that a run has failed."""
        self._failed += 1
        self.say(f"{name}: FAILED: {why} [{self._stand()}]")

    def update(
        self, going: Mapping[str, tuple[float, float]], minutes: float | None, waiting: int, at_once: int
    ) -> None:
        """Show how all stands.

        Args:
            going: seconds and share of the env steps of each run that is going on.
            minutes: that a run takes, as those that have ended did.
            waiting: runs that have not ended.
            at_once: runs at a time.
        """
        if minutes is None:
            made = {name: share - self._first.setdefault(name, share) for name, (_, share) in going.items()}
            known = [going[name][0] / 60.0 / share for name, share in made.items() if share > _KNOWN]
            minutes = sum(known) / len(known) if known else None
        self._left = (
            None if minutes is None else left_of(minutes, [share for _, share in going.values()], waiting, at_once)
        )
        if self._live.is_started:
            self._live.update(self._picture(going), refresh=True)

    def _picture(self, going: Mapping[str, tuple[float, float]]) -> Group:
        table = Table.grid(padding=(0, 2, 0, 0))
        room = max(1, self._console.height - 3)  # what does not fit would be cut off without a word
        shown = sorted(going.items())[: room if len(going) > room + 1 else None]
        for name, (seconds, share) in shown:
            bar = ProgressBar(total=1.0, completed=share, width=20)
            table.add_row(Text(name), bar, Text(f"{share:4.0%}"), Text(duration(seconds)))
        more = [Text(f"and {len(going) - len(shown)} more")] if len(going) > len(shown) else []
        return Group(table, *more, Text(self._stand()))

    def _stand(self) -> str:
        said = f"{self._done} of {self._total} done"
        if self._failed:
            said += f", {self._failed} failed"
        return said if self._left is None else f"{said}, {duration(60.0 * self._left)} left"


def left_of(minutes: float, shares: list[float], waiting: int, at_once: int) -> float:
    """Return the minutes that are left for all.

    Args:
        minutes: that a run takes.
        shares: which share of each run that is going on has been done.
        waiting: runs that have not ended, those among them.
        at_once: runs at a time.
    """
    whole = minutes * (waiting - sum(shares))
    longest = minutes * (1.0 - min(shares)) if shares else 0.0
    return max(whole / at_once, longest)


def duration(seconds: float) -> str:
    """Return a time as a person says it, say 3 h 20 min."""
    minutes = round(seconds / 60.0)
    if seconds < 60.0:
        return f"{seconds:.0f} s"
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours // 24} d {hours % 24} h" if hours >= 48 else f"{hours} h {minutes} min"
