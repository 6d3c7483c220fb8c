"""Plays the fresh games of runs that were solved with --fresh-games 0, where time was dear, and writes their scores
into each run's summary.json.

    python bench/fresh.py RUN ...

The weights are those in the folder of the run; the games' seeds are those that the run itself would have drawn.
"""

import startup  # noqa: F401 - first: Ctrl-C during the imports below

import dataclasses
import sys
from pathlib import Path
from typing import Any, NamedTuple

import torch
import tyro

sys.path.append(str(Path(__file__).resolve().parents[1]))  # where bench is, if this file is run

from bench.programs import exit_code
from fastdqn import process
from fastdqn.cli.parser import parsed
from fastdqn.envs.games import is_atari
from fastdqn.errors import UserError
from fastdqn.execution.devices import prepare_device
from fastdqn.options.fields import at_least
from fastdqn.options.groups import Groups, options_from
from fastdqn.options.run import RunOptions
from fastdqn.tools.fresh import EXAMINATIONS, play_fresh
from fastdqn.tools.reading import read_run

NATURE = EXAMINATIONS[-1].name
"""The last that summary.json has of them."""


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
    def work() -> int:
        options: Any = parsed(FreshOptions, words, None, __doc__ or "")
        return play(options)

    return exit_code(work)


def play(options: FreshOptions) -> int:
    at_least(options.games, 1, "--games")
    device = prepare_device(options.device)
    for folder in options.runs:
        run = read_run(folder)
        found = options_from(Groups, run.config)
        if not run.summary.get("solved"):
            raise UserError(f"The run {folder} was not solved.")
        if not is_atari(found.game.name):
            raise UserError(f"The run {folder} plays {found.game.name}; this is for games of Atari's.")
        print(folder)
        if NATURE in run.summary:
            print("It has its fresh games.")
            continue
        again = dataclasses.replace(found.run, fresh_games=options.games)
        play_fresh(Solved(folder, again, device, found.game.name))
        if process.stop_signal():
            return process.exit_code()
        if NATURE not in read_run(folder).summary:
            raise UserError(f"The run {folder} has no fresh games, for the reason above.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
