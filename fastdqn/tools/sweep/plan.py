"""What a sweep runs: every combination of its axes, each with a name and the words of its command line."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import re
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from fastdqn.envs.games import registered_id, rom_of
from fastdqn.errors import UserError
from fastdqn.options.fields import changes_learning
from fastdqn.options.groups import Groups, flag_of, kinds_of
from fastdqn.options.presets import preset_for
from fastdqn.runs.folder import is_words, read_object, write_json

ATARI_26 = "atari-26"
"""Stands for the games of Atari-100k (Kaiser et al. 2020)."""
PUBLISHED = Path(__file__).resolve().parents[2] / "data" / "atari100k.json"
PLAN = "plan.json"
LONGEST = 180
"""Letters of the name of a run; a file's has endings, too, and may have 255 bytes."""
RUNNING = "sweep.json"
"""Names the process of a sweep that is going on."""
FORMAT = 1
"""Of plan.json and of results; any other is refused."""
OWN = ("game", "agent", "seed", "seeds", "runs-dir", "resume", "resume-previous")
"""Options that the sweep itself gives to its runs."""
LIMITS = (
    *("max-env-steps", "max-minutes", "train-seconds", "stop-score", "fresh-games", "evaluation-games"),
    "evaluation-envs",  # which games these are
    "checkpoint-replay",  # a run that is resumed without its replay learns less
)
"""Options that change nothing of how it is learnt, and yet what comes of it."""


MOST_SEEDS = 10_000
"""Of one sweep; more are a slip."""


class Task(NamedTuple):
    """One run of a sweep."""

    name: str
    asked: dict[str, str]  # what the command line says of what is learnt, by option
    words: tuple[str, ...]  # of its command line

    def as_dict(self) -> dict[str, Any]:
        return {"name": self.name, "asked": self.asked}


class Axes(NamedTuple):
    """What varies in a sweep; an axis without values is none."""

    games: tuple[str, ...]
    agents: tuple[str, ...]
    seeds: tuple[int, ...]
    others: Mapping[str, tuple[str, ...]]  # values by option


def axes_of(games: str | None, agents: str | None, seeds: str, vary: Sequence[str]) -> Axes:
    """Return the axes that the command line says.

    Args:
        games: `pong,boxing`, or atari-26 for the games of Atari-100k.
        agents: `der,drq-eps`.
        seeds: how many from 0 on, `4..6` or `0,7`.
        vary: `option=value,value`, each option once.

    Raises:
        UserError: an axis cannot be understood, or has a value twice.
    """
    others: dict[str, tuple[str, ...]] = {}
    for said in vary:
        option, equals, values = said.partition("=")
        option = option.lstrip("-").replace("_", "-")
        if not option or not equals or not values:
            raise UserError(f"--vary takes an option and its values, as in --vary learning-rate=1e-4,2e-4, not {said}.")
        if option in OWN:
            raise UserError(
                f"--vary {said}: a sweep has --games, --agents and --seeds for that, and folders of its own."
            )
        if option in others:
            raise UserError(f"--vary has {option} twice; give all its values at once.")
        others[option] = _values(values, f"--vary {option}")
    return Axes(_games(games), _values(agents, "--agents") if agents is not None else (), _seeds(seeds), others)


def tasks_of(axes: Axes, options: Sequence[str]) -> list[Task]:
    """Return the runs of a sweep: seed after seed, in each of them game after game, so that early results are of all
    games.

    Args:
        axes: what varies.
        options: words that all runs have.

    Raises:
        UserError: `options` say what the sweep itself says, or two runs would have one name.
    """
    fixed = said_by(options)
    for option in fixed:
        if option in OWN:
            raise UserError(
                f"--{option} after -- contradicts the sweep, which gives each run its own; say it before --."
            )
        if option in axes.others:
            raise UserError(f"--{option} cannot be varied and fixed at once.")
    beside = _beside()
    kept = {option: value for option, value in fixed.items() if option not in beside}
    tasks: list[Task] = []
    combined = itertools.product(axes.games or (None,), axes.agents or (None,), *axes.others.values())
    for seed, (game, agent, *values) in itertools.product(axes.seeds, list(combined)):
        own = {option: str(value) for option, value in zip(axes.others, values, strict=True)}
        named = {"game": None if game is None else _game(game), "agent": agent, "seed": str(seed)}
        said = {option: value for option, value in named.items() if value is not None}
        parts = [part for part in (named["game"], agent) if part is not None]
        parts += [f"{option}={value}" for option, value in own.items()]
        name = _short("-".join(_as_file(part) for part in (*parts, str(seed))))
        words = [word for option, value in {**said, **own}.items() for word in _word(option, value)]
        tasks.append(Task(name, {**said, **own, **kept}, (*words, *options)))
    names = Counter(task.name for task in tasks)
    twice = next((name for name, count in names.items() if count > 1), None)
    if twice is not None:
        raise UserError(f"Two runs of the sweep would be called {twice}; leave out values that are written twice.")
    return tasks


def said_by(words: Sequence[str]) -> dict[str, str]:
    """Return options and their values, flags as on and off, in one spelling.

    Raises:
        UserError: a word belongs to no option.
    """
    said: dict[str, str] = {}
    option: str | None = None
    for word in words:
        if not word.startswith("--"):
            if option is None:
                raise UserError(f"{word!r} after -- belongs to no option.")
            said[option], option = word, None
            continue
        name, equals, value = word[2:].partition("=")
        name = name.replace("_", "-")
        if equals:
            said[name], option = value, None
        elif name.startswith("no-"):
            said[name[3:]], option = "off", None
        else:
            said[name], option = "on", name
    return said


def write_plan(folder: Path, script: str, tasks: Sequence[Task]) -> str | None:
    """Write what the sweep in `folder` consists of: these runs, and those that it had before.

    Returns:
        a sentence if the plan there was damaged and has been set aside.

    Raises:
        UserError: the folder has a sweep of another script, or one of its runs was asked for with other options.
        OSError: it cannot be written.
    """
    path, why = folder / PLAN, None
    before: dict[str, Any] = {"script": script, "tasks": []}
    if path.exists():
        found = read_plan(folder)
        if found is None:
            aside = set_aside(path)
            why = f"{path} is damaged; it is now {aside.name}, and a new one is written"
        else:
            before = found
    if before["script"] != script:
        raise UserError(f"{folder} is a sweep of {before['script']}, not of {script}; name another folder with --into.")
    asked = {one["name"]: one["asked"] for one in before["tasks"]}
    for task in tasks:
        if asked.get(task.name, task.asked) != task.asked and not _were_refused(folder):
            raise UserError(
                f"In the sweep {folder} the run {task.name} has {difference(asked[task.name], task.asked)}; "
                "give the same options, or name another folder with --into."
            )
    every = {one["name"]: one for one in before["tasks"]} | {task.name: task.as_dict() for task in tasks}
    said = {"format": FORMAT, "script": script, "tasks": list(every.values())}
    if said != before:
        write_json(path, said)
    return why


def _were_refused(folder: Path) -> bool:
    """Tell whether runs were tried here, and none of them began: then other options may be asked for."""
    begun = any(folder.glob("results/*.json")) or any(folder.glob("runs/*/*/config.json"))
    return not begun and any(folder.glob("runs/*/asked.json"))


def read_plan(folder: Path) -> dict[str, Any] | None:
    """Return what the plan of a sweep says: its `script` and its `tasks`; None if there is none or it is damaged."""
    try:
        said = read_object(folder / PLAN)
        tasks: Any = said["tasks"]
        good = said["format"] == FORMAT and is_words(said["script"]) and isinstance(tasks, list)
        for one in cast(list[Any], tasks):
            good = good and is_words(one["name"]) and are_words(one["asked"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return said if good else None


def difference(theirs: Mapping[str, str], ours: Mapping[str, str]) -> str:
    """Return in what the options of a run differ from those that are asked for now, for the first that does."""
    option = next(name for name in sorted({*theirs, *ours}) if theirs.get(name) != ours.get(name))
    if option not in theirs:
        return f"no --{option}, which is asked for"
    return f"--{option} {theirs[option]}, " + (f"not {ours[option]}" if option in ours else "which is not asked for")


def are_words(said: Any) -> bool:
    """Tell whether `said` names words by words, all of which can be shown."""
    if not isinstance(said, dict):
        return False
    return all(is_words(one) for pair in cast(dict[Any, Any], said).items() for one in pair)


def set_aside(path: Path) -> Path:
    """Rename a file so that nothing takes it for what it was, and return its new place."""
    places = (path.with_name(f"{path.name}.set-aside{'' if i == 1 else f'-{i}'}") for i in itertools.count(1))
    aside = next(place for place in places if not place.exists())
    path.rename(aside)
    return aside


def atari_26() -> tuple[str, ...]:
    """Return the ROMs of Atari-100k's 26 games."""
    return tuple(json.loads(PUBLISHED.read_text(encoding="utf-8"))["games"])


def _beside() -> set[str]:
    """Return the options that change neither what is learnt nor how long."""
    found = {
        flag_of(kind, field.name)[2:]
        for kind in kinds_of(Groups).values()
        for field in dataclasses.fields(kind)
        if not changes_learning(field)
    }
    return found - set(LIMITS)


def _values(said: str, option: str) -> tuple[str, ...]:
    values = tuple(one.strip() for one in said.split(","))
    if not all(values):
        raise UserError(f"{option} has an empty value in {said!r}; values stand between commas.")
    if len({_number(one) for one in values}) < len(values):
        raise UserError(f"{option} has a value twice in {said!r}.")
    return values


def _games(said: str | None) -> tuple[str, ...]:
    """Return the games of a sweep, each once: beside atari-26 one of these changes nothing.

    Raises:
        UserError: one is named twice, in whatever spelling.
    """
    if said is None:
        return ()
    named = _values(said, "--games")
    found: dict[str, str] = {}
    for name in named:
        if name != ATARI_26 and (other := found.setdefault(_game(name), name)) != name:
            raise UserError(f"--games has one game twice in {said!r}: {other} and {name}.")
    found.clear()
    for name in named:
        for one in atari_26() if name == ATARI_26 else (name,):
            found.setdefault(_game(one), one)
    return tuple(found.values())


def _game(name: str) -> str:
    """Return what all spellings of a game have in common: its ROM, unless the name has settings of its own."""
    try:
        rom = rom_of(name)
    except UserError:  # none of Atari's
        return registered_id(name) or name
    return rom if preset_for(name, rom) == preset_for(rom, rom) else name.lower()


def _number(said: str) -> float | str:
    """Return what 1e-3 and 0.001 both are; words, and nan, which is no number, as they are."""
    try:
        return said if math.isnan(float(said)) else float(said)
    except ValueError:
        return said


def _seeds(said: str) -> tuple[int, ...]:
    first, dots, last = said.partition("..")
    words = [first, last] if dots else said.split(",")
    if not all(re.fullmatch(r"\d{1,18}", word.strip()) for word in words):
        raise UserError(f"--seeds takes a number of seeds, or which, as in 4..6 or 0,7; not {said!r}.")
    numbers = [int(word) for word in words]
    count = numbers[-1] - numbers[0] + 1 if dots else numbers[0] if len(numbers) == 1 else len(numbers)
    if count > MOST_SEEDS:
        one = "" if dots else f"; the seed {said} alone is {said}..{said}"
        raise UserError(f"--seeds {said} are {count:,} seeds, more than a sweep's {MOST_SEEDS:,}{one}.")
    if dots:
        numbers = list(range(numbers[0], numbers[1] + 1))
    elif len(numbers) == 1:
        numbers = list(range(numbers[0]))
    if not numbers:
        why = "the first is above the last" if dots else "0 is their number; the seed 0 alone is 0..0"
        raise UserError(f"--seeds {said} names no seed: {why}.")
    if len(set(numbers)) < len(numbers):
        raise UserError(f"--seeds has a seed twice in {said!r}.")
    return tuple(numbers)


def _word(option: str, value: str) -> tuple[str, ...]:
    """Return how a command line says an option; flags are varied as on and off."""
    if value in ("on", "off"):
        return (f"--{option}" if value == "on" else f"--no-{option}",)
    return (f"--{option}", value)


def _short(name: str) -> str:
    """Return a name that a file may have, with endings; of a longer one the beginning, and a checksum of it all."""
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 9]}-{zlib.crc32(name.encode()):08x}"


def _as_file(part: str) -> str:
    return re.sub(r"[^A-Za-z0-9.=_+-]", "_", part)
