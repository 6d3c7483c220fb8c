"""`fastdqn games`: the Atari games."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Annotated

import tyro

from fastdqn.errors import UserError
from fastdqn.terminal import console_for_tables

LEAST = 68
"""Columns that the list needs."""


@dataclasses.dataclass(frozen=True)
class Games:
    """List the Atari games: names, actions, and the scores of people and of random play."""

    name: Annotated[str, tyro.conf.Positional] = ""
    """Only those whose name contains this."""


def games(options: Games) -> int:
    """Print the list; return the exit code."""
    from rich.table import Table

    from fastdqn.envs.games import actions_of, gymnasium_id, rom_names, rom_of
    from fastdqn.envs.scores import REFERENCES

    wanted = options.name.lower()
    names = [name for name in rom_names() if wanted in name]
    with contextlib.suppress(UserError):  # whatever else --game takes
        names = names or [rom_of(options.name)]
    if not names:
        raise UserError(f"There is no game with {options.name!r} in its name; fastdqn games lists all.")
    table = Table(caption="scores: Wang et al. 2016, table 2", caption_justify="left")
    for heading in ("game", "also", "actions", "human", "random"):
        name = heading in ("game", "also")
        table.add_column(heading, justify="left" if name else "right", overflow="fold", no_wrap=not name)
    for name in names:
        reference = REFERENCES.get(name)
        scores = ("-", "-") if reference is None else (f"{reference.human:,.1f}", f"{reference.random:,.1f}")
        table.add_row(name, gymnasium_id(name), str(actions_of(name)), *scores)
    shown = console_for_tables()
    shown.width = max(shown.width, LEAST)  # a narrower terminal breaks lines, instead of numbers
    shown.print(table)
    return 0
