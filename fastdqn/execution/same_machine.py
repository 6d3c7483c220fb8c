"""Exchanges between ranks of one machine: a line from each to each, and memory that all share.

Gloo carries all that is said over TCP, by threads of its own, which need a core while every core computes. Here the
thread that waits is woken by the one that it waits for, and sums are read where they were written.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import socket
import struct
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fastdqn.errors import RunError

SLICE = timedelta(seconds=0.2)
"""Of waiting, after which signals and other ranks are looked at."""
LONGEST = 1 << 14
"""Bytes of a message at most: the kernel holds two of them whoever reads."""
SHORT = 1 << 12
"""Bytes of a sum, up to which each rank says its part in a message."""
READY = b"."
"""What is said where the message itself says nothing."""
_MEMORY = b"memory"
_WHO = struct.Struct("i")
_CREDENTIALS = struct.Struct("3i")  # process, user, group


def network_here() -> int:
    """Return a number of the network that this process is in, the same in all processes that can have lines; 0 where
    there can be none: they need Linux.
    """
    if not hasattr(os, "memfd_create"):
        return 0
    with contextlib.suppress(OSError):
        return Path("/proc/self/ns/net").stat().st_ino
    return 0


class SameMachine:
    """This rank's lines to all others, which are on the same machine; open after `connect`, until `close`.

    Nothing of it has a name in a file system, so that nothing is left behind, whoever is killed. Other users are
    refused.

    Args:
        rank: of this process.
        world: ranks.
        token: 16 bytes or so, the same for all of them and for nobody else.

    Raises:
        OSError: this rank cannot be reached, or cannot have memory to share.
    """

    def __init__(self, rank: int, world: int, token: bytes) -> None:
        self.rank, self.world = rank, world
        self._token = token.hex()
        os.close(os.memfd_create("fastdqn"))  # not everywhere is it allowed
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lines: dict[int, socket.socket] = {}
        self._memory: Tensor | None = None  # (2, W, bytes) uint8; sums take turns
        self._turn = 0
        try:
            self._server.bind(self._address(rank))
            self._server.listen(world)
        except OSError:
            self._server.close()
            raise

    def connect(self, seconds: float) -> None:
        """Make the lines, once all ranks can be reached.

        Raises:
            OSError: a rank was not there in time.
        """
        end = time.monotonic() + seconds
        with self._server:
            for other in range(self.rank):
                line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                self._lines[other] = line
                line.settimeout(seconds)
                line.connect(self._address(other))
                line.sendall(_WHO.pack(self.rank))
            while len(self._lines) < self.world - 1:
                self._server.settimeout(max(0.01, end - time.monotonic()))
                line, _ = self._server.accept()
                line.settimeout(seconds)
                said = line.recv(_WHO.size) if _user_of(line) == os.getuid() else b""
                if len(said) == _WHO.size:
                    self._lines[_WHO.unpack(said)[0]] = line
                else:
                    line.close()
        self._lines = dict(sorted(self._lines.items()))  # whoever came first: the order of a run is always the same
        for line in self._lines.values():
            line.settimeout(SLICE.total_seconds())

    def close(self) -> None:
        """Hang up."""
        for line in (self._server, *self._lines.values()):
            line.close()

    def say(self, data: bytes) -> None:
        """Say `data`, at most `LONGEST` bytes, to all others; who is gone is noticed by whoever waits for it.

        Raises:
            RunError: it does not reach one that is there.
        """
        for rank, line in self._lines.items():
            try:
                line.sendall(data)
            except (BrokenPipeError, ConnectionResetError):
                continue
            except OSError as error:
                raise RunError(f"Rank {rank} cannot be told anything: {error}.") from error

    def hear(self, size: int, ranks: Sequence[int] | None = None) -> Heard:
        """Return messages of `size` bytes, 1 at least, that come from each of `ranks`, by default from all others."""
        wanted = self._lines if ranks is None else {rank: self._lines[rank] for rank in ranks}
        return Heard(wanted, size)

    def place(self, tensor: Tensor) -> Tensor:
        """Return a place for a sum, (W, N) as `tensor` (N,) has them, in memory that all have: a row for each rank."""
        assert self._memory is not None
        half = self._memory[self._turn]
        self._turn = 1 - self._turn  # all have read what lay here once they have said that the sum after it is there
        return half[:, : tensor.nbytes].view(tensor.dtype)

    def has_room(self, tensor: Tensor) -> bool:
        """Tell whether there is room for a sum of `tensor`."""
        return self._memory is not None and self._memory.shape[2] >= tensor.nbytes

    def make_room(self, tensor: Tensor) -> Heard:
        """Give all others room for a sum of `tensor`; return what waits for nobody.

        Raises:
            RunError: there is not so much memory.
        """
        size = -(-tensor.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        try:
            memory = os.memfd_create("fastdqn")
            try:
                os.posix_fallocate(memory, 0, 2 * self.world * size)  # all of it now
                self._map(memory)
                for line in self._lines.values():
                    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                        socket.send_fds(line, [_MEMORY], [memory])
            finally:
                os.close(memory)
        except OSError as error:
            raise self._no_memory(error) from error
        return self.hear(1, [])

    def take_room(self) -> Heard:
        """Return what waits until rank 0 has given room."""
        return _Room(self._lines[0], self._take)

    def _take(self, memory: list[int]) -> None:
        """Map the memory of a descriptor that has come."""
        try:
            if not memory:
                raise OSError("none has come")
            self._map(memory[0])
        except OSError as error:
            raise self._no_memory(error) from error
        finally:
            for one in memory:
                os.close(one)

    def _no_memory(self, error: OSError) -> RunError:
        return RunError(f"There is no memory for the sums of {self.world} ranks: {error}.")

    def _map(self, memory: int) -> None:
        shared: Any = mmap.mmap(memory, os.fstat(memory).st_size)
        self._memory = torch.frombuffer(shared, dtype=torch.uint8).view(2, self.world, -1)

    def _address(self, rank: int) -> str:
        return f"\0fastdqn-{self._token}-{rank}"  # in no file system


class Heard:
    """What comes from other ranks, in the manner of PyTorch's `Work`.

    Args:
        lines: from each of them.
        size: bytes of each message.
    """

    def __init__(self, lines: dict[int, socket.socket], size: int) -> None:
        self.messages: dict[int, bytes] = {}
        self._missing = dict(lines)
        self._size = size
        self._broken: str | None = None  # why nothing more will come

    def is_completed(self) -> bool:
        """Tell whether waiting any longer would bring nothing."""
        return self._broken is not None or not self._missing

    def wait(self, slice_: timedelta) -> None:
        """Wait for all messages, for a slice at most, and for the newest line that was looked at another one.

        Raises:
            RuntimeError: they have not all come yet, or will not.
        """
        end = time.monotonic() + slice_.total_seconds()
        for rank in tuple(self._missing):
            if self._broken is not None:
                raise RuntimeError(self._broken)
            try:
                message = self._next(self._missing[rank])
            except TimeoutError:
                raise RuntimeError("the slice is over") from None
            except OSError as error:
                self._broken = str(error)
                raise RuntimeError(self._broken) from error
            if len(message) != self._size:
                self._broken = f"rank {rank} says something else" if message else f"rank {rank} has hung up"
                raise RuntimeError(self._broken)
            self.messages[rank] = message
            del self._missing[rank]
            if self._missing and time.monotonic() > end:
                raise RuntimeError("the slice is over")

    def _next(self, line: socket.socket) -> bytes:
        return line.recv(self._size + 1)


class _Room(Heard):
    """Memory that comes from rank 0."""

    def __init__(self, line: socket.socket, take: Callable[[list[int]], None]) -> None:
        super().__init__({0: line}, len(_MEMORY))
        self._take = take

    def _next(self, line: socket.socket) -> bytes:
        message, memory, *_ = socket.recv_fds(line, self._size + 1, 1)
        if message:
            self._take(memory)
        return message


def _user_of(line: socket.socket) -> int:
    _, user, _ = _CREDENTIALS.unpack(line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return user
