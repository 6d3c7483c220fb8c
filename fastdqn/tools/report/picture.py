"""A report as a picture: aggregates with intervals, the performance profile, scores by game."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fastdqn.envs.games import title_of
from fastdqn.tools.pictures import drawing, save_picture
from fastdqn.tools.plot import COLORS, style_of
from fastdqn.tools.report.metrics import NAMES, Interval, profile_band, profile_of
from fastdqn.tools.report.page import HEADINGS, games_of, of_runs, partial, published_aggregates
from fastdqn.tools.report.published import REFERENCES, published
from fastdqn.tools.report.read import Report
from fastdqn.tools.sweep.plan import atari_26

BESIDE = ("der-2019", "der-2021", "curl", "drq-eps", "spr")
"""Published agents that are drawn among the aggregates."""
NEAR = ("der-2021", "spr")
"""Those that are drawn game by game."""
_HIGHEST = 8.0
_LEVELS = np.linspace(0.0, _HIGHEST, 161)
_GRAY = ("#888888", "#bbbbbb")
_WIDTH = 11.0  # inches
_CHARACTERS = 30
"""Of a line of a label; longer ones are broken."""
_CHARACTER, _LINE = 0.075, 0.165
"""Width and height of one, in inches."""


@drawing()
def draw_report(report: Report, intervals: Mapping[str, Mapping[str, Interval]], out: Path) -> None:
    """Draw a report over the games that all its agents have, at least one.

    Raises:
        RunError: the picture cannot be written.
    """
    from matplotlib.figure import Figure

    games = games_of(report)
    lines = max(_wrapped(entry.label).count("\n") + 1 for entry in report.entries)
    rows = -(-(len(report.entries) + len(NEAR)) // _columns(report))
    heights = [
        max(4.6, 1.6 + _LINE * lines * (len(report.entries) + len(BESIDE))),
        1.0 + 0.25 * len(games) + (0.5 + lines) * _LINE * rows,
    ]
    figure: Any = Figure(figsize=(_WIDTH, sum(heights)), layout="constrained")
    above, below = figure.subfigures(2, 1, height_ratios=heights)
    few = f"{len(games)} of 26 games" if games != atari_26() else "not all runs"
    whole = "Atari-100k" if not partial(report) else f"Atari-100k, PARTIAL: {few}"
    figure.suptitle(whole, fontsize=13, color="black" if not partial(report) else COLORS[1])
    left, right = above.subfigures(1, 2, width_ratios=[1.5, 1.0])
    _draw_aggregates(left, report, intervals, games)
    _draw_profile(right.subplots(), report, games)
    _draw_games(below.subplots(), report, games)
    save_picture(figure, out, dpi=110)


def _color(number: int) -> str:
    return style_of(number)[0]


def _wrapped(label: str) -> str:
    return "\n".join(textwrap.wrap(label, _CHARACTERS))


def _columns(report: Report) -> int:
    """Return how many columns of the agents' labels a legend has room for."""
    longest = max(len(line) for entry in report.entries for line in _mean_of(entry.label).splitlines())
    return max(1, min(4, int((_WIDTH - 0.5) / (0.5 + _CHARACTER * longest))))


def _mean_of(label: str) -> str:
    return _wrapped(f"{label}, mean")


def _draw_aggregates(
    figure: Any, report: Report, intervals: Mapping[str, Mapping[str, Interval]], games: tuple[str, ...]
) -> None:
    ours = [_wrapped(entry.label) for entry in reversed(report.entries)]
    labels = [*(published()[key].label for key in reversed(BESIDE)), *ours]
    axes = figure.subplots(1, len(NAMES), sharey=True)
    for panel, name in zip(axes, NAMES, strict=True):
        for place, key in enumerate(reversed(BESIDE)):
            one = published()[key]
            inside = _GRAY[0] if name in of_runs(one, games) else "white"
            value = published_aggregates(one, games)[name]
            panel.plot(value, place, "o", color=_GRAY[0], markerfacecolor=inside, markersize=5)
        for number, entry in enumerate(report.entries):
            place = len(labels) - 1 - number
            found = intervals[entry.label][name]
            if found.low is not None and found.high is not None:
                panel.plot([found.low, found.high], [place, place], color=_color(number), linewidth=7, alpha=0.35)
            panel.plot(found.value, place, "|", color=_color(number), markersize=14, markeredgewidth=2.5)
        panel.set_title(HEADINGS[name], fontsize=10)
        panel.grid(axis="x", alpha=0.3)
        panel.locator_params(axis="x", nbins=4)
        panel.set_yticks(range(len(labels)), labels)
        panel.margins(x=0.12, y=0.08)
        panel.tick_params(labelsize=9)
    figure.supxlabel("human-normalised score; band: 95% interval; gray: published, hollow: of means", fontsize=9)


def _draw_profile(panel: Any, report: Report, games: tuple[str, ...]) -> None:
    most = max(float(entry.normalised()[game].max()) for entry in report.entries for game in games)
    levels = _LEVELS[max(1.5, min(_HIGHEST, most * 1.1)) >= _LEVELS]
    for number, entry in enumerate(report.entries):
        scores = {game: entry.normalised()[game] for game in games}
        color, line = style_of(number)
        panel.plot(levels, profile_of(scores, levels), color=color, linestyle=line, label=_wrapped(entry.label))
        if min(len(runs) for runs in scores.values()) > 1:
            low, high = profile_band(scores, levels)
            panel.fill_between(levels, low, high, color=color, alpha=0.2, linewidth=0)
    panel.axvline(1.0, color=_GRAY[1], linewidth=0.8, zorder=0)
    panel.set_title("performance profile", fontsize=10)
    panel.set_xlabel("human-normalised score t", fontsize=9)
    panel.set_ylabel("share of runs above t", fontsize=9)
    panel.set_ylim(0.0, 1.02)
    panel.grid(alpha=0.3)
    panel.legend(fontsize=9, frameon=False)
    panel.tick_params(labelsize=9)


def _draw_games(panel: Any, report: Report, games: tuple[str, ...]) -> None:
    first = report.entries[0].normalised()
    order = sorted(games, key=lambda game: float(first[game].mean()))
    apart = min(0.22, 0.8 / len(report.entries))  # rows are 1 apart
    for number, entry in enumerate(report.entries):
        scores, shift = entry.normalised(), apart * (number - (len(report.entries) - 1) / 2)
        for place, game in enumerate(order):
            runs = scores[game]
            panel.plot(runs, np.full(len(runs), place - shift), ".", color=_color(number), alpha=0.45, markersize=6)
        means = [float(scores[game].mean()) for game in order]
        places = np.arange(len(order)) - shift
        panel.plot(
            means,
            places,
            "Ds^"[number // len(COLORS) % 3],
            color=_color(number),
            markersize=5,
            label=_mean_of(entry.label),
        )
    for key, shape, color in zip(NEAR, ("x", "+"), _GRAY, strict=True):
        one = published()[key]
        means = [float(one.normalised(tuple(order))[game][0]) for game in order]
        panel.plot(
            means, range(len(order)), shape, color=color, markersize=7, label=f"{one.label}, published", zorder=1
        )
    for at in (0.0, 1.0):
        panel.axvline(at, color=_GRAY[1], linewidth=0.8, zorder=0)
    panel.set_xscale("symlog", linthresh=0.5)
    ticks = [-0.25, 0.0, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0]
    low, high = panel.get_xlim()
    panel.set_xticks([tick for tick in ticks if low <= tick <= high])
    panel.xaxis.set_major_formatter("{x:g}")
    panel.minorticks_off()
    panel.set_yticks(range(len(order)), [title_of(game) for game in order])
    panel.set_ylim(-0.7, len(order) - 0.3)
    panel.set_xlabel(
        f"human-normalised score ({REFERENCES[0]} 0, {REFERENCES[1]} 1; logarithmic above 0.5); dot: a run", fontsize=9
    )
    panel.grid(axis="y", alpha=0.25)
    panel.legend(fontsize=9, frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=_columns(report))
    panel.tick_params(labelsize=9)
