"""Programs that are forked from a server, which has imported PyTorch and the other packages once for all of them.

A program runs as `python PROGRAM` runs it, as `__main__` of a process of its own, but without the seconds that the
imports take. Nothing of fastdqn is imported before.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
SERVER = "tests.helpers.forks"
LONGEST = 1 << 17  # bytes of a request


class Program:
    """A program that is running: what tests need of `subprocess.Popen`.

    Args:
        words: a script, or -m and a module, and its arguments.
        env: its environment.
        session: whether it leads a session of its own, as in a terminal of its own.
    """

    def __init__(self, words: Sequence[str], cwd: Path, env: Mapping[str, str], session: bool) -> None:
        self._written = [tempfile.TemporaryFile() for _ in range(2)]  # noqa: SIM115 - read after its end
        self._report, there = socket.socketpair()
        request = json.dumps({"words": list(words), "cwd": str(cwd), "env": dict(env), "session": session})
        with there:
            socket.send_fds(_server(), [request.encode()], [one.fileno() for one in (*self._written, there)])
        self.returncode: int | None = None
        self.pid = self._read()

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; return the exit code, negative if it is a signal's."""
        if self.returncode is None:
            if not select.select([self._report], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(SERVER, timeout or 0.0)
            self.returncode = self._read()
            self._report.close()
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for its end; return what it has written to stdout and stderr."""
        self.wait(timeout)
        out, err = (os.pread(one.fileno(), os.fstat(one.fileno()).st_size, 0).decode() for one in self._written)
        return out, err

    def kill(self) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended since
                os.kill(self.pid, signal.SIGKILL)

    def _read(self) -> int:
        said = self._report.recv(8)
        if len(said) < 8:
            raise RuntimeError("The server that forks programs is gone.")
        return int.from_bytes(said, "little", signed=True)


def run(
    words: Sequence[str], cwd: Path = ROOT, env: Mapping[str, str] | None = None, timeout: float = 240.0
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, as `subprocess.run` does."""
    program = Program(words, cwd, os.environ if env is None else env, session=False)
    try:
        out, err = program.communicate(timeout)
    finally:
        program.kill()
    return subprocess.CompletedProcess(list(words), program.wait(), out, err)


@functools.cache
def _server() -> socket.socket:
    """Return the line to this process's server, which ends with it."""
    from fastdqn.execution.starting import IMPORTED_BEFORE

    here, there = socket.socketpair(type=socket.SOCK_SEQPACKET)
    with there:
        subprocess.Popen(
            [sys.executable, "-m", SERVER, str(there.fileno()), *IMPORTED_BEFORE],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            cwd=ROOT,
            pass_fds=[there.fileno()],
            start_new_session=True,
        )
    return here


def serve(line: socket.socket) -> dict[str, Any] | None:
    """Fork a process for each request. Return its request in the new process, and None in the server in the end."""
    while True:
        said, fds, *_ = socket.recv_fds(line, LONGEST, 3)
        if not said:
            return None
        if os.fork() == 0:
            line.close()
            report = fds.pop()
            if _forked(report):
                return {"fds": fds, **json.loads(said)}
        for fd in fds:
            os.close(fd)


def _forked(report: int) -> bool:
    """Fork once more. Return in the new process; the other one reports its id, its exit code, and leaves."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid == 0:
        os.close(report)
        return True
    _say(report, pid)
    _say(report, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    os._exit(0)


def _say(report: int, number: int) -> None:
    with contextlib.suppress(OSError):  # nobody listens any more
        os.write(report, number.to_bytes(8, "little", signed=True))


def become(request: Mapping[str, Any]) -> None:
    """Be the program of a request."""
    if request["session"]:
        os.setsid()
    for fd, stream in zip(request["fds"], (1, 2), strict=True):
        os.dup2(fd, stream)
        os.close(fd)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]
    np.random.seed()
    tempfile.tempdir = None
    first, *rest = request["words"]
    module = first == "-m"
    path = [request["cwd"] if module else str(Path(first).parent)]
    path += request["env"].get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:1] = [folder for folder in path if folder]
    if module:
        name, *rest = rest
        sys.argv = [name, *rest]
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    else:
        sys.argv = [first, *rest]
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no zombies
    for one in sys.argv[2:]:
        importlib.import_module(one)
    asked = serve(socket.socket(fileno=int(sys.argv[1])))
    if asked is not None:
        become(asked)
