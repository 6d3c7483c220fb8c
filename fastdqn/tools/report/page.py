"""A report as Markdown and CSV: aggregates, scores by game, time and cost, and where published figures come from."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fastdqn.envs.games import title_of
from fastdqn.tools.labels import for_markdown
from fastdqn.tools.report.metrics import NAMES, Interval, aggregates_of, intervals_of
from fastdqn.tools.report.published import REFERENCES, Published, about, normalised, published
from fastdqn.tools.report.read import Entry, Report
from fastdqn.tools.sweep.plan import atari_26

HEADINGS = {"iqm": "IQM", "median": "median", "mean": "mean", "gap": "optimality gap"}
MARKS = "R: read first-hand; 2: read in somebody else's transcription; M: recalled, checked by aggregates alone."


def partial(report: Report) -> list[str]:
    """Return a sentence for each agent that is only a part."""
    return [f"{entry.label}: {'; '.join(entry.lacks)}" for entry in report.entries if entry.lacks]


def games_of(report: Report) -> tuple[str, ...]:
    """Return the games in which every agent of the report has a run, which aggregates are over."""
    return tuple(game for game in atari_26() if all(game in entry.games for entry in report.entries))


def own_intervals(report: Report) -> dict[str, dict[str, Interval]]:
    """Return the aggregates of each agent of the report over the games that all have, by label."""
    games = games_of(report)
    if not games:
        return {}
    return {entry.label: intervals_of({game: entry.normalised()[game] for game in games}) for entry in report.entries}


def published_aggregates(one: Published, games: tuple[str, ...]) -> dict[str, float]:
    """Return the aggregates of published means over these games; over all 26 those of runs where they are known."""
    found = aggregates_of(one.normalised(games))
    said = {name: float(getattr(found, name)) for name in NAMES}
    return said | (one.of_runs if games == atari_26() else {})


def of_runs(one: Published, games: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of those aggregates over these games that are the ones of runs; the others differ for means."""
    return ("median", "mean", *(one.of_runs if games == atari_26() else ()))


def markdown(report: Report, intervals: Mapping[str, Mapping[str, Interval]], picture: str) -> str:
    """Return the report as Markdown; `picture` is the name of the picture beside it."""
    games, parts = games_of(report), partial(report)
    lines = [f"# Atari-100k: {for_markdown(', '.join(entry.label for entry in report.entries))}", ""]
    if parts:
        lines += [
            f"**PARTIAL: no result of Atari-100k as a whole.** {for_markdown(sentence)}." for sentence in parts
        ] + [""]
    lines += [f"- {for_markdown(note)}" for note in report.notes] + ([""] if report.notes else [])
    if games:
        whole = "the 26 games" if games == atari_26() else f"{len(games)} of the 26 games alone"
        lines += [f"## Aggregates over {whole}", ""]
        lines += _aggregates(report, intervals, games)
        lines += [f"![aggregates, performance profile, scores by game]({picture})", ""]
    lines += ["## Scores by game", "", *_by_game(report), "## Time and cost", "", *_cost(report.entries)]
    lines += ["## Sources", "", f"{about()} {MARKS}", ""]
    lines += [f"- {one.label} [{one.mark}]: {one.source}." for one in published().values()]
    return "\n".join(lines) + "\n"


def table_rows(report: Report, intervals: Mapping[str, Mapping[str, Interval]]) -> tuple[list[str], list[list[str]]]:
    """Return headings and rows of the aggregates, this report's agents first."""
    games = games_of(report)
    rows: list[list[str]] = []
    for entry in report.entries:
        counts = [len(entry.raw(game)) for game in games]
        runs = f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)}-{max(counts)}"
        found = intervals[entry.label]
        above = sum(entry.normalised()[game].mean() > 1.0 for game in games)
        label = f"{entry.label} (PARTIAL)" if entry.lacks else entry.label
        rows.append([label, runs, *(said_interval(found[name]) for name in NAMES), str(above)])
    for one in published().values():
        if one.key in REFERENCES:
            continue
        found = published_aggregates(one, games)
        exact = of_runs(one, games)
        cells = [f"{found[name]:.3f}{'' if name in exact else '*'}" for name in NAMES]
        means = one.normalised(games)
        above = sum(float(score[0]) > 1.0 for score in means.values())
        rows.append([f"{one.label} [{one.mark}]", str(one.runs or "means"), *cells, str(above)])
    return ["agent", "runs a game", *HEADINGS.values(), "games above human"], rows


def said_interval(found: Interval) -> str:
    """Return an estimate with its interval, if there is one."""
    return f"{found.value:.3f}" + ("" if found.low is None else f" ({found.low:.3f}-{found.high:.3f})")


def csv_of(report: Report) -> str:
    """Return the scores of every run as CSV: agent, game, seed, raw and normalised score, what was scored, env steps,
    minutes of training and of evaluation (empty where nobody noted them), cores, whole or partial.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    head = ["agent", "game", "seed", "score", "human_normalised", "score_of", "env_steps", "minutes"]
    writer.writerow([*head, "evaluation_minutes", "cores", "whole"])
    for entry in report.entries:
        for one in sorted(entry.results, key=lambda result: (result["game"], result["seed"])):
            human = normalised(one["game"], one["score"])
            row = [entry.label, one["game"], one["seed"], one["score"], round(human, 6), one["score_of"]]
            row += [one["env_steps"], one["minutes"], one.get("evaluation_minutes"), one.get("cores")]
            writer.writerow([*row, "no" if entry.lacks else "yes"])
    return out.getvalue()


def _aggregates(report: Report, intervals: Mapping[str, Mapping[str, Interval]], games: tuple[str, ...]) -> list[str]:
    headings, rows = table_rows(report, intervals)
    for row, _ in zip(rows, report.entries, strict=False):  # those of others are of the package
        row[0] = for_markdown(row[0])
    lines = _table(headings, rows, left=1)
    lines += [
        "Human-normalised: 0 is random play, 1 a person; of the optimality gap less is better. In brackets 95% "
        "intervals by stratified bootstrap over runs (Agarwal et al. 2021); none where a game has one run, and too "
        "narrow with fewer than ten, the median's even then. Medians of few runs are lower than those of many: do not "
        "hold them against each other. *: of means, whose gap is smaller than that of runs and whose IQM is higher, "
        "but for a few sets of few games.",
        "",
    ]
    if games != atari_26():
        lines += ["Published agents are aggregated over the same games here: compare with no other table.", ""]
    return lines


def _by_game(report: Report) -> list[str]:
    everybody = list(published().values())
    headings = ["game", *(for_markdown(entry.label) for entry in report.entries), *(one.label for one in everybody)]
    rows: list[list[str]] = []
    for game in atari_26():
        own: list[str] = []
        for entry in report.entries:
            raw = entry.raw(game)
            said = "-" if not raw else f"**{np.mean(raw):,.1f}**"
            if len(raw) > 1:
                said += f" ({min(raw):,.1f}-{max(raw):,.1f})"
            own.append(said)
        rows.append([title_of(game), *own, *(f"{one.scores[game]:,.1f}" for one in everybody)])
    lines = _table(headings, rows, left=1)
    return [*lines, "Raw scores; of several runs the mean, and the lowest and the highest of them.", ""]


def _cost(entries: Sequence[Entry]) -> list[str]:
    rows: list[list[str]] = []
    for entry in entries:
        machines = sorted({_machine(one) for one in entry.results})
        commits = sorted({str(one.get("commit") or "-") for one in entry.results})
        cells = [f"{entry.median_minutes:,.1f} min", f"{entry.hours:,.1f} h", f"{entry.core_hours:,.1f}"]
        where = [for_markdown(said) for said in ("; ".join(machines), ", ".join(commits))]
        rows.append([for_markdown(entry.label), str(len(entry.results)), *cells, *where])
    each = "a run with its evaluation, median"
    lines = _table(["agent", "runs", each, "all runs", "core hours", "cores", "commit"], rows, left=1)
    rows = [[f"{one.label} [{one.cost_mark}]", one.cost] for one in published().values() if one.cost]
    return [*lines, *_table(["published", "a run"], rows, left=2)]


def _machine(result: Mapping[str, Any]) -> str:
    """Return on what a run was made, as far as its result says it."""
    cores = f"{result['cores']} of {result['cpu']}" if result.get("cores") and result.get("cpu") else "-"
    return f"{cores}, {result['gpu']}" if result.get("gpu") else cores


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]], left: int) -> list[str]:
    """Return a table as Markdown, the first columns to the left, and an empty line."""
    rule = [" --- " if i < left else " ---: " for i in range(len(headings))]
    lines = [f"| {' | '.join(headings)} |", f"|{'|'.join(rule)}|"]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows), ""]
