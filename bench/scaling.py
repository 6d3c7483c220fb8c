"""What an all-reduce costs between processes of this machine, and what speed-up follows from that for many ranks.

    python bench/scaling.py                                # the times of an all-reduce, and a line through them
    python bench/scaling.py --update-ms 12 --mbytes 0.04   # and the speed-up of updates that take so long alone

A ring all-reduce of B bytes over n ranks sends 2 (n - 1) messages one after the other, and 2 (n - 1) / n of the bytes
(Patarasuk & Yuan 2009): t(n, B) = 2 (n - 1) (latency + B / (n bandwidth)). Latency and bandwidth are fitted to what is
measured here, by least squares. With c seconds of playing and computing for each update, all that each rank does
beside, n ranks do n times as much work in c + t(n, B) seconds instead of c: speed-up(n) = n c / (c + t(n, B)). That
leaves out ranks that wait for the slowest, and cores that are fewer than ranks.
"""

import startup  # noqa: F401 - first: Ctrl-C during the imports below

import dataclasses
import os
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed
import torch.multiprocessing
from rich.console import Console

sys.path.append(str(Path(__file__).resolve().parents[1]))  # where bench is, if this file is run

from bench.fps import exit_code
from fastdqn import process
from fastdqn.cli.parser import parsed
from fastdqn.errors import UserError

MEGABYTES = (0.04, 0.56, 6.8)
"""Of the gradients of PPO on CartPole, of the critics of SAC, and of PPO on Atari."""
RANKS = (1, 2, 4, 8, 16, 32, 64)
dist: Any = torch.distributed  # whose signatures are partly unknown
multiprocessing: Any = torch.multiprocessing


@dataclasses.dataclass(frozen=True)
class ScalingOptions:
    ranks: str = "2,4"
    """Numbers of processes, separated by commas."""
    repeats: int = 50
    """All-reduces that are timed, of which the median counts."""
    update_ms: float | None = None
    """Milliseconds of playing and computing for each update of one process alone."""
    mbytes: float = 0.04
    """Megabytes of its gradients."""


class Link(NamedTuple):
    """What a message costs."""

    latency: float  # seconds
    bandwidth: float  # bytes a second


def all_reduce_seconds(link: Link, ranks: int, size: float) -> float:
    """Return how long an all-reduce of `size` bytes takes over so many ranks."""
    return 2 * (ranks - 1) * (link.latency + size / (ranks * link.bandwidth))


def speed_up(link: Link, ranks: int, size: float, computing: float) -> float:
    """Return the speed-up over one rank, of updates that take `computing` seconds alone."""
    return ranks * computing / (computing + all_reduce_seconds(link, ranks, size))


def fitted(measured: Sequence[tuple[int, float, float]]) -> Link:
    """Return the link that (ranks, bytes, seconds) fit best, in relative terms; neither part is below 0."""
    rows = np.array([(2 * (n - 1) / t, 2 * (n - 1) * size / n / t) for n, size, t in measured])
    (latency, inverse), *_ = np.linalg.lstsq(rows, np.ones(len(rows)), rcond=None)
    latency, inverse = max(float(latency), 0.0), max(float(inverse), 1e-15)
    return Link(latency, 1.0 / inverse)


def measured(ranks: Sequence[int], repeats: int) -> list[tuple[int, float, float]]:
    """Return (ranks, bytes, seconds) of an all-reduce, each with one thread, on the loopback interface."""
    found: list[tuple[int, float, float]] = []
    for count in ranks:
        with multiprocessing.Manager() as manager:
            times = manager.dict()
            port = _free_port()
            multiprocessing.spawn(_rank, (count, port, repeats, times), nprocs=count)
            found += [(count, size * 1e6, times[size]) for size in MEGABYTES]
    return found


def _rank(rank: int, world: int, port: int, repeats: int, times: Any) -> None:
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo" if sys.platform == "linux" else "lo0")
    dist.init_process_group("gloo", rank=rank, world_size=world)
    for size in MEGABYTES:
        gradients = torch.ones(int(size * 1e6 / 4))
        taken: list[float] = []
        for _ in range(repeats + 5):
            dist.barrier()
            begin = time.perf_counter()
            dist.all_reduce(gradients)
            taken.append(time.perf_counter() - begin)
            gradients.fill_(1.0)
        if rank == 0:
            times[size] = statistics.median(taken[5:])
    dist.destroy_process_group()


def _free_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def numbers(said: str, option: str) -> list[int]:
    """Return the whole numbers that an option lists.

    Raises:
        UserError: it lists something else.
    """
    words = [word.strip() for word in said.split(",")]
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise UserError(f"{option} must be whole numbers above 0, separated by commas, not {said}.")
    return [int(word) for word in words]


def table(link: Link, size: float, computing: float) -> list[str]:
    """Return the lines of the speed-ups on paper."""
    lines = [
        f"on paper, updates of {1000 * computing:.2f} ms alone and gradients of {size / 1e6:g} MB:",
        "| ranks | all-reduce, ms | speed-up | of the ideal |",
        "| --- | --- | --- | --- |",
    ]
    for ranks in RANKS:
        gain = speed_up(link, ranks, size, computing)
        taken = 1000 * all_reduce_seconds(link, ranks, size)
        lines.append(f"| {ranks} | {taken:.2f} | {gain:.2f} | {gain / ranks:.0%} |")
    return lines


def bench(options: ScalingOptions) -> int:
    ranks = numbers(options.ranks, "--ranks")
    if min(ranks) < 2 or options.repeats < 1 or (options.update_ms or 1.0) <= 0 or options.mbytes <= 0:
        raise UserError("--ranks must be at least 2, --repeats at least 1, --update-ms and --mbytes more than 0.")
    console = Console(highlight=False, soft_wrap=True)
    found = measured(ranks, options.repeats)
    console.print(f"all-reduce by gloo on {process.cores()} cores, one thread each:")
    console.print("| ranks | MB | ms |\n| --- | --- | --- |")
    for count, size, seconds in found:
        console.print(f"| {count} | {size / 1e6:g} | {1000 * seconds:.2f} |")
    link = fitted(found)
    console.print(f"latency {1e6 * link.latency:.0f} us, bandwidth {link.bandwidth / 1e6:.0f} MB/s")
    if options.update_ms is not None:
        console.print("\n".join(table(link, options.mbytes * 1e6, options.update_ms / 1000.0)))
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(lambda: bench(parsed(ScalingOptions, sys.argv[1:], ScalingOptions(), __doc__ or ""))))
