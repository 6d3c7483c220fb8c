"""Trained networks for others: weights, options and a page about them in one folder, and none of their code.

What comes from others is data: safetensors hold numbers alone, options have the types and ranges of the command line,
and no name in a file gets code loaded (docs/security.md).
"""

from __future__ import annotations

import dataclasses
import re
import shutil
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from fastdqn.envs import games
from fastdqn.errors import RunError, UserError
from fastdqn.options.fields import plain
from fastdqn.options.groups import Groups, options_from
from fastdqn.options.presets import changed
from fastdqn.options.run import RunOptions
from fastdqn.runs.folder import read_config, read_object, write_json, write_whole
from fastdqn.runs.weights import FILE, checksum_of, read_weights, write_weights
from fastdqn.tools.evaluate import load_agent
from fastdqn.tools.labels import for_markdown

CONFIG, CARD = "config.json", "README.md"
FILES = (CONFIG, FILE, CARD)
_HEAD = "---\nlibrary_name: fastdqn\n"
"""How a page begins."""
_MOST_CONFIG_BYTES = 1_000_000
_SELF = ("format", "version", "script", "wrappers")
_LEARNERS = {"dqn", "a2c", "ppo", "sac"}
"""Groups of options of which an agent that is known here has one."""


def pack(run: Path, folder: Path, half: bool = False) -> None:
    """Write what others need of a run into `folder`: its weights, the options that describe them, and a page.

    Args:
        run: the folder of a run that has been saved.
        folder: an empty one, or none yet.
        half: as 16-bit numbers; half as large, and rounded.

    Raises:
        UserError: it is not such a run, or `folder` is not empty.
        RunError: `folder` cannot be written.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} is there already; name a folder that is empty, or none yet.")
    weights, config = read_weights(run), shared_config(run)
    if not _LEARNERS & config.keys():
        raise UserError(f"{run} cannot be pushed: it is no agent that is known here.")
    _write(folder, _halved(weights) if half else weights, config, _page_of(run, config))


def unpack(source: Path, folder: Path, own_game: str | None, name: str) -> None:
    """Write a network of somebody else's, after a look at all of it, as a run into `folder`.

    Args:
        source: where its files are.
        folder: none yet.
        own_game: the environment of one's own that the network may have been trained in, as the command line says.
        name: what messages call the source.

    Raises:
        UserError: something of it is missing, damaged, a link, or names code that `own_game` does not.
        RunError: `folder` cannot be written.
    """
    if folder.exists():
        raise UserError(f"{folder} is there already; name another place with --into.")
    weights, config = _looked_at(source, own_game, name)
    try:
        _write(folder, weights, config, f"Pulled from {name}.\n")
    except RunError:
        shutil.rmtree(folder, ignore_errors=True)  # else the same command would find it there
        raise


def _looked_at(source: Path, own_game: str | None, name: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return weights and options in a folder of somebody else's; raise what `unpack` raises.

    Where the game is one of Atari's, weights must fit the network that the options describe.
    """
    for file in FILES:
        if (source / file).is_symlink():
            raise UserError(f"{name} cannot be pulled: its {file} is a link.")
    if not (source / CONFIG).is_file():
        raise UserError(f"{name} cannot be pulled: it has no {CONFIG}.")
    if (source / CONFIG).stat().st_size > _MOST_CONFIG_BYTES:
        raise UserError(f"{name} cannot be pulled: its {CONFIG} is far too large.")
    config, weights = shared_config(source), read_weights(source)
    if not _LEARNERS & config.keys():
        raise UserError(f"{name} cannot be pulled: it is no agent that is known here.")
    games.refuse_code(source, config["game"]["name"], own_game)
    if games.is_atari(config["game"]["name"]):  # others may be missing on this machine
        load_agent(source, torch.device("cpu"), own_game)
    return weights, config


def shared_config(run: Path) -> dict[str, Any]:
    """Return the options of a run without what is of its machine and its user alone.

    Raises:
        UserError: it is not the folder of a run, or its options are not understood.
    """
    config = read_config(run)
    options = options_from(Groups, config)
    own = {"runs_dir": Path("runs"), "resume": None, "resume_previous": False}
    where = {"cuda": False, "device": None, "threads": None}
    quiet = {"wandb": False, "trackio": False, "project": RunOptions().project}
    engine = {"engine": None, "engine_address": None}
    groups = plain(_present(changed(options, {"run": {**own, **where, **quiet}, "ranks": engine})))
    return {**{name: config.get(name) for name in _SELF}, **groups}


def card_of(run: Path, config: dict[str, Any]) -> str:
    """Return a page about a run for those who find its network: what it is, what it scored, how to play it."""
    game, agent, script = config["game"]["name"], config.get("dqn", {}).get("agent"), config["script"]
    title = games.title_of(games.rom_of(game)) if games.is_atari(game) else game
    about = f"{agent} " if agent else ""
    tags = ["reinforcement-learning", "deep-reinforcement-learning", "atari" if games.is_atari(game) else "gymnasium"]
    lines = [*_HEAD.splitlines(), "pipeline_tag: reinforcement-learning", "tags:"]
    lines += [f"- {tag}" for tag in tags] + ["---", "", f"# {for_markdown(f'{title}: {about}by {script}')}", ""]
    lines += ["| games | mean | standard error | how they were played |", "| ---: | ---: | ---: | --- |"]
    lines += _scores(run) or ["| - | - | - | not evaluated |"]
    own = games.named_again(game)
    lines += ["", "```sh", f"fastdqn pull hf:OWNER/NAME --into runs/pulled{own}"]
    lines += [f"fastdqn evaluate runs/pulled{own}", f"fastdqn watch runs/pulled{own}", "```", ""]
    seed, steps = config["run"]["seed"], _read(run / "summary.json").get("env_steps")
    skip = config["game"]["frame_skip"]
    each = f" of {skip} frames" if games.is_atari(game) else ""
    said = "" if steps is None else f", {steps:,} env steps{each}"
    lines += [f"Trained by fastdqn {config.get('version')}, seed {seed}{said}; all options are in config.json.", ""]
    return "\n".join(lines)


def _page_of(run: Path, config: dict[str, Any]) -> str:
    """Return `card_of` a run, or the page of a folder that was packed before, as the demo was, and not evaluated since:
    it has the scores, and the run that they are of is elsewhere.
    """
    try:
        page = (run / CARD).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return card_of(run, config)
    packed = page.startswith(_HEAD) and not (run / "summary.json").exists()
    return page if packed and not _scores(run) else card_of(run, config)


def _present(options: Groups) -> Any:
    """Return the groups that there are, as a dataclass with those alone."""
    names = [field.name for field in dataclasses.fields(options) if getattr(options, field.name) is not None]
    kind = dataclasses.make_dataclass("Present", names, frozen=True)
    return kind(**{name: getattr(options, name) for name in names})


def _read(path: Path) -> dict[str, Any]:
    """Return what a JSON file says, nothing if it is not there or damaged."""
    try:
        return read_object(path)
    except (OSError, ValueError):
        return {}


def _scores(run: Path) -> list[str]:
    """Return a row of a table for each evaluation of a run's weights that was played to its end."""
    own = checksum_of(run)
    files = {path.stem.removeprefix("evaluation-"): _read(path) for path in sorted(run.glob("evaluation-*.json"))}
    newer = {name: said for name, said in files.items() if said.get("checksum") == own}  # others: it has learnt on
    rows: list[str] = []
    for name, said in (_read(run / "summary.json") | newer).items():
        one = cast(dict[str, Any], said) if isinstance(said, dict) else {}
        if not all(isinstance(one.get(key), int | float) for key in ("games", "mean")) or one.get("stopped"):
            continue
        error, epsilon = one.get("standard_error"), one.get("epsilon")
        spread = f"{error:.2f}" if isinstance(error, int | float) else "-"
        how = re.sub(r"[^a-z0-9 -]", "", str(one.get("protocol") or name))
        how += f", epsilon {epsilon:g}" if isinstance(epsilon, int | float) else ""
        rows.append(f"| {one['games']:g} | {one['mean']:.2f} | {spread} | {how} |")
    return rows


def _halved(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.half() if tensor.dtype == torch.float32 else tensor for name, tensor in weights.items()}


def _write(folder: Path, weights: dict[str, Tensor], config: dict[str, Any], page: str) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_weights(folder / FILE, weights)
        write_whole(folder / CARD, lambda path: path.write_text(page, encoding="utf-8"))
        write_json(folder / CONFIG, config)  # last: it makes the folder that of a run
    except OSError as error:
        raise RunError(f"Cannot write to {folder}: {error.strerror}.") from error
