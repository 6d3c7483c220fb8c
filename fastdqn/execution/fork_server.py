"""What multiprocessing's fork server imports first: it makes the server deaf, fills it, and lets it clean up.

Nothing else of fastdqn is imported in the server: its children take over signals in their own way.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Sequence

TASK = "FASTDQN_FORK_SERVER"
"""The variable of the server's environment that says, as JSON, what the arguments of `_begin` are."""
LOOK_SECONDS = 0.2
"""How often the server looks whether its parent is still there, while it imports."""


def _begin(parent: int, folder: str, modules: Sequence[str]) -> None:
    """Ignore what is sent to all processes of a run, and import `modules`; leave if the parent does.

    Args:
        parent: its process id.
        folder: of the server's socket, which is removed in the end.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN or number != signal.SIGHUP:  # nohup's stays for all
            signal.signal(number, _be_deaf)
            signal.siginterrupt(number, False)
    server = os.getpid()

    def clean_up() -> None:
        if os.getpid() == server:  # and not a child of it, which may have inherited this
            shutil.rmtree(folder, ignore_errors=True)

    def look(*_: object) -> None:
        if os.getppid() != parent:
            clean_up()
            os._exit(1)

    atexit.register(clean_up)
    before = signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, LOOK_SECONDS, LOOK_SECONDS)
    sys.path[:] = [one for one in sys.path if one]  # modules in the current folder are in nobody's way
    for name in modules:
        with contextlib.suppress(Exception):  # a child that needs it says so
            importlib.import_module(name)
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    signal.signal(signal.SIGALRM, before)


def _be_deaf(*_: object) -> None:
    """Do nothing at a signal, as `fastdqn.process.be_deaf`."""


if TASK in os.environ:
    _begin(**json.loads(os.environ.pop(TASK)))
