"""What a report is of: the results of a sweep by agent and game, and in what they are not whole."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastdqn.envs.games import rom_of, title_of
from fastdqn.errors import UserError, counted, listed
from fastdqn.options.groups import learnt_as_of_now
from fastdqn.tools.report.published import ENV_STEPS, GAMES, normalised
from fastdqn.tools.sweep.plan import atari_26, read_plan
from fastdqn.tools.sweep.results import median_minutes, minutes_of, results_in

_ALIKE = 0.99
"""Share of the updates of another run of as many env steps that a run has made at least, if it did not lose some."""


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
        return sum(minutes_of(one) / 60.0 * (one.get("cores") or 1) for one in self.results)

    @property
    def hours(self) -> float:
        return sum(map(minutes_of, self.results)) / 60.0

    @property
    def median_minutes(self) -> float:
        return median_minutes(self.results) or 0.0


class Report(NamedTuple):
    """All that a report says of a sweep."""

    folder: Path
    entries: list[Entry]
    notes: list[str]


def read_report(folders: Sequence[Path]) -> Report:
    """Return what the results in these folders come to.

    Raises:
        UserError: there is no result of a game of Atari-100k, or two of one agent, game and seed.
    """
    results: list[dict[str, Any]] = []
    notes: list[str] = []
    planned: list[tuple[str, Mapping[str, str]]] = []
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f"{folder} is not the folder of a sweep: there is no such folder.")
        there = results_in(folder)
        results += there.results.values()
        notes += [f"left out: {note}" for note in there.notes]
        plan = read_plan(folder) or read_plan(folder.parent)
        planned += [(plan["script"], one["asked"]) for one in plan["tasks"]] if plan else []
    known = [one for one in results if one["game"] in atari_26()]
    if not known:
        why = f" ({'; '.join(notes)})" if notes else ""
        raise UserError(f"There is no result of a game of Atari-100k in {listed(folders)}{why}.")
    if len(known) < len(results):
        strange = sorted({one["game"] for one in results} - set(atari_26()))
        notes.append(f"left out, as Atari-100k has no such game: {', '.join(map(title_of, strange))}")
    found = _by_agent(known)
    wanted = Counter(_planned(planned, known))
    labels = _labels([*found, *wanted])
    entries: list[Entry] = []
    for agent, ones in found.items():
        if len({(one["game"], one["seed"]) for one in ones}) < len(ones):
            named = Counter((one["game"], one["seed"]) for one in ones)
            names = sorted(one["name"] for one in ones if named[one["game"], one["seed"]] > 1)
            raise UserError(
                f"Results of {labels[agent]} have the same game and seed ({', '.join(names[:6])}): report on one sweep "
                "at a time, or take the files of one of them out of the folder."
            )
        entries.append(Entry(labels[agent], ones, _lacks(ones, wanted[agent])))
        notes += [f"{labels[agent]}: its runs were not trained alike: {said}" for said in _differences(ones)]
    for agent in sorted(wanted.keys() - found.keys(), key=labels.__getitem__):
        notes.append(f"{labels[agent]} is left out: none of its {wanted[agent]} runs has a result")
    return Report(folders[0], sorted(entries, key=lambda entry: entry.label), notes + _warnings(known))


class _Agent(NamedTuple):
    """What is alike in the runs of one agent."""

    script: str
    name: str | None  # None where the script has no agents
    options: frozenset[tuple[str, str]]  # all others that were asked for but game and seed


def _agent_of(script: str, name: str | None, asked: Mapping[str, str]) -> _Agent:
    others = {option: _number_or(value) for option, value in asked.items() if option not in ("agent", "game", "seed")}
    return _Agent(script, name, frozenset(others.items()))


def _number_or(value: str) -> str:
    """Return a number in one spelling, whichever it was asked for in: 1e-4 is 0.0001; what is none as it is."""
    try:
        number = float(value)
    except ValueError:
        return value
    if not math.isfinite(number):
        return value
    return str(int(number)) if number.is_integer() else repr(number)


def _by_agent(results: Iterable[dict[str, Any]]) -> dict[_Agent, list[dict[str, Any]]]:
    found: dict[_Agent, list[dict[str, Any]]] = {}
    for one in results:
        found.setdefault(_agent_of(one["script"], one["agent"], one["asked"]), []).append(one)
    return found


def _planned(tasks: Iterable[tuple[str, Mapping[str, str]]], results: Sequence[dict[str, Any]]) -> Iterator[_Agent]:
    """Yield the agents of runs of Atari-100k's games that sweeps are to do, by their scripts and what is asked for.

    One that names no agent or no game has the one that its script's results have.
    """
    own = {one["script"]: one["agent"] for one in results if "agent" not in one["asked"]}
    own_of_game = {(one["script"], one["game"]): one["agent"] for one in results if "agent" not in one["asked"]}
    games = {one["script"]: one["game"] for one in results if "game" not in one["asked"]}  # the script's own
    for script, asked in tasks:
        game = _rom(asked["game"]) if "game" in asked else games.get(script)
        if game in atari_26():
            name = asked.get("agent") or own_of_game.get((script, game), own.get(script))
            yield _agent_of(script, name, asked)


def _rom(game: str) -> str | None:
    """Return the ROM of a game in anybody's spelling, None if it is none of Atari's."""
    try:
        return rom_of(game)
    except UserError:
        return None


def _labels(agents: Iterable[_Agent]) -> dict[_Agent, str]:
    """Return what to call them: the agent, the script where there is none or several, and the options that differ."""
    every = set(agents)
    options = {agent: dict(agent.options) for agent in every}
    several = len({agent.script for agent in every}) > 1
    names = {name for said in options.values() for name in said}
    differ = sorted(name for name in names if len({said.get(name) for said in options.values()}) > 1)
    labels: dict[_Agent, str] = {}
    for agent, said in options.items():
        words = [agent.script] if several or agent.name is None else []
        words += [agent.name] if agent.name else []
        labels[agent] = ", ".join([" ".join(words), *(f"{name} {said.get(name, 'default')}" for name in differ)])
    return labels


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


def _differences(results: Sequence[dict[str, Any]]) -> list[str]:
    """Return in which options that nobody asked for the runs of one agent differ: machines, versions and presets of
    games settle some. One that there was not yet counts as its default.
    """
    asked = {"seed", "name", *(option.replace("-", "_") for one in results for option in one["asked"])}
    learnt = [learnt_as_of_now(one.get("options", {})) for one in results]
    found: list[str] = []
    for name in sorted({name for said in learnt for name in said} - asked):
        values = dict.fromkeys(said[name] for said in learnt if name in said)  # 1 and 1.0 are one
        if len(values) > 1:
            found.append(f"{name} is {' and '.join(sorted(map(json.dumps, values)))}")
    updates = [one["updates"] for one in results if one.get("updates")]
    if updates and min(updates) < _ALIKE * max(updates):
        found.append(f"they made from {min(updates):,} to {max(updates):,} updates")
    return found


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
    judged = {one["score_of"]: one.get("evaluations", {}).get(one["score_of"], {}) for one in results}
    for name in sorted(judged.keys() - {"training", "evaluation"}):
        how = f", epsilon {judged[name]['epsilon']:g}" if isinstance(judged[name].get("epsilon"), float) else ""
        notes.append(f"scores of {name} games{how}: those of the published agents are by another protocol")
    alone = sum(bool(one.get("evaluations")) and "evaluation_minutes" not in one for one in results)
    if alone:
        runs = counted(alone, "run")
        notes.append(f"of {runs} the minutes are those of the training alone: nobody noted the evaluation's")
    counts = sorted({count for one in results if (count := _games_of(one)) not in (None, GAMES)})
    if counts:
        said = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        notes.append(f"scores are means of {said} games, where the published agents played {GAMES}")
    return notes


def _games_of(result: dict[str, Any]) -> int | None:
    """Return of how many games the evaluation was that a result's score is of, None where there was none."""
    return result.get("evaluations", {}).get(result["score_of"], {}).get("games")
