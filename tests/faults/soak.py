"""Trains for an hour and looks whether memory, open files and threads stay as they are.

    python -m tests.faults.soak                          # an hour of 09 and one of 03; make soak
    python -m tests.faults.soak --minutes 8 09_cuda_graph

Checkpoints are written every minute, with the replay. Counted are the processes of a run, all together. The first third
is left out: until then the replay fills up.
"""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import psutil
import tyro

from tests.helpers.scripts import ROOT, summary

EVERY = 5.0  # seconds between two looks
WORDS = ("--replay-size", "10000", "--replay-initial", "1000", "--checkpoint-minutes", "1", "--stop-score", "None")
GROWTH = {"MiB": 0.03, "files": 0.0, "threads": 0.0}
"""By how much the last third may be above the second, as a share."""


class Look(NamedTuple):
    """What the processes of a run hold."""

    mib: float
    files: int
    threads: int


@dataclass(frozen=True)
class Soak:
    scripts: tyro.conf.Positional[tuple[str, ...]] = ("09_cuda_graph", "03_parallel")
    """Names of scripts, without their ending."""
    minutes: float = 60.0
    """Of each."""


def main() -> int:
    """Return the exit code: 0 if nothing grew."""
    options = tyro.cli(Soak, description=__doc__)
    print(
        "| script | minutes | checkpoints | | first | second third | last third | |\n|---|---|---|---|---|---|---|---|"
    )
    flat = [soaked(script, options.minutes) for script in options.scripts]
    return 0 if all(flat) else 1


def soaked(script: str, minutes: float) -> bool:
    """Train with a script for so long; print what it held, and return whether nothing grew."""
    with tempfile.TemporaryDirectory(prefix="soak-") as runs:
        path = ROOT / "experiments" / f"{script}.py"
        words = [sys.executable, str(path), *WORDS, "--max-minutes", str(minutes), "--max-env-steps", "None"]
        looks: list[Look] = []
        saved: set[str] = set()
        with subprocess.Popen([*words, "--runs-dir", runs], cwd=ROOT, stdout=subprocess.DEVNULL) as process:
            while process.poll() is None:
                with contextlib.suppress(psutil.Error):
                    looks.append(look(psutil.Process(process.pid)))
                saved |= {path.name for path in Path(runs).glob("*/checkpoints/*.checkpoint")}
                time.sleep(EVERY)
        (run,) = Path(runs).iterdir()
        ended = process.returncode == 0 and summary(run)["reason"] == "max-minutes"
    third = len(looks) // 3
    good = ended and third > 0
    for name, values in zip(GROWTH, zip(*looks, strict=True), strict=True):
        before, after = statistics.median(values[third : 2 * third]), statistics.median(values[2 * third :])
        flat = after <= before * (1.0 + GROWTH[name])
        good = good and flat
        said = f"{values[0]:.0f} | {before:.0f} | {after:.0f} | {'flat' if flat else 'grows'}"
        print(f"| {script} | {minutes:g} | {len(saved)} | {name} | {said} |", flush=True)
    return good


def look(process: psutil.Process) -> Look:
    """Return what a process and its children hold now."""
    family = [process, *process.children(recursive=True)]
    return Look(
        sum(one.memory_info().rss for one in family) / 2**20,
        sum(one.num_fds() for one in family),
        sum(one.num_threads() for one in family),
    )


if __name__ == "__main__":
    sys.exit(main())
