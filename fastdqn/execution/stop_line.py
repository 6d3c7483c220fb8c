"""A line from whoever has asked an engine to run ranks to each of them: it asks them to stop, and hears what they print
and how they end.

An engine such as Ray or Spark has no word for "stop, but save first": it kills. So each rank has a connection to the
process that asked for it. A signal there is passed on as a signal that the rank has received, and a connection that
ends is one, too: nobody is left to wait for the rank. What ranks print comes by the same way, as they print it.

torchrun's agents, which Spark starts, wait five minutes for each other once a rank has ended well, deaf to SIGTERM. So
a rank under an agent ends when all ranks have said their exit codes, or fails when one of them has gone without: then
its agent ends at once.
"""

from __future__ import annotations

import contextlib
import hmac
import io
import json
import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from fastdqn import process
from fastdqn.errors import RunError
from fastdqn.terminal import write

POLL_SECONDS = 0.2
"""Of waiting, after which whoever waits looks around."""
STOP_SECONDS = 10.0
"""That ranks have to end by themselves after a signal, once they have heard of it."""
DRAIN_SECONDS = 1.0
"""For ranks' last words to be heard once the engine's job is over."""
AGENT = "TORCHELASTIC_RUN_ID"
"""In the environment of a rank that has an agent of torchrun."""
_LOOPBACK = "127.0.0.1"
_ALL_ENDED, _LOST = 254, 255  # said to ranks; lower numbers are signals


class StopLine:
    """The end of the lines where somebody waits for the ranks, as a context manager.

    Args:
        address: at which ranks can reach this process; by default from this machine alone.
        world: ranks.
    """

    def __init__(self, address: str = _LOOPBACK, world: int = 1) -> None:
        self.codes: dict[int, int] = {}
        """Exit codes of the ranks that have ended."""
        self._address, self._world = address, world
        self._token = secrets.token_hex(16)
        self._lines: dict[socket.socket, int] = {}  # to the rank of each
        self._said: list[int] = []  # what ranks were told
        self._lock = threading.Lock()
        self._server = socket.create_server(("" if address != _LOOPBACK else address, 0))
        self._port = int(self._server.getsockname()[1])

    def __enter__(self) -> StopLine:
        threading.Thread(target=self._accept, name="fastdqn-stop-line", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            lines, self._lines = self._lines, {}
        for one in (self._server, *lines):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)  # whoever reads from it hears of the end
            one.close()

    def reached_by(self, member: Callable[[], int], together: bool) -> Reached:
        """Return what runs `member` with a line to here.

        Args:
            member: runs a rank; can be pickled.
            together: whether all ranks are on one machine, whatever the engine says of that.
        """
        return Reached(member, self._address, self._port, self._token, together)

    def wait(self, job: Callable[[], None], engine: str) -> None:
        """Let the engine do its job in a thread of its own, and pass signals on; returns when it is over.

        The thread, and all processes that it starts, are deaf to SIGINT: a terminal sends it to all of them.

        Raises:
            RunError: it was asked to stop, and is not over after some seconds.
            BaseException: whatever `job` raises.
        """
        errors: list[BaseException] = []

        def work() -> None:
            if hasattr(signal, "pthread_sigmask"):
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            try:
                job()
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=work, name=f"fastdqn-{engine.lower()}", daemon=True)
        with process.running():
            thread.start()
            end = None
            while thread.is_alive():
                thread.join(POLL_SECONDS)
                if process.stop_signal() and end is None:
                    self.stop(process.stop_signal())
                    end = time.monotonic() + STOP_SECONDS
                if end is not None and thread.is_alive() and time.monotonic() > end and not self._any():
                    raise RunError(f"{engine} has not ended its job within {STOP_SECONDS:g} seconds.")
        end = time.monotonic() + DRAIN_SECONDS
        while self._any() and time.monotonic() < end:
            time.sleep(0.01)
        if errors:
            raise errors[0]

    def stop(self, number: int) -> None:
        """Let all ranks, and those that are still to come, stop as if they had received this signal."""
        with self._lock:
            self._said.append(number)
            lines = list(self._lines)
        for line in lines:
            self._tell(line, number)

    def _any(self) -> bool:
        """Tell whether any rank is still there, and not at its end: it may be saving."""
        with self._lock:
            return any(rank not in self.codes for rank in self._lines.values())

    def _accept(self) -> None:
        while True:
            try:
                line, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._listen, args=(line,), name="fastdqn-stop-line", daemon=True).start()

    def _listen(self, line: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError, UnicodeDecodeError), line, line.makefile("rb") as words:
            token, _, number = words.readline(200).strip().partition(b" ")
            if not hmac.compare_digest(token, self._token.encode()):
                return
            rank = int(number)
            with self._lock:
                self._lines[line] = rank
                said = list(self._said)
            for one in said:
                self._tell(line, one)
            try:
                for message in words:
                    self._hear(json.loads(message))
            finally:
                with self._lock:
                    self._lines.pop(line, None)
                if rank not in self.codes:
                    self.stop(_LOST)

    def _hear(self, message: dict[str, Any]) -> None:
        if "code" in message:
            self.codes[int(message["rank"])] = int(message["code"])
            if len(self.codes) == self._world:
                self.stop(_ALL_ENDED)
            return
        write(str(message["text"]), error=bool(message["error"]))

    def _tell(self, line: socket.socket, number: int) -> None:
        with contextlib.suppress(OSError):
            line.sendall(bytes([number]))


@dataclass(frozen=True)
class Reached:
    """A member with a line to whoever waits for it; can be pickled if the member can."""

    member: Callable[[], int]
    address: str
    port: int
    token: str
    together: bool

    def __call__(self) -> int:
        """Run this rank to its end; return its exit code.

        Raises:
            RunError: nobody waits for it any more.
        """
        process.take_over()
        if self.together:  # an engine that knows of no machines counts one rank on each
            os.environ["LOCAL_RANK"], os.environ["LOCAL_WORLD_SIZE"] = os.environ["RANK"], os.environ["WORLD_SIZE"]
            os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback())
        try:
            line = socket.create_connection((self.address, self.port), timeout=30.0)
        except OSError as error:
            raise RunError(f"Whoever started this rank cannot be reached at {self.address}: {error}.") from error
        with line:
            line.settimeout(None)
            line.sendall(f"{self.token} {os.environ['RANK']}\n".encode())
            others = _Others()
            threading.Thread(target=_hear, args=(line, others), name="fastdqn-stop-line", daemon=True).start()
            lock = threading.Lock()
            out, error = (_Sent(line, lock, error=which) for which in (False, True))
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
                code = self.member()
            out.flush()
            error.flush()
            with contextlib.suppress(OSError):
                line.sendall(json.dumps({"rank": int(os.environ["RANK"]), "code": code}).encode() + b"\n")
            if AGENT in os.environ:
                others.over.wait()  # or until whoever started this rank is gone
                if others.lost:
                    os._exit(code or 1)
            others.left = True
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
        return code


@dataclass
class _Others:
    """What a rank has heard of the others."""

    over: threading.Event = field(default_factory=threading.Event)
    """There is nothing to wait for any more."""
    lost: bool = False
    """One has ended without its exit code, or nobody waits for this one."""
    left: bool = False
    """This one has ended, and hangs up."""


class _Sent(io.TextIOBase):
    """Text that is printed at the other end of a line, in whole lines, or as much as there is when it is flushed."""

    def __init__(self, line: socket.socket, lock: threading.Lock, error: bool) -> None:
        self._line, self._lock, self._error = line, lock, error
        self._kept = ""

    encoding = "utf-8"  # pyright: ignore[reportAssignmentType, reportIncompatibleVariableOverride]

    def write(self, text: str, /) -> int:
        with self._lock:
            self._kept += text
            whole, newline, self._kept = self._kept.rpartition("\n")
            self._send(whole + newline)
        return len(text)

    def flush(self) -> None:
        with self._lock:
            kept, self._kept = self._kept, ""
            self._send(kept)

    def _send(self, text: str) -> None:
        if text:
            with contextlib.suppress(OSError):
                self._line.sendall(json.dumps({"text": text, "error": self._error}).encode() + b"\n")


def loopback() -> str:
    """Return the name of the network interface that leads nowhere but here."""
    return next((name for _, name in socket.if_nameindex() if name in ("lo", "lo0")), "lo")


def _hear(line: socket.socket, others: _Others) -> None:
    """Take a signal's number as that signal, and the end of the line as SIGTERM."""
    while True:
        said = b""
        with contextlib.suppress(OSError):
            said = line.recv(1)
        if said and said[0] < _ALL_ENDED:
            process.stop_with(said[0])
            continue
        if not said and not others.left:
            process.stop_with(int(signal.SIGTERM))
        others.lost = others.lost or said != bytes([_ALL_ENDED])
        others.over.set()
        if not said:
            return
