"""Where the time of a loop goes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Mapping

import torch

from fastdqn.runs.machine import wait_for


def percentages(shares: Mapping[str, float]) -> str:
    """Return the shares of a whole as one line: "update 90.0%, acting 10.0%"."""
    return ", ".join(f"{part} {100 * share:.1f}%" for part, share in shares.items())


class Stopwatch:
    """Measures which part of a loop takes how much time; until `enable` is called it costs next to nothing.

    On a GPU it waits after each part for the device, which otherwise works on while the host goes ahead.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._enabled = False
        self._running = False
        self._began = 0.0
        self._seconds: dict[str, float] = {}
        self._within: dict[str, Callable[[], float]] = {}
        self._before: dict[str, float] = {}
        self._nothing = contextlib.nullcontext()

    def enable(self, enabled: bool = True) -> None:
        """Measure from the first update on."""
        self._enabled = enabled

    def within(self, what: str, seconds: Callable[[], float]) -> None:
        """Say, too, how much of the parts' time `what` takes, of which `seconds` returns the seconds up to now."""
        self._within[what], self._before[what] = seconds, seconds()

    def begin(self) -> None:
        """Begin now; what was before (filling the replay) does not count."""
        self._running = self._enabled
        self._began = time.perf_counter()
        self._seconds.clear()
        self._before = {what: seconds() for what, seconds in self._within.items()}

    def __call__(self, part: str) -> contextlib.AbstractContextManager[None]:
        """Return a context whose time counts as `part`."""
        return self._timed(part) if self._running else self._nothing

    def shares(self) -> dict[str, float]:
        """Return each part's share of the time since `begin`, the largest first, what is left as "the rest", and then
        the shares of what happens within these.
        """
        if not self._running:
            return {}
        total = time.perf_counter() - self._began
        shares = {part: seconds / total for part, seconds in sorted(self._seconds.items(), key=lambda kv: -kv[1])}
        within = {f"{what} (within these)": (of() - self._before[what]) / total for what, of in self._within.items()}
        return {**shares, "the rest": 1.0 - sum(shares.values()), **within}

    @contextlib.contextmanager
    def _timed(self, part: str) -> Generator[None]:
        begin = time.perf_counter()
        yield
        wait_for(self._device)
        self._seconds[part] = self._seconds.get(part, 0.0) + time.perf_counter() - begin
