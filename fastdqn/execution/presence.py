"""Who is there: each rank has a line to rank 0 on which it is heard of, whatever its main thread does.

A collective operation says neither who has not come nor why. So each rank says every half second, from a thread of its
own, that it lives and how many exchanges it has begun; that it failed, before it leaves; and that it leaves because the
run is over. (Code that holds Python's lock for seconds holds up that thread, too.) A line that ends without that, or is
silent for too long, is a rank that is gone: rank 0 tells the others, and whoever has not noticed some seconds later is
ended where it hangs.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import selectors
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from fastdqn import process
from fastdqn.errors import RunError

EMBEDDED = "FASTDQN_EMBEDDED"
"""In the environment of children of rank 0, which speaks for them."""
BEAT_SECONDS = 0.5
"""Between two words of a rank."""
SILENT_SECONDS = 5.0
"""Without a word, at least, after which a rank counts as gone: stopped, or cut off. Before all have begun to learn it
has `START_SECONDS`: emulators that are made hold Python's lock."""
GRACE_SECONDS = 3.0
"""For a rank's main thread to notice that another is gone, before the process is ended."""
SAVE_SECONDS = 30.0
"""For a checkpoint that is being written then to be whole, at most; the seconds above begin when it is."""
START_SECONDS = 60.0
"""At least, for all ranks to be there: imports may take long."""
LONGEST = 1 << 20
"""Bytes of a message at most."""

lookouts: list[Callable[[], None]] = []
"""Called until all ranks are there; they raise RunError where one will not come."""


@dataclass
class _Line:
    """A connection to another rank."""

    to: socket.socket
    rank: int = -1  # until it has said who it is
    place: str = ""  # where it runs
    begun: int = 0  # exchanges that it has begun
    heard: float = field(default_factory=time.monotonic)
    unread: bytes = b""

    @property
    def called(self) -> str:
        return f"Rank {self.rank} ({self.place})" if self.place else f"Rank {self.rank}"

    def say(self, **message: Any) -> None:
        """Send a message, unless nobody takes it any more."""
        with contextlib.suppress(OSError):
            self.to.sendall(json.dumps(message).encode() + b"\n")


class Presence:
    """A rank's line to rank 0, or rank 0's lines to all others, as a context manager: there on entry, closed on exit.

    Args:
        rank: of this process.
        world: ranks.
        address: at which rank 0 can be reached.
        store: a `torch.distributed.Store` of all ranks.
        quiet: whether rank 0 speaks for this process where its main thread hangs.
        patience: seconds of silence after which a rank counts as gone, where that is more than `SILENT_SECONDS`.
    """

    def __init__(
        self, rank: int, world: int, address: str, store: Any, quiet: bool = False, patience: float = 0.0
    ) -> None:
        self.lost: str | None = None
        """Why the run cannot go on, a sentence; None as long as all are there."""
        self.saving: Callable[[], bool] = lambda: False
        """Whether this rank writes a checkpoint."""
        self._rank, self._world = rank, world
        self._address, self._store = address, store
        self._quiet = quiet
        self._begun = 0
        self._lines: dict[int, _Line] = {}
        self._strangers: list[_Line] = []  # who have not said yet who they are
        self._left: set[int] = set()
        self._server: socket.socket | None = None
        self._token = ""
        self._noticed = self._closed = False
        self._patience = patience
        self._silent = max(START_SECONDS, patience)
        self._lock = threading.Lock()  # of what is sent
        self._selector = selectors.DefaultSelector()
        self._thread = threading.Thread(target=self._watch, name="fastdqn-presence", daemon=True)

    def __enter__(self) -> Presence:
        if self._rank == 0:
            self._listen()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._closed = True
            for line in self._lines.values():
                line.say(left=self._rank)
        self._thread.join(2.0)
        for line in (*self._lines.values(), *self._strangers):
            line.to.close()
        if self._server is not None:
            self._server.close()
        self._selector.close()

    def complete(self) -> bool:
        """Tell whether all are there; on another rank than 0, whether its line is."""
        if self._rank == 0:
            return len(self._lines) == self._world - 1
        if not self._lines and self._store.check(["fastdqn/presence"]):
            self._connect()
        return bool(self._lines)

    def missing(self) -> list[int]:
        """Return the ranks that have not come yet, as rank 0 knows them."""
        return [rank for rank in range(1, self._world) if rank not in self._lines]

    def begun(self) -> None:
        """Note that all learn now."""
        self._silent = max(SILENT_SECONDS, self._patience)

    def exchange(self) -> None:
        """Note that this rank begins an exchange with all."""
        self._begun += 1

    def behind(self) -> str:
        """Return who has begun fewer exchanges than this rank, as far as it knows: a name, and None is somebody."""
        late = [line.called for line in self._lines.values() if line.begun < self._begun]
        return " and ".join(late) or "Another rank"

    def notice(self) -> str | None:
        """Return `lost`; from then on it is this thread that ends the process."""
        self._noticed = self._noticed or self.lost is not None
        return self.lost

    def fail(self, sentence: str) -> None:
        """Say that this rank fails, before it leaves."""
        with self._lock:
            if self.lost is None:
                self._noticed = True
                self.lost = sentence
                for line in tuple(self._lines.values()):
                    line.say(failed=sentence)

    def _listen(self) -> None:
        """Be reachable where all find this rank, and nowhere else if that is an address of this machine."""
        family, place = _resolved(self._address)
        try:
            self._server = socket.create_server((place, 0), family=family)
        except OSError:  # an address that leads here by way of another machine
            self._server = socket.create_server(("", 0), family=family)
        self._server.setblocking(False)
        self._selector.register(self._server, selectors.EVENT_READ, self._accept)
        self._token = secrets.token_hex(16)
        self._store.set("fastdqn/presence", f"{self._server.getsockname()[1]} {self._token}")

    def _connect(self) -> None:
        port, token = self._store.get("fastdqn/presence").decode().split()
        try:
            to = socket.create_connection((self._address, int(port)), timeout=SILENT_SECONDS)
        except OSError as error:
            raise RunError(f"Rank 0 cannot be reached at {self._address}: {error}.") from error
        to.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        to.settimeout(1.0)
        line = _Line(to, 0, self._address)
        line.say(rank=self._rank, place=f"process {os.getpid()} on {socket.gethostname()}", token=token)
        self._selector.register(to, selectors.EVENT_READ, lambda: self._read(line))
        with self._lock:
            self._lines[0] = line

    def _accept(self) -> None:
        assert self._server is not None
        with contextlib.suppress(OSError):
            to, _ = self._server.accept()
            to.settimeout(1.0)
            line = _Line(to)
            self._strangers.append(line)
            self._selector.register(to, selectors.EVENT_READ, lambda: self._read(line))

    def _read(self, line: _Line) -> None:
        try:
            data = line.to.recv(65_536)
        except TimeoutError:
            return
        except OSError:
            data = b""
        line.heard = time.monotonic()
        *messages, line.unread = (line.unread + data).split(b"\n")
        for message in messages:
            with contextlib.suppress(Exception):  # a stranger's line may be anything
                self._hear(line, json.loads(message))
        if not data or len(line.unread) > LONGEST:
            self._ended(line)

    def _hear(self, line: _Line, said: Mapping[str, Any]) -> None:
        if line.rank < 0:
            rank = int(said["rank"])
            if secrets.compare_digest(str(said["token"]), self._token) and 0 < rank < self._world:
                line.rank, line.place = rank, str(said["place"])
                self._strangers.remove(line)
                with self._lock:
                    self._lines[rank] = line
                    if self.lost is not None:  # it comes too late
                        line.say(failed=self.lost)
            return
        line.begun = int(said.get("begun", line.begun))
        if "left" in said:
            self._left.add(line.rank)
        if "failed" in said:
            self._lose(str(said["failed"]))

    def _ended(self, line: _Line) -> None:
        self._selector.unregister(line.to)
        if line in self._strangers:
            self._strangers.remove(line)
            line.to.close()
        elif line.rank not in self._left and not self._closed:
            self._lose(f"{line.called} is gone: it was killed, or its machine was.")

    def _lose(self, sentence: str) -> None:
        """Know that the run cannot go on, and tell the others."""
        with self._lock:
            if self.lost is None:
                self.lost = sentence
                for line in self._lines.values():
                    line.say(failed=sentence)

    def _watch(self) -> None:
        """What the thread does."""
        next_beat, lost_at, saved_at, looked = 0.0, 0.0, 0.0, time.monotonic()
        while not self._closed:
            with contextlib.suppress(OSError, ValueError):  # closed in between
                ready: list[Callable[[], None]] = [key.data for key, _ in self._selector.select(0.1)]
                for do in ready:
                    do()
            now = time.monotonic()
            if now - looked > self._silent / 2.0:  # this process was stopped itself, say with the others by Ctrl-Z
                for line in tuple(self._lines.values()):
                    line.heard = now
            looked = now
            if now >= next_beat:
                next_beat = now + BEAT_SECONDS
                with self._lock:
                    for line in self._lines.values():
                        line.say(begun=self._begun)
            for line in tuple(self._lines.values()):
                if line.rank not in self._left and now - line.heard > self._silent:
                    self._lose(
                        f"{line.called} has been silent for {self._silent:g} seconds: it was stopped, or cut off."
                    )
            if self.lost is None:
                continue
            lost_at = lost_at or now
            if (self._noticed or self.saving()) and now - lost_at < SAVE_SECONDS:
                saved_at = now  # a main thread that has noticed leaves by itself, unless it hangs then
            if now - max(lost_at, saved_at) > GRACE_SECONDS and not self._closed:
                process.kill_children()
                if not self._quiet:
                    process.tell(f"error: {self.lost}\n".encode())
                process.show_cursor()
                os._exit(1)


def _resolved(address: str) -> tuple[socket.AddressFamily, str]:
    try:
        family, _, _, _, found = socket.getaddrinfo(address, None, type=socket.SOCK_STREAM)[0]
    except OSError:
        return socket.AF_INET, ""
    return family, str(found[0])
