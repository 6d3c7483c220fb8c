"""Runs a script that kills itself, as `kill -9` would, at its n-th operation on a file of its run.

    python -m tests.faults.killer N SCRIPT WORDS...

N = 0 lets it end, and prints how many operations there were as its last line. Counted are those that Python announces
(opening to write, renaming, removing, making a folder) and fsync, in the folder that --runs-dir or --resume names.
"""

from __future__ import annotations

import itertools
import os
import runpy
import signal
import sys
import threading
from pathlib import Path
from typing import Any

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.truncate", "shutil.rmtree"}


class Killer:
    """Counts operations on files below `folder`, and kills this process at one of them.

    Args:
        at: the number of that operation, from 1 on; 0 for none.
        folder: of the run, or around it.
    """

    def __init__(self, at: int, folder: str) -> None:
        self.count = 0
        self._at, self._folder = at, os.path.realpath(folder)
        self._numbers, self._lock = itertools.count(1), threading.Lock()
        self._fsync = os.fsync
        sys.addaudithook(self._announced)
        os.fsync = self._synced  # type: ignore[assignment]

    def _announced(self, event: str, words: tuple[Any, ...]) -> None:
        writes = event == "open" and isinstance(words[2], int) and bool(words[2] & WRITES)
        if (writes or event in CHANGES) and isinstance(words[0], str | bytes | os.PathLike):
            self._note(os.fsdecode(words[0]))

    def _synced(self, handle: int) -> None:
        self._note(str(Path(f"/proc/self/fd/{handle}").readlink()))
        self._fsync(handle)

    def _note(self, path: str) -> None:
        if not os.path.realpath(path).startswith(self._folder):
            return
        with self._lock:
            self.count = next(self._numbers)
        if self.count == self._at:
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Run the script."""
    at, script, *words = sys.argv[1:]
    folder = words[words.index("--resume" if "--resume" in words else "--runs-dir") + 1]
    killer = Killer(int(at), folder)
    sys.argv = [script, *words]
    sys.path.insert(0, str(Path(script).parent))
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        print(killer.count, flush=True)


if __name__ == "__main__":
    main()
