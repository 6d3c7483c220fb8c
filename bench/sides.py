"""Another library's program while it learns: its process, and what it says of its speed."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import psutil

from bench.fps_figures import steady_state
from bench.programs import ROOT
from fastdqn import process
from fastdqn.errors import RunError


class Side:
    """A program that says JSON lines, its kind, games and counts, on standard output, on one core or on all.

    Args:
        name: as messages call it.
        command: that starts it.
        folder: for what it says.
        core: that it is bound to; None for all.
    """

    def __init__(self, name: str, command: list[str], folder: Path, core: int | None = None) -> None:
        self.name = name
        self.out = (folder / f"{name}.out").open("w+", encoding="utf-8")
        self.err = (folder / f"{name}.err").open("w+", encoding="utf-8")
        self.process = subprocess.Popen(command, stdout=self.out, stderr=self.err, cwd=ROOT)
        if core is not None:
            psutil.Process(self.process.pid).cpu_affinity([core])

    def check(self) -> None:
        """Raise RunError if it has failed."""
        if self.process.poll() not in (None, 0):
            self.err.seek(0)
            raise RunError(f"{self.name} failed with exit code {self.process.returncode}:\n{self.err.read().strip()}")

    def lines(self) -> list[dict[str, Any]]:
        """Return the JSON lines of its standard output so far."""
        text = Path(self.out.name).read_text(encoding="utf-8")
        return [
            json.loads(line) for line in text.splitlines(keepends=True) if line.startswith("{") and line[-1] == "\n"
        ]

    def speeds_for(self, seconds: float, patience: float | None = None) -> list[dict[str, Any]]:
        """Return the speeds that it says until `seconds` after its first update.

        Raises:
            RunError: it failed, it ended, or there was no update within `patience` seconds; or this is to stop.
        """
        deadline = None if patience is None else time.monotonic() + patience
        while True:
            if process.stop_signal():  # first: it has stopped whatever is timed, too
                raise RunError("Stopped before the turn was over.")
            self.check()
            over = self.process.poll() is not None
            speeds = [{"samples": 0, **line} for line in self.lines() if line["kind"] == "speed"]
            trained = [line for line in speeds if line["updates"] > 0]
            if trained and trained[-1]["elapsed"] - trained[0]["elapsed"] >= seconds:
                return speeds
            if over:
                raise RunError(f"{self.name} has ended before the turn was over.")
            if not trained and deadline is not None and time.monotonic() > deadline:
                raise RunError(f"{self.name} has made no update within {patience:g} s.")
            time.sleep(0.2)

    def end(self) -> None:
        """Kill it if it still runs."""
        self.process.kill()
        self.process.wait()
        self.out.close()
        self.err.close()


def steady(speeds: list[dict[str, Any]], warmup: float, name: str, key: str = "updates_per_s") -> float:
    """Return a speed from `warmup` seconds after the first update on."""
    return steady_state(speeds, warmup, name)[key]


@contextlib.contextmanager
def ended(sides: list[Side]) -> Generator[None]:
    """End all sides on the way out."""
    try:
        yield
    finally:
        for side in sides:
            side.end()
