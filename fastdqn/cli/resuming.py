"""The options of a run that is resumed: those of its checkpoint, and what a command line may change of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from fastdqn.cli.parser import parsed
from fastdqn.cli.words import flag, value_of
from fastdqn.envs import games
from fastdqn.errors import CheckpointError, UserError
from fastdqn.options.fields import changes_learning
from fastdqn.options.groups import flag_of, groups_of, options_from
from fastdqn.options.presets import changed
from fastdqn.options.ranks import RanksOptions
from fastdqn.options.run import RunOptions

OptionsT = TypeVar("OptionsT")
SETTLED: tuple[tuple[str, str], ...] = (
    ("vector", "num_envs"),
    ("ppo", "learning_rate_decay"),
    ("players", "players"),
    ("sessions", "sessions"),
    ("parts", "importance_decay"),
)
"""Options, by group and field, whose None the beginning of a run replaces by a number."""


def resumed_options(
    options_type: type[OptionsT],
    description: str,
    words: list[str],
    resume: str,
    script: str | None,
    game: str,
    others: Sequence[type[Any]],
) -> OptionsT:
    """Return the options of the run to resume, and what `words` change of them.

    Args:
        options_type: the groups of the script.
        description: what --help begins with.
        words: the command line.
        resume: which run, as it says.
        script: its name, None for any.
        game: the script's own, whose code is loaded unasked.
        others: groups that the script has instead of these with another algorithm.

    Raises:
        UserError: there is no such run or checkpoint, it is another script's, or `words` contradict it.
        CheckpointError: it has options that this version does not know.
    """
    from fastdqn.runs.checkpoint import latest_run, newest

    runs_dir = Path(value_of("--runs-dir", words) or RunOptions().runs_dir)
    folder = latest_run(runs_dir, script) if resume == "latest" else Path(resume)
    header = newest(folder, flag("resume-previous", words, False))
    if script is not None and script != header.script:
        raise UserError(f"The run {folder} is one of {header.script}; resume it with that script.")
    for kind in others:  # the one whose groups the run has
        if {field.name for field in dataclasses.fields(kind)} <= header.config.keys():
            options_type = kind
    anew: dict[str, Any] = {"resume": None, "resume_previous": False, "runs_dir": runs_dir}
    if value_of("--device", words) or flag("cuda", words, False):  # the one that is named now is meant
        anew |= {"device": None, "cuda": False}
    try:
        known = options_from(options_type, header.config)
    except UserError as error:  # of another version
        raise CheckpointError(str(error)) from error
    saved = changed(known, {"run": anew})
    games.refuse_code(folder, groups_of(saved).game.name, value_of("--game", words) or game)
    _refuse_address(folder, saved, words)
    options = parsed(options_type, _with_game_of(saved, words), saved, description, pairs=True)
    options = _as_settled(options, saved)
    _refuse_changes(saved, options, str(header.path))
    return changed(options, {"run": {"resume": str(folder)}})


def _refuse_address(folder: Path, saved: Any, words: Sequence[str]) -> None:
    """Refuse to connect to a cluster because a file says so.

    Raises:
        UserError: the run was started by one, and `words` name none.
    """
    ranks: RanksOptions | None = getattr(saved, "ranks", None)
    if ranks is None or ranks.engine_address is None or value_of("--engine-address", words) is not None:
        return
    said = f"The run {folder} was started by {ranks.engine} at {ranks.engine_address}"
    raise UserError(
        f"{said}. Its files are no reason to connect there: add --engine-address with that address or another one, or "
        "with None."
    )


def _as_settled(options: OptionsT, saved: OptionsT) -> OptionsT:
    """Return `options` with what the run's beginning settled, where they leave that open again."""
    for group, name in SETTLED:
        now, before = getattr(options, group, None), getattr(saved, group, None)
        if now is not None and getattr(now, name) is None:
            options = changed(options, {group: {name: getattr(before, name)}})
    return options


def _refuse_changes(saved: Any, options: Any, where: str) -> None:
    """Refuse other values of options that change what is learnt.

    Raises:
        UserError: with the first of them.
    """
    for group in dataclasses.fields(options):
        before: Any = getattr(saved, group.name)
        now: Any = getattr(options, group.name)
        for field in dataclasses.fields(now):
            old: Any = getattr(before, field.name)
            new: Any = getattr(now, field.name)
            if new != old and changes_learning(field):
                flag = flag_of(now.__class__, field.name)
                raise UserError(
                    f"{_typed(flag, new)} contradicts the checkpoint {where}, which has {_typed(flag, old)}; it cannot "
                    "change in the middle of a run."
                )


def _with_game_of(saved: Any, words: list[str]) -> list[str]:
    """Return `words` with the run's own spelling of its game."""
    game, own = value_of("--game", words), groups_of(saved).game.name
    if game is not None and game.strip().lower() == own.strip().lower():
        return [*words, "--game", own]
    return words


def _typed(flag: str, value: Any) -> str:
    """Return an option as it is typed."""
    if isinstance(value, bool):
        return flag if value else f"--no-{flag[2:]}"
    return f"{flag} {value}"
