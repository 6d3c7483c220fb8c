"""Plays the fresh games of runs that were solved with --fresh-games 0, where time was dear, and writes their scores
into each run's summary.json.

    python bench/fresh.py RUN ...

The weights are those in the folder of the run; the games' seeds are those that the run itself would have drawn.
"""

import startup  # noqa: F401 - first: Ctrl-C during the imports below

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import torch
import tyro

from fastdqn.cli.parser import parsed
from fastdqn.envs.games import is_atari
from fastdqn.errors import UserError
from fastdqn.execution.devices import prepare_device
from fastdqn.options.groups import Groups, options_from
from fastdqn.options.run import RunOptions
from fastdqn.runs.folder import read_config
from fastdqn.tools.fresh import play_fresh


@dataclasses.dataclass(frozen=True)
class FreshOptions:
    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of runs."""
    games: int = 100
    """Games at epsilon 0.02; those by Nature's protocol follow."""
    device: str = "cpu"
    """Where the networks are evaluated."""


class Solved(NamedTuple):
    """A run that is over."""

    folder: Path
    options: RunOptions
    device: torch.device
    game: str
    reason: str = "solved"


def main(words: list[str]) -> int:
    try:
        options: Any = parsed(FreshOptions, words, None, __doc__ or "")
        play(options)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def play(options: FreshOptions) -> None:
    device = prepare_device(options.device)
    for folder in options.runs:
        found = options_from(Groups, read_config(folder))
        if not json.loads((folder / "summary.json").read_text(encoding="utf-8"))["solved"]:
            raise UserError(f"The run {folder} was not solved.")
        if not is_atari(found.game.name):
            raise UserError(f"The run {folder} plays {found.game.name}; this is for games of Atari's.")
        print(folder)
        again = dataclasses.replace(found.run, fresh_games=options.games)
        play_fresh(Solved(folder, again, device, found.game.name))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
