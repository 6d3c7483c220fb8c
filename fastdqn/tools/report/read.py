"""What a report is of: the results of a sweep by agent and game, and in what they are not whole."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastdqn.envs.games import title_of
from fastdqn.errors import UserError
from fastdqn.tools.report.published import ENV_STEPS, normalised
from fastdqn.tools.sweep.plan import atari_26, read_plan
from fastdqn.tools.sweep.results import results_in


class Entry(NamedTuple):
    """The runs of one agent."""

    label: str
    results: list[dict[str, Any]]
    lacks: list[str]  # sentences: why it is only a part; none where it is whole

    @property
    def games(self) -> tuple[str, ...]:
        return tuple(game for game in atari_26() if any(one["game"] == game for one in self.results))

    def raw(self, game: str) -> list[float]:
        """Return the scores of its runs of a game."""
        return [one["score"] for one in self.results if one["game"] == game]

    def normalised(self) -> dict[str, NDArray[np.float64]]:
        """Return the normalised scores of its runs (runs,) by game."""
        return {game: np.array([normalised(game, score) for score in self.raw(game)]) for game in self.games}

    @property
    def core_hours(self) -> float:
        return sum(one["minutes"] / 60.0 * (one.get("cores") or 1) for one in self.results)

    @property
    def hours(self) -> float:
        return sum(one["minutes"] for one in self.results) / 60.0

    @property
    def median_minutes(self) -> float:
        return statistics.median(one["minutes"] for one in self.results)


class Report(NamedTuple):
    """All that a report says of a sweep."""

    folder: Path
    entries: list[Entry]
    notes: list[str]


def read_report(folders: Sequence[Path]) -> Report:
    """Return what the results in these folders come to.

    Raises:
        UserError: there is no result of a game of Atari-100k.
    """
    results: list[dict[str, Any]] = []
    notes: list[str] = []
    planned: list[Mapping[str, str]] = []
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f"{folder} is not the folder of a sweep: there is no such folder.")
        found = results_in(folder)
        results += found.results.values()
        notes += [f"left out: {note}" for note in found.notes]
        plan = read_plan(folder) or read_plan(folder.parent)
        planned += [one["asked"] for one in plan["tasks"]] if plan else []
    known = [one for one in results if one["game"] in atari_26()]
    if not known:
        raise UserError(f"There is no result of a game of Atari-100k in {', '.join(map(str, folders))}.")
    if len(known) < len(results):
        strange = sorted({one["game"] for one in results} - set(atari_26()))
        notes.append(f"left out, as Atari-100k has no such game: {', '.join(map(title_of, strange))}")
    entries: list[Entry] = []
    for label, alike in _by_label(known).items():
        asked = _agent_of(alike[0]["asked"])
        wanted = sum(_agent_of(one) == asked for one in planned)
        entries.append(Entry(label, alike, _lacks(alike, wanted)))
    return Report(folders[0], entries, notes + _warnings(known))


def _agent_of(asked: Mapping[str, str]) -> dict[str, str]:
    return {option: value for option, value in asked.items() if option not in ("game", "seed")}


def _by_label(results: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return results by agent, and by the options in which the command lines differed."""
    asked = [_agent_of(one["asked"]) for one in results]
    names = {name for one in asked for name in one}
    differ = sorted(name for name in names if len({one.get(name) for one in asked}) > 1 and name != "agent")
    found: dict[str, list[dict[str, Any]]] = {}
    for result, one in zip(results, asked, strict=True):
        parts = [result["agent"] or result["script"], *(f"{name} {one.get(name, 'default')}" for name in differ)]
        found.setdefault(", ".join(parts), []).append(result)
    for label, alike in found.items():
        places = [(one["game"], one["seed"]) for one in alike]
        if len(set(places)) < len(places):
            raise UserError(f"Two results of {label} have the same game and seed; report on one sweep at a time.")
    return dict(sorted(found.items()))


def _lacks(results: Sequence[dict[str, Any]], planned: int) -> list[str]:
    """Return why the results of an agent are only a part of what Atari-100k asks for."""
    counts = {game: sum(one["game"] == game for one in results) for game in atari_26()}
    missing = [title_of(game) for game, count in counts.items() if count == 0]
    there = sorted({count for count in counts.values() if count})
    lacks: list[str] = []
    if missing:
        few = f": {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing" if len(missing) <= 6 else ""
        lacks.append(f"{26 - len(missing)} of 26 games{few}")
    if len(there) > 1:
        lacks.append(f"games have from {there[0]} to {there[-1]} runs")
    if planned > len(results):
        lacks.append(f"{len(results)} of the {planned} runs of the sweep have a result")
    return lacks


def _warnings(results: Sequence[dict[str, Any]]) -> list[str]:
    """Return in what the results are no scores of Atari-100k."""
    notes: list[str] = []
    others = sorted({int(one["env_steps"]) for one in results} - {ENV_STEPS})
    if others:
        said = ", ".join(f"{steps:,}" for steps in others[:4])
        notes.append(f"runs of {said} env steps: the published agents had {ENV_STEPS:,}, so this is no fair comparison")
    if any(one.get("options", {}).get("sticky_actions") for one in results):
        notes.append("sticky actions: the published agents had none, so this is no fair comparison")
    if any(one["score_of"] == "training" for one in results):
        notes.append("scores of runs without an evaluation are means of the last 100 games of the training")
    return notes
