"""Exchanges between ranks: what all say at once, waited for in slices (torch.distributed).

All ranks make the same exchanges in the same order: who makes one more waits for ever. So what decides how many there
are, say how many env steps were made, is gathered first. Waiting is done in slices: a collective operation lets no
signal through until it is over, which it never is where another rank hangs.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import secrets
import socket
import struct
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed
from torch import Tensor

from fastdqn import process
from fastdqn.errors import Interrupted, RunError
from fastdqn.execution.presence import Presence
from fastdqn.execution.same_machine import LONGEST, READY, SHORT, SLICE, SameMachine, network_here
from fastdqn.types import EpisodeEnd

dist: Any = torch.distributed  # whose signatures are partly unknown
LOOPBACK = "127.0.0.1"
PATIENCE = 3.0
"""Seconds, at least, for which others are waited for after a signal, so that the run can be resumed exactly: as long as
the slowest rank's newest round took, if that was longer. Between two rounds it is so long for each exchange, and longer
where a checkpoint is gathered or written."""
CONNECT_SECONDS = 10.0
"""For lines between ranks of one machine, which can all be reached by then."""
CHUNK = 1 << 26
"""Bytes that are sent at once."""
_EPISODE = len(EpisodeEnd._fields)  # numbers


class Exchanges:
    """What one of several ranks says to all, and hears of them.

    Every exchange raises RunError where another rank is gone, has failed or hangs, and Interrupted where a signal asks
    to stop and others do not come.

    Args:
        rank: of this process.
        world: ranks.
        timeout: seconds for which a living rank is waited for.
    """

    def __init__(self, rank: int, world: int, timeout: float) -> None:
        self.rank, self.world = rank, world
        self._timeout = timeout
        self._presence: Presence | None = None
        self._devices: Any = None  # of GPUs, if each rank has one of its own
        self._here: SameMachine | None = None  # lines, where all ranks are on one machine
        self._broken_off = False  # whether an exchange was left in its middle
        self._stopping: float | None = None  # when it was noticed that a signal asks to stop
        self._round = 0.0  # seconds that the slowest rank took for its newest round
        self._met = time.monotonic()  # when that began: all had ended theirs
        self.waited = 0.0
        """Seconds for which this rank has waited for others so far. By Gloo this includes what is sent and summed
        meanwhile; sums by NCCL are not waited for, and left out.
        """

    @property
    def on_one_machine(self) -> bool:
        """Whether exchanges go by `SameMachine`."""
        return self._here is not None

    def average(self, tensor: Tensor) -> None:
        """Replace `tensor` by its mean over all ranks: each divides its own by their number, then all are summed."""
        if self._here is not None and not tensor.is_cuda:
            self._average_here(self._here, tensor)
            return
        tensor.mul_(1.0 / self.world)
        if self._devices is not None and tensor.is_cuda:
            dist.all_reduce(tensor, group=self._devices)  # does not wait for the device
        else:
            self._wait(dist.all_reduce(tensor, async_op=True))

    def buffer(self, size: int, like: Tensor) -> Tensor:
        """Return `size` numbers, of the kind of `like`, where they can be averaged over all ranks."""
        return torch.zeros(size, dtype=like.dtype, device=like.device if self._devices is not None else "cpu")

    def gather(self, values: Sequence[float], patience: float | None = None) -> list[list[float]]:
        """Return the values of all ranks, as many of each; `patience` as in `_wait`."""
        if self._here is not None and 0 < 8 * len(values) <= LONGEST:
            kind = struct.Struct(f"{len(values)}d")
            return [list(kind.unpack(said)) for said in self._exchange_here(self._here, kind.pack(*values), patience)]
        own = torch.tensor(values, dtype=torch.float64)
        places = [torch.zeros_like(own) for _ in range(self.world)]
        self._wait(dist.all_gather(places, own, async_op=True), patience)
        return [place.tolist() for place in places]

    def gathered(
        self, env_steps: int, episodes: tuple[EpisodeEnd, ...], at_once: int
    ) -> tuple[int, tuple[EpisodeEnd, ...]]:
        """Return the env steps of all ranks, and the games that have finished, in the order in which they did, at their
        places among those of all.

        A signal that has asked one rank to stop is known to all afterwards.
        """
        took = time.monotonic() - self._met
        self._round = max(self._round, took)
        said = self.gather([env_steps, process.stop_signal(), took, len(episodes)])
        self._met, self._round = time.monotonic(), max(seconds for _, _, seconds, _ in said)
        process.stop_with(int(max(signal for _, signal, *_ in said)))
        most = int(max(count for *_, count in said))
        ends: list[EpisodeEnd] = []
        if most:
            own = [float(number) for end in episodes for number in end]
            lines = self.gather(own + [0.0] * (_EPISODE * most - len(own)))
            for rank, (line, (*_, count)) in enumerate(zip(lines, said, strict=True)):
                for i in range(0, _EPISODE * int(count), _EPISODE):
                    score, frames, truncated, place, row = line[i : i + _EPISODE]
                    end = EpisodeEnd(score, int(frames), bool(truncated), int(place) + rank * at_once, int(row))
                    ends.append(end)
        ends.sort(key=lambda end: end.row)  # and in one step by rank
        return int(sum(steps for steps, *_ in said)), tuple(ends)

    def tell(self, order: int, writing: bool = False) -> int:
        """Return rank 0's `order`, which it tells all others.

        Args:
            order: of rank 0.
            writing: whether rank 0 may first write a checkpoint; then it is waited for as long as it lives.
        """
        patience = math.inf if writing else self._patience
        if self._here is not None:
            return self._tell_here(self._here, order, patience)
        said = torch.tensor([order])
        self._wait(dist.broadcast(said, 0, async_op=True), patience)
        return int(said)

    def pids_here(self) -> list[int]:
        """Return the process ids of the ranks on this machine, this one's among them."""
        here = this_machine()
        # While a run is resumed, rank 0 reads its checkpoint first, and plays its games again.
        return [int(pid) for pid, there in self.gather([os.getpid(), here], math.inf) if there == here]

    def collect(self, data: bytes) -> list[bytes]:
        """Return the `data` of all ranks on rank 0, which alone gets them; nothing elsewhere."""
        sizes = [int(size) for (size,) in self.gather([len(data)], math.inf)]  # all make theirs now, on the same cores
        pieces: list[list[bytes]] = [[] for _ in sizes] if self.rank == 0 else []
        at_once = max(1, CHUNK // self.world)
        for begin in range(0, max(sizes), at_once):
            count = min(at_once, max(sizes) - begin)
            own = torch.frombuffer(bytearray(data[begin : begin + count].ljust(count, b"\0")), dtype=torch.uint8)
            places = [torch.empty_like(own) for _ in pieces]
            self._wait(dist.gather(own, places or None, 0, async_op=True), self._timeout)
            for place, size, of_rank in zip(places, sizes, pieces, strict=False):
                of_rank.append(place[: max(0, size - begin)].numpy().tobytes())
        return [b"".join(of_rank) for of_rank in pieces]

    def send(self, data: bytes, source: int) -> bytes:
        """Return what rank `source` sends to all; the `data` of others are not looked at."""
        size = torch.tensor([len(data)])
        self._wait(dist.broadcast(size, source, async_op=True), self._timeout)
        pieces: list[bytes] = []
        for begin in range(0, int(size), CHUNK):
            count = min(CHUNK, int(size) - begin)
            if self.rank == source:
                piece = torch.frombuffer(bytearray(data[begin : begin + count]), dtype=torch.uint8)
            else:
                piece = torch.zeros(count, dtype=torch.uint8)
            self._wait(dist.broadcast(piece, source, async_op=True), self._timeout)
            pieces.append(b"" if self.rank == source else piece.numpy().tobytes())
        return data if self.rank == source else b"".join(pieces)

    def look(self) -> None:
        """Look after the others where nothing is exchanged for long.

        Raises:
            RunError: one of them is gone.
        """
        if self._presence is not None and self._presence.lost is not None:
            self.end(self._presence.notice() or "")

    def spare(self, saving: Callable[[], bool]) -> None:
        """Let this process, where another rank is gone, not be ended as long as `saving` says that it writes a
        checkpoint, and `SAVE_SECONDS` are not over.
        """
        if self._presence is not None:
            self._presence.saving = saving

    def meet_here(self, seconds: float) -> None:
        """Exchange by `SameMachine` from now on, if all ranks are on one."""
        token = self.send(secrets.token_bytes(16), 0)
        with contextlib.ExitStack() as stack:
            here = None
            if network_here():
                with contextlib.suppress(OSError):
                    here = SameMachine(self.rank, self.world, token)
                    stack.callback(here.close)
            places = self.gather([this_machine(), network_here(), _user(), here is not None], seconds)
            there = here is not None and all(one == places[0] for one in places)
            if here is not None and there:
                try:
                    here.connect(min(CONNECT_SECONDS, seconds / 2))
                except OSError:
                    there = False
            if all(one for (one,) in self.gather([there], seconds)):
                self._here = here
                stack.pop_all()

    def _exchange_here(self, here: SameMachine, data: bytes, patience: float | None = None) -> list[bytes]:
        """Return the `data` of all ranks, as many bytes of each."""
        here.say(data)
        heard = here.hear(len(data))
        self._wait(heard, patience)
        return [data if rank == self.rank else heard.messages[rank] for rank in range(self.world)]

    def _average_here(self, here: SameMachine, tensor: Tensor) -> None:
        """Replace `tensor` by its mean over all ranks."""
        flat, share = tensor.detach().view(-1), 1.0 / self.world
        if flat.nbytes <= SHORT:
            said = b"".join(self._exchange_here(here, flat.mul(share).numpy().tobytes()))
            parts = torch.frombuffer(bytearray(said), dtype=flat.dtype).view(self.world, -1)
        else:
            if not here.has_room(flat):
                self._wait(here.make_room(flat) if self.rank == 0 else here.take_room())
            parts = here.place(flat)
            torch.mul(flat, share, out=parts[self.rank])
            self._exchange_here(here, READY)
        torch.add(parts[0], parts[1], out=flat)
        for part in parts[2:]:
            flat.add_(part)  # in one order, so that all ranks have the same bits

    def _tell_here(self, here: SameMachine, order: int, patience: float) -> int:
        """Return rank 0's `order`."""
        kind = struct.Struct("q")
        if self.rank == 0:
            here.say(kind.pack(order))
        heard = here.hear(kind.size, [] if self.rank == 0 else [0])
        self._wait(heard, patience)
        return order if self.rank == 0 else int(kind.unpack(heard.messages[0])[0])

    @property
    def _patience(self) -> float:
        """Seconds for which others are waited for after a signal."""
        return min(max(PATIENCE, self._round), self._timeout)

    def _wait(self, work: Any, patience: float | None = None) -> None:
        """Wait for an exchange.

        Args:
            work: the exchange.
            patience: seconds for which others are waited for in it although a signal asks this process to stop; by
                default `_patience` in all exchanges since the signal was noticed.

        Raises:
            RunError: another rank is gone, has failed or has hung.
            Interrupted: a signal asks this process to stop, and others do not come.
        """
        assert self._presence is not None
        self._presence.exchange()
        self.look()  # an exchange in which this rank only sends may succeed without the others
        began = time.monotonic()
        while True:
            over = work.is_completed()
            try:
                work.wait(SLICE)
                self.waited += time.monotonic() - began
                return
            except RuntimeError as error:
                if over:  # it has failed; else the slice is over
                    self._broken(error)
            self.look()
            now = time.monotonic()
            if process.stop_signal():
                self._stopping = self._stopping or now
                if now - self._stopping > self._patience and now - began > (patience or 0.0):
                    self._broken_off = True
                    raise Interrupted
            elif now - began > max(self._timeout, patience or 0.0):
                late = self._presence.behind()
                self.end(f"{late} did not come for {self._timeout:g} seconds (--rank-timeout) and counts as hung.")

    def _broken(self, error: RuntimeError) -> None:
        """Raise, for an exchange that has failed, what its cause is; that is known a moment later."""
        end = time.monotonic() + 2.0
        while time.monotonic() < end:
            self.look()
            time.sleep(0.02)
        self.end(f"The connection to another rank broke: {first_line(error)}.")

    def end(self, sentence: str) -> None:
        """End this rank because of others.

        Raises:
            RunError: always.
        """
        self._broken_off = True
        process.fail()
        raise RunError(sentence)


def loopback_store() -> Any:
    """Return a `TCPStore` that is served on the loopback interface alone, at a port that is free: by itself PyTorch
    listens on all interfaces, whatever address it is given.

    Before 2.8 only PyTorch's other server, without libuv, takes a socket that listens already.
    """
    server = socket.create_server((LOOPBACK, 0))
    port = int(server.getsockname()[1])
    newer = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 8)
    served = {"is_master": True, "wait_for_workers": False, "master_listen_fd": server.detach()}
    return dist.TCPStore(LOOPBACK, port, **served, use_libuv=newer)


def _user() -> int:
    return os.getuid() if hasattr(os, "getuid") else 0


def this_machine() -> int:
    """Return a number of this machine, the same in all processes that know each other by the same process ids."""
    said = [socket.gethostname()]
    with contextlib.suppress(OSError):  # Linux
        said.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8"))
        said.append(str(Path("/proc/self/ns/pid").stat().st_ino))
    return int.from_bytes(hashlib.sha256("\n".join(said).encode()).digest()[:6], "big")  # exact as a float64


def first_line(error: BaseException) -> str:
    """Return the first line of what an error says, without a full stop."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
