"""The process in which a sweep runs a script: as `python SCRIPT` does, and it ends when the sweep does.

python -m fastdqn.cli.worker PARENT FOLDER SCRIPT OPTIONS
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import filelock

import fastdqn.cli.begin  # noqa: F401 - first: the clock, and signals during the imports below
from fastdqn import process
from fastdqn.cli.train import run_as_main
from fastdqn.terminal import complain, say
from fastdqn.tools.sweep.jobs import LOCK, WAIT_SECONDS, note_end

LOOK_SECONDS = 0.5
LAST_SECONDS = 120.0
"""After which a worker without a sweep ends, whatever it is doing."""


def main() -> int:
    """Run the script; return its exit code."""
    process.heed_first_signal_only()  # a service manager sends one to all processes, and the sweep another
    parent, folder, path, words = int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:]
    threading.Thread(target=_follow, args=(parent,), name="fastdqn-parent", daemon=True).start()
    lock = filelock.FileLock(folder / LOCK, thread_local=False)
    try:
        lock.acquire(timeout=WAIT_SECONDS)
    except filelock.Timeout:
        complain(f"error: another process still runs in {folder}.")
        return 1
    except OSError as error:
        complain(f"error: Cannot write to {folder}: {error.strerror}.")
        return 1
    say(f"--- {path.name} {' '.join(words)}")
    try:
        run_as_main(path, words, str(path))
    except SystemExit as end:
        if end.code not in (0, None):
            raise
    try:
        note_end(folder)
    except OSError as error:
        complain(f"error: Cannot write to {folder}: {error.strerror}.")
        return 1
    return 0


def _follow(parent: int) -> None:
    """End this process, with a checkpoint, once the sweep that started it has ended."""
    while os.getppid() == parent:
        time.sleep(LOOK_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(LAST_SECONDS)
    os._exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
