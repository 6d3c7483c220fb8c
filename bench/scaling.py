"""What an all-reduce costs between processes of this machine, and what speed-up follows from that for many ranks.

    python bench/scaling.py                                # the times of an all-reduce, and a line through Gloo's
    python bench/scaling.py --update-ms 12 --mbytes 0.04   # and the speed-up of updates that take so long alone
    python bench/scaling.py --fps bench/results/WHEN-fps-cpu.jsonl --mbytes 6.8   # as long as it has measured
    python bench/scaling.py --update-ms 12 --mbytes 0.000004,0.54,0.27   # with SAC's three all-reduces for each update

Ranks compute for some milliseconds before each all-reduce, as they do before an update's, and the mean counts: what
waits for a core then waits long now and then. Gloo is what ranks on several machines use; those of one have memory that
they share.

A ring all-reduce of B bytes over n ranks sends 2 (n - 1) messages one after the other, and 2 (n - 1) / n of the bytes
(Patarasuk & Yuan 2009): t(n, B) = 2 (n - 1) (latency + B / (n bandwidth)). Latency and bandwidth are fitted by least
squares to what is measured here by Gloo, with no more ranks than cores. With c seconds of playing and computing for
each update, all that each rank does beside, n ranks do n times as much work in c + t seconds instead of c: speed-up(n)
= n c / (c + t), where t is the sum of t(n, B) over the all-reduces of an update. PPO makes one; SAC makes three, of
temperature, critics and actor.

That leaves out ranks that wait for the slowest, cores that are fewer than ranks, and the few numbers that ranks say to
each other between two updates: how many env steps there were, and whether to go on, once for each rollout of PPO and
each env step of SAC.
"""

import startup  # noqa: F401 - first: Ctrl-C during the imports below

import dataclasses
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed
import torch.multiprocessing
from rich.console import Console
from torch import Tensor

sys.path.append(str(Path(__file__).resolve().parents[1]))  # where bench is, if this file is run

from bench.lists import numbers, whole_numbers
from bench.programs import exit_code
from fastdqn import process
from fastdqn.cli.parser import parsed
from fastdqn.errors import UserError
from fastdqn.execution.ranks import Ranks
from fastdqn.execution.stop_line import loopback
from fastdqn.options.ranks import RanksOptions

MEGABYTES = (0.04, 0.56, 6.8)
"""Of the gradients of PPO on CartPole, of the critics of SAC, and of PPO on Atari."""
RANKS = (1, 2, 4, 8, 16, 32, 64)
COMPUTING = 0.004
"""Seconds of computing before each all-reduce."""
dist: Any = torch.distributed  # whose signatures are partly unknown
multiprocessing: Any = torch.multiprocessing


@dataclasses.dataclass(frozen=True)
class ScalingOptions:
    ranks: str = "2,4"
    """Numbers of processes, separated by commas."""
    repeats: int = 200
    """All-reduces that are timed, whose mean counts."""
    update_ms: float | None = None
    """Milliseconds of playing and computing for each update of one process alone."""
    fps: Path | None = None
    """Take them from JSON lines of bench/fps.py, whose first row is one process alone."""
    mbytes: str = "0.04"
    """Megabytes of the gradients of each all-reduce of an update, separated by commas."""


class Measured(NamedTuple):
    """What an all-reduce costs."""

    ranks: int
    size: float  # bytes
    by_gloo: float  # seconds
    in_memory: float | None = None  # seconds, where ranks of one machine share memory


class Link(NamedTuple):
    """What a message costs."""

    latency: float  # seconds
    bandwidth: float  # bytes a second


def all_reduce_seconds(link: Link, ranks: int, size: float) -> float:
    """Return how long an all-reduce of `size` bytes takes over so many ranks."""
    return 2 * (ranks - 1) * (link.latency + size / (ranks * link.bandwidth))


def speed_up(link: Link, ranks: int, sizes: Sequence[float], computing: float) -> float:
    """Return the speed-up over one rank, of updates that take `computing` seconds alone and then all-reduce so many
    bytes one after the other.
    """
    return ranks * computing / (computing + sum(all_reduce_seconds(link, ranks, size) for size in sizes))


def fitted(measured: Sequence[tuple[int, float, float]]) -> Link:
    """Return the link that (ranks, bytes, seconds) fit best, in relative terms; neither part is below 0."""
    rows = np.array([(2 * (n - 1) / t, 2 * (n - 1) * size / n / t) for n, size, t in measured])
    (latency, inverse), *_ = np.linalg.lstsq(rows, np.ones(len(rows)), rcond=None)
    latency, inverse = max(float(latency), 0.0), max(float(inverse), 1e-15)
    return Link(latency, 1.0 / inverse)


def measured(ranks: Sequence[int], repeats: int) -> list[Measured]:
    """Return what all-reduces cost, each rank with one thread."""
    found: list[Measured] = []
    for count in ranks:
        with multiprocessing.Manager() as manager:
            times = manager.dict()
            port = _free_port()
            multiprocessing.spawn(_rank, (count, port, repeats, times), nprocs=count)
            found += [Measured(count, size * 1e6, *times[size]) for size in MEGABYTES]
    return found


def _rank(rank: int, world: int, port: int, repeats: int, times: Any) -> None:
    torch.set_num_threads(1)
    places = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "MASTER_PORT": port}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", **{name: str(number) for name, number in places.items()}}
    os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback())

    def by_gloo(tensor: Tensor) -> None:
        dist.all_reduce(tensor.mul_(1.0 / world))

    with Ranks(RanksOptions(world)) as ranks:
        ways = (by_gloo, ranks.average) if ranks.on_one_machine else (by_gloo,)
        for size in MEGABYTES:
            found = [_seconds(ranks, way, int(size * 1e6 / 4), repeats) for way in ways]
            if rank == 0:
                times[size] = tuple(found)


def _seconds(ranks: Ranks, way: Callable[[Tensor], object], count: int, repeats: int) -> float:
    """Return the seconds that a sum of so many numbers takes on average, after some time of computing."""
    gradients, factors = ranks.buffer(count, torch.zeros(())), torch.ones(256, 256)
    taken: list[float] = []
    for _ in range(repeats + 5):
        end = time.perf_counter() + COMPUTING
        while time.perf_counter() < end:
            torch.mm(factors, factors)
        ranks.gather([0.0])  # all begin together
        begin = time.perf_counter()
        way(gradients)
        taken.append(time.perf_counter() - begin)
    return statistics.fmean(taken[5:])


def _free_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def computing_of(path: Path) -> tuple[str, float]:
    """Return what the first row in JSON lines of bench/fps.py is called, and its seconds for each update.

    Raises:
        UserError: there is no such row.
    """
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        row = next(line for line in lines if line["kind"] == "row")
        return str(row["row"]), 1.0 / float(row["updates_per_s"])
    except OSError as error:
        raise UserError(f"--fps {path} cannot be read: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError, StopIteration) as error:
        raise UserError(f"--fps {path} has no row of bench/fps.py.") from error


def table(link: Link, sizes: Sequence[float], computing: float) -> list[str]:
    """Return the lines of the speed-ups on paper."""
    each = " and ".join(f"{size / 1e6:g}" for size in sizes)
    lines = [
        f"on paper, updates of {1000 * computing:.2f} ms alone and gradients of {each} MB:",
        "| ranks | all-reduces, ms | speed-up | of the ideal |",
        "| --- | --- | --- | --- |",
    ]
    for ranks in RANKS:
        gain = speed_up(link, ranks, sizes, computing)
        taken = 1000 * sum(all_reduce_seconds(link, ranks, size) for size in sizes)
        lines.append(f"| {ranks} | {taken:.2f} | {gain:.2f} | {gain / ranks:.0%} |")
    return lines


def bench(options: ScalingOptions) -> int:
    ranks = whole_numbers(options.ranks, "--ranks")
    update_ms = 1.0 if options.update_ms is None else options.update_ms
    if min(ranks) < 2 or options.repeats < 1 or not 0.0 < update_ms < math.inf:
        raise UserError("--ranks must be at least 2, --repeats at least 1, and --update-ms a number above 0.")
    sizes = [1e6 * size for size in numbers(options.mbytes, "--mbytes")]
    alone = None if options.update_ms is None else ("", options.update_ms / 1000.0)
    if options.fps is not None:
        if alone is not None:
            raise UserError("--fps says what --update-ms says; give one of them.")
        alone = computing_of(options.fps)
    console = Console(highlight=False, soft_wrap=True)
    found = measured(ranks, options.repeats)
    console.print(f"all-reduce on {process.cores()} cores, one thread each:")
    console.print("| ranks | MB | by Gloo, ms | in shared memory, ms |\n| --- | --- | --- | --- |")
    for count, size, *seconds in found:
        by_gloo, in_memory = ("-" if one is None else f"{1000 * one:.2f}" for one in seconds)
        console.print(f"| {count} | {size / 1e6:g} | {by_gloo} | {in_memory} |")
    fits = [one for one in found if one.ranks <= process.cores()] or found
    link = fitted([(one.ranks, one.size, one.by_gloo) for one in fits])
    console.print(f"by Gloo: latency {1e6 * link.latency:.0f} us, bandwidth {link.bandwidth / 1e6:.0f} MB/s")
    if alone is not None:
        row, computing = alone
        console.print("\n".join([*([row] if row else []), *table(link, sizes, computing)]))
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(lambda: bench(parsed(ScalingOptions, sys.argv[1:], ScalingOptions(), __doc__ or ""))))
