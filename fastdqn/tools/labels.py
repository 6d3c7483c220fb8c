"""What tables and pictures call a run: script, agent or variant, and in what it differs, in a person's words."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from fastdqn.envs import games
from fastdqn.options.groups import as_of_now, learnt_by
from fastdqn.options.presets import PRESETS
from fastdqn.tools.reading import LIMITS, RunData, by_seed

Groups = dict[str, dict[str, list[RunData]]]
"""Runs by game and by what they are called; those of one name differ in their seed alone."""

_SAID = ("seed", "name", "agent", "variant")
"""Options that change what is learnt, but are said in another way: by the band, the panel, or the label's beginning."""
_NAMES = {
    "center_frames": "centred frames",
    "clip_rewards": "reward clipping",
    "crop": "frames of the playing area alone",
    "distributional": "distributional returns",
    "episodic_life": "lives as episodes",
    "fire_reset": "FIRE after a reset",
    "full_action_set": "the full action set",
    "noisy": "noisy layers",
    "prioritized": "prioritized replay",
}
"""Options whose names need more than spaces."""
_PHRASES = {
    "act_with": "played by the {} network",
    "n_step": "{}-step returns",
    "network": "{} network",
    "noise": "{} noise",
    "num_envs": "{} games at once",
    "steps": "an update every {} env steps",
    "max_env_steps": "until {} env steps",
    "max_minutes": "for {} minutes",
    "train_seconds": "for {} s of training",
    "stop_score": "until a mean of {}",
}
"""Options whose values are said within words."""
_WORDS: dict[tuple[str, Any], str] = {
    ("precision", "auto"): "",
    ("precision", "bf16"): "with bf16",
    ("precision", "fp32"): "without bf16",
    ("network", "nature"): "Nature's network",
    ("noisy_sigma", None): "",
    ("max_env_steps", None): "without a limit of env steps",
    ("max_minutes", None): "without a limit of minutes",
    ("train_seconds", None): "",
}
"""Values with words of their own; nothing is said of what is so unless one asks for something else."""
_PARTS = ("double", "dueling", "noisy", "prioritized", "distributional")
_LIMITS = ("stop_score", "max_env_steps", "max_minutes", "train_seconds")


def grouped(runs: Sequence[RunData]) -> Groups:
    """Return `runs` by game, in the order of their titles, and by label, in order, too.

    A label says script, variant and agent, and the options in which runs differ that have these and the game in common.
    An agent that all `runs` share is left to `shared_agent`. Runs that differ in their limits alone differ only
    where one of them came to its limit.
    """
    groups: Groups = {}
    shared = shared_agent(runs)
    titles = sorted((games.title_of(game), game) for game in {run.game for run in runs})
    scripts = {run.config["script"] for run in runs}
    for _, game in titles:
        here = [run for run in runs if run.game == game]
        kin: dict[tuple[str, str | None], list[tuple[RunData, dict[str, Any]]]] = {}
        for run in here:
            kin.setdefault(_name(run, scripts), []).append((run, _learnt(run)))
        labels: dict[str, list[RunData]] = {}
        for name, members in kin.items():
            differ = _differing([options for _, options in members])
            for run, options in members:
                agent = () if _agent(run) in (None, shared) else (_agent(run),)
                label = ", ".join(str(part) for part in (name[0], *agent, *_told(run, options, differ)) if part)
                labels.setdefault(label, []).append(run)
        told = {
            f"{label}{limit}": sorted(alike, key=lambda one: one.seed)
            for label, members in labels.items()
            for limit, alike in _by_limits(members).items()
        }
        groups[game] = {label: told[label] for label in sorted(told, key=in_order)}
    return groups


def one_by_one(groups: Groups) -> Groups:
    """Return the groups with every run for itself, called by its seed, and by its folder where that is not enough."""

    def called(label: str, run: RunData, seeds: Mapping[int, Sequence[RunData]]) -> str:
        alike = [other.folder.parts for other in seeds[run.seed] if other is not run]
        own = run.folder.parts
        tails = (own[-length:] for length in range(1, len(own) + 1))
        last = next((tail for tail in tails if all(other[-len(tail) :] != tail for other in alike)), own)
        return f"{label}, seed {run.seed}{f' ({Path(*last)})' if alike else ''}"

    return {
        game: {
            called(label, run, seeds): [run]
            for label, runs in labels.items()
            for seeds in [by_seed(runs)]
            for run in runs
        }
        for game, labels in groups.items()
    }


def shared_agent(runs: Sequence[RunData]) -> str | None:
    """Return the agent that all runs have trained, None if they differ or name none."""
    agents = {_agent(run) for run in runs}
    return agents.pop() if len(agents) == 1 else None


def _name(run: RunData, scripts: set[str]) -> tuple[str, str | None]:
    """Return script and variant, and the agent: what a label begins with."""
    script: str = run.config["script"]
    number = re.match(r"\d+", script)
    if number and not any(other != script and other.startswith(number[0]) for other in scripts):
        script = number[0]
    variant = _variant(run)
    return f"{script}{f' {variant}' if variant else ''}", _agent(run)


def _variant(run: RunData) -> str | None:
    """Return the name of the variant."""
    return as_of_now(run.config)["variant"]["variant"]


def _agent(run: RunData) -> str | None:
    """Return the name of the hyper-parameters: the agent's, or the preset's where it is one of several of its game."""
    agent = run.config.get("dqn", {}).get("agent")
    preset = run.config["game"]["name"].strip().lower()
    return agent or (preset if preset in PRESETS and preset.startswith(f"{run.game}-") else None)


def _differing(options: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the names of options in which some of these differ; one that others lack counts as None there."""
    first = options[0]
    names = {name for one in options for name in one if one[name] != first.get(name)}
    names |= {name for one in options for name in first if first[name] != one.get(name)}
    if "noisy" in names and len({(one.get("noisy"), *_epsilons(one)) for one in options}) == 2:
        names -= {"epsilon_start", "epsilon_final"}  # noisy layers stand for no epsilon
    return names


def _told(run: RunData, mine: Mapping[str, Any], differ: Collection[str]) -> list[str]:
    """Return in what a run differs from its kin, which `differ` names, and from what its variant stands for."""
    names = set(mine) & set(differ)
    variant = _variant(run)
    for part in _PARTS:
        implied = variant in (part, "rainbow")
        if variant and part in mine and mine[part] != implied and (implied or _agent(run) is None):
            names.add(part)
    return [said for said in (_said(name, mine[name]) for name in sorted(names)) if said]


def in_order(label: str) -> list[tuple[float, str]]:
    """Return what labels are sorted by: their words, and their numbers as numbers."""
    parts = re.split(r"(\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]\d+)?)", label)
    return [(float(part.replace(",", "")), "") if i % 2 else (0.0, part) for i, part in enumerate(parts)]


def _learnt(run: RunData) -> dict[str, Any]:
    return {name: value for name, value in learnt_by(as_of_now(run.config)).items() if name not in _SAID}


def _epsilons(options: Mapping[str, Any]) -> tuple[Any, Any]:
    return options.get("epsilon_start"), options.get("epsilon_final")


def _said(name: str, value: Any) -> str:
    """Return what a person says of an option's value; nothing where nobody would say anything."""
    words = _NAMES.get(name, name.replace("_", " "))
    if (name, value) in _WORDS:
        return _WORDS[name, value]
    if value is None or isinstance(value, bool):
        return f"{'with' if value else 'without'} {words}"
    return _PHRASES.get(name, f"{words} {{}}").format(_written(value))


def _written(value: Any) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    return value if isinstance(value, str) else json.dumps(value)


def _by_limits(runs: Sequence[RunData]) -> dict[str, list[RunData]]:
    """Return `runs` by what is to be said of their limits: nothing unless runs came to different ones."""
    limits = [{name: run.config["run"].get(name) for name in _LIMITS} for run in runs]
    ended = [one for run, one in zip(runs, limits, strict=True) if run.finished]
    counts = _LIMITS if any(run.ended in LIMITS for run in runs) else ("stop_score",)  # what all solved runs came to
    differ = [name for name in counts if any(one[name] != ended[0][name] for one in ended)]
    if not differ:
        return {"": list(runs)}
    found: dict[str, list[RunData]] = {}
    for run, one in zip(runs, limits, strict=True):
        words = (_said(name, one[name]) for name in differ)
        found.setdefault("".join(f", {said}" for said in words if said), []).append(run)
    return found


def for_markdown(text: str) -> str:
    """Return `text` so that a page in Markdown shows it as it is: no tags, links, pictures or ends of cells."""
    return re.sub(r"[|<>\[\]`]", lambda found: f"\\{found[0]}", text)
