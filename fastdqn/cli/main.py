"""The command `fastdqn`: train, evaluate, watch, plot and compare runs, sweep over games and seeds, list the games.

    fastdqn train 11
    fastdqn evaluate runs/20261121-...-pong-... --protocol nature
    fastdqn watch latest --out pong.mp4 --values
    fastdqn plot runs/*pong* --out pong.png
    fastdqn compare runs/*pong*
    fastdqn sweep 12 --games atari-26 --agents der --seeds 3 --into sweeps/der
    fastdqn report sweeps/der
    fastdqn push latest hf:owner/pong
    fastdqn pull hf:owner/pong
    fastdqn games
    fastdqn --version

`fastdqn COMMAND --help` lists the options of one.
"""

# Only what a command needs is imported once it is known which, so that --help answers at once.

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import fastdqn.cli.begin  # noqa: F401 - first: Ctrl-C during the imports below
from fastdqn import __version__
from fastdqn.cli.compare import Compare, compare
from fastdqn.cli.evaluate import Evaluate, evaluate
from fastdqn.cli.games import Games, games
from fastdqn.cli.parser import parsed
from fastdqn.cli.plot import Plot, plot
from fastdqn.cli.report import Report, report
from fastdqn.cli.share import Pull, Push, pull, push
from fastdqn.cli.sweep import Sweep, split, sweep
from fastdqn.cli.train import Train, train
from fastdqn.cli.watch import Watch, watch
from fastdqn.errors import RunError, UserError, shortage_of, told
from fastdqn.terminal import complain, say, unwritten

_BEFORE = {"evaluate": {"--episodes": "--games"}, "plot": {"--games": "--mean-of"}}
"""By command, what options were called in 0.1.0, which they still answer to, and what they are called now."""


def main() -> int:
    """Run the command line; return the exit code."""
    code, lost = _done(), unwritten()
    if lost is not None:
        complain(f"error: Not all could be printed: {lost}.")
        return code or 1
    return code


def _done() -> int:
    try:
        words = sys.argv[1:]
        if words[:1] == ["train"]:
            return train(words[1:])
        if words == ["--version"]:
            say(version())
            return 0
        words = _of_now(words)
        fixed: list[str] = []
        if words[:1] == ["sweep"]:
            words, fixed = split(words)
        commands: Any = Train | Evaluate | Watch | Plot | Compare | Sweep | Report | Push | Pull | Games
        elsewhere = "Options of the script follow --." if words[:1] == ["sweep"] and not fixed else ""
        options: Any = parsed(commands, words, None, __doc__ or "", "fastdqn", elsewhere=elsewhere)
        doing: Any = {Evaluate: evaluate, Watch: watch, Plot: plot, Compare: compare, Games: games}
        doing |= {Sweep: partial(sweep, fixed=fixed), Report: report, Push: push, Pull: pull}
        code: int = doing[type(options)](options)
    except (UserError, RunError, OSError) as error:
        sentence = told(error)
        if sentence is None:
            raise
        complain(f"error: {sentence}")
        return sentence.exit_code
    except (MemoryError, RuntimeError) as error:
        why = shortage_of(error)
        if why is None:
            raise
        complain(f"error: {why[0].upper()}{why[1:]}.")
        return 1
    return code


def _of_now(words: list[str]) -> list[str]:
    """Return `words` with options by their names of now."""
    names = _BEFORE.get(words[0], {}) if words else {}
    parts = (word.partition("=") for word in words)
    return [names.get(name, name) + equals + value for name, equals, value in parts]


def version() -> str:
    """Return what --version says: which fastdqn, which PyTorch, and where from, on one line."""
    import torch

    return f"fastdqn {__version__}, torch {torch.__version__}, from {Path(__file__).resolve().parents[1]}"


if __name__ == "__main__":
    sys.exit(main())
