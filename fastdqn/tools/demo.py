"""Making the network that comes with the package, which `fastdqn watch demo` plays.

python -m fastdqn.tools.demo RUN

RUN is the folder of a run that solved Pong and whose fresh games confirm it; its network must be small enough.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from fastdqn.errors import RunError, UserError
from fastdqn.runs.folder import read_object
from fastdqn.runs.weights import FILE
from fastdqn.terminal import say
from fastdqn.tools.share import FILES, pack

MOST_BYTES = 3_000_000
PLACE = Path(__file__).resolve().parents[1] / "data" / "demo"


def make_demo(run: Path, place: Path = PLACE) -> int:
    """Put the network of `run` in place of the demo, as 16-bit numbers; return the bytes of its weights.

    Raises:
        UserError: the run did not solve Pong, its fresh games do not confirm that, or its network is too large.
        RunError: it cannot be written.
    """
    try:
        summary = read_object(run / "summary.json")
        solved, game = bool(summary["solved"] and summary["confirmed"]), summary["game"]
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{run} has no summary of a run that was solved and confirmed by fresh games.") from error
    if not solved or game != "pong":
        raise UserError(f"{run} is no run that solved Pong and whose fresh games confirm it.")
    with tempfile.TemporaryDirectory(prefix="fastdqn-demo-") as folder:
        packed = Path(folder) / "demo"
        pack(run, packed, half=True)
        size = (packed / FILE).stat().st_size
        if size > MOST_BYTES:
            raise UserError(
                f"The network of {run} has {size / 1e6:.1f} MB as 16-bit numbers, the demo at most "
                f"{MOST_BYTES / 1e6:.1f} MB; train with --network narrow."
            )
        try:
            place.mkdir(parents=True, exist_ok=True)
            for name in FILES:
                shutil.copyfile(packed / name, place / name)
        except OSError as error:
            raise RunError(f"Cannot write to {place}: {error.strerror}.") from error
    return size


def main() -> int:
    """Return the exit code."""
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.stderr.write("error: Name the folder of a run.\n")
        return 2
    try:
        size = make_demo(Path(sys.argv[1]))
    except (UserError, RunError) as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    say(f"{PLACE}: {size / 1e6:.2f} MB; fastdqn evaluate demo --epsilon 0.02 plays 100 games with it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
