"""Neighbours: other processes that use the cores of this one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from typing import Any

import psutil

SECONDS = 1.0
"""Between two looks, at least."""
DEAR = 100.0
"""Times as long as a look takes is the least time between two, so that looks cost little where there are many
processes."""
CROWDED, FREE = 0.4, 0.2
"""Cores that others must use so that it is crowded, and below which it no longer is."""
SPARE = 2.0
"""Cores beside those that this run had when it became crowded, with which it no longer is, whatever others use."""
LASTING = 10.0
"""Seconds after which a change is said."""


class Neighbours:
    """Measures how many of the cores that a process may use others keep busy, those of other virtual machines included.

    Args:
        parent: whose cores, with its children.
        say: prints a sentence.
    """

    def __init__(self, parent: psutil.Process, say: Callable[[str], None]) -> None:
        self.crowded = False
        """Whether there are fewer free cores than this process could use."""
        self.cores = 0.0
        """Cores that others used between the last two looks."""
        self._process = parent
        self._ranks: set[int] = set()
        self._say = say
        self._said = False
        self._there = 0  # cores that it may use
        self._since = self._seen = time.monotonic()
        self._before = self._used()
        self._wait = SECONDS
        self._own = 0.0  # cores that this run used when it became crowded

    def beside(self, pids: Iterable[int]) -> None:
        """Take these processes of this machine, with their children, for no others either: they are of the same run."""
        self._ranks = {self._process.pid, *pids}
        self._seen, self._before = time.monotonic(), self._used()

    def look(self) -> None:
        """Measure again if it is time; to be called often."""
        now = time.monotonic()
        if now - self._seen < self._wait:
            return
        used = self._used()
        self._wait = max(SECONDS, DEAR * (time.monotonic() - now))
        seconds = now - self._seen
        busy, idle, own = (max(0.0, (a - b) / seconds) for a, b in zip(used, self._before, strict=True))
        self._seen, self._before = now, used
        self.cores = max(0.0, busy - own)
        if self.crowded:
            crowded = self.cores > FREE and own + idle < self._own + SPARE
        else:
            crowded = self.cores > CROWDED and idle < min(self.cores, max(1.0, own))
        if crowded != self.crowded:
            self.crowded, self._since, self._own = crowded, now, own
        if self._said != crowded and now - self._since >= LASTING:
            self._said = crowded
            many = f"{self.cores:.1f} of the {self._there} cores"
            self._say(f"other processes use {many}: it is slower meanwhile" if crowded else "the cores are free again")

    def _used(self) -> tuple[float, float, float]:
        """Return the seconds that the cores have been busy and idle, and that this run has used of them."""
        busy = idle = 0.0
        times = psutil.cpu_times(percpu=True)
        numbers = set(range(len(times)))
        allowed = numbers & (os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else numbers)
        allowed = allowed or numbers  # a container may show its cores as the first ones, whatever their numbers are
        self._there = len(allowed)
        for number, core in enumerate(times):
            if number in allowed:
                rest = core.idle + getattr(core, "iowait", 0.0)
                guests = getattr(core, "guest", 0.0) + getattr(core, "guest_nice", 0.0)  # counted as user, too
                idle += rest
                busy += sum(core) - guests - rest
        own = 0.0
        ours = family(self._ranks) if self._ranks else [self._process, *self._process.children(recursive=True)]
        for one in ours:
            try:
                times = one.cpu_times()
            except psutil.Error:
                continue
            own += times.user + times.system
        return busy, idle, own


def family(pids: set[int]) -> list[psutil.Process]:
    """Return the processes with these ids, their children, and the children of those; who has ended is left out."""
    there: dict[int, Any] = {one.pid: one for one in psutil.process_iter(["ppid"])}
    found: set[int] = set()
    newest = pids & there.keys()
    while newest:
        found |= newest
        newest = {pid for pid, one in there.items() if one.info["ppid"] in newest} - found
    return [there[pid] for pid in found]
