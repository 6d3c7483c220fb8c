"""Looking whether a script would take the words of a sweep's runs, before the first of them begins.

python -m fastdqn.cli.rehearsal SCRIPT

Standard input is a JSON list of lists of words; printed is the sentence for the first that are not good, null if all
are.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import fastdqn.cli.begin  # noqa: F401 - first: signals during the imports below
from fastdqn.errors import UserError

SECONDS = 120.0
"""For which a rehearsal may take."""
STARTS = "from fastdqn.cli.scripts import"
"""What a script says that has this package's command line; no other is asked."""


def mistake(path: Path, words: Sequence[Sequence[str]]) -> str | None:
    """Return what a script would say against the first of these lists of words that it refuses; None if it takes all,
    or cannot be asked.

    Raises:
        subprocess.TimeoutExpired: after two minutes without an answer.
    """
    with contextlib.suppress(OSError, ValueError, IndexError, subprocess.CalledProcessError):
        if STARTS not in path.read_text(encoding="utf-8"):
            return None
        done = subprocess.run(
            [sys.executable, "-m", "fastdqn.cli.rehearsal", str(path)],
            input=json.dumps([list(one) for one in words]),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=True,
        )
        said: str | None = json.loads(done.stdout.splitlines()[-1])
        return said
    return None


def main() -> int:
    """Print the sentence."""
    from fastdqn.cli import scripts
    from fastdqn.cli.train import run_as_main

    path, lists = Path(sys.argv[1]), json.load(sys.stdin)
    said: str | None = None

    def ask(_train: Any, options_type: type[Any], description: str | None, **defaults: Any) -> NoReturn:
        nonlocal said
        for words in lists:
            try:
                scripts.parse(options_type, description or "", words, script=path.stem, **defaults)
            except UserError as error:
                said = str(error)
                break
        raise SystemExit(0)

    scripts.start = ask
    with contextlib.suppress(SystemExit):
        run_as_main(path, [], str(path))
    print(json.dumps(said))
    return 0


if __name__ == "__main__":
    sys.exit(main())
