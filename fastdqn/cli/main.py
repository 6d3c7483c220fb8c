"""The command `fastdqn`: evaluate, watch, plot and compare runs, and list the games.

    fastdqn evaluate runs/20261121-...-pong-... --protocol nature
    fastdqn watch latest --out pong.mp4 --values
    fastdqn plot runs/*pong* --out pong.png
    fastdqn compare runs/*pong*
    fastdqn games

Only what a command needs is imported once it is known which, so that --help answers at once.
"""

from __future__ import annotations

import fastdqn.process  # noqa: F401 - first: Ctrl-C during the imports below

import sys
from typing import Any

from fastdqn.cli.compare import Compare, compare
from fastdqn.cli.evaluate import Evaluate, evaluate
from fastdqn.cli.games import Games, games
from fastdqn.cli.parser import parsed
from fastdqn.cli.plot import Plot, plot
from fastdqn.cli.watch import Watch, watch
from fastdqn.errors import RunError, UserError


def main() -> int:
    """Run the command line; return the exit code."""
    try:
        words = sys.argv[1:]
        options: Any = parsed(Evaluate | Watch | Plot | Compare | Games, words, None, __doc__ or "", "fastdqn")
        doing: Any = {Evaluate: evaluate, Watch: watch, Plot: plot, Compare: compare, Games: games}
        code: int = doing[type(options)](options)
    except (UserError, RunError) as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return code


if __name__ == "__main__":
    sys.exit(main())
