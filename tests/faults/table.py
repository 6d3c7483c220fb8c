"""What each kind of fault came to: tried, good, and what went wrong in the others."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors.numpy

from tests.helpers.scripts import ROOT, records

SCRIPT = "09_cuda_graph"
SETTINGS = (
    *("--game", "breakout", "--replay-initial", "60", "--batch-size", "4", "--target-sync", "40", "--n-step", "3"),
    *("--replay-size", "150", "--epsilon-decay", "200", "--num-envs", "3", "--env-threads", "1", "--steps", "4"),
    *("--threads", "1", "--checkpoint-minutes", "None", "--log-seconds", "1000"),
)
"""A short run on a real game, which resumes exactly."""
AT_ONCE = 2
"""Trials at a time."""


@dataclass
class Tally:
    """The trials of one kind of fault."""

    tried: int = 0
    wrong: list[str] = field(default_factory=list[str])

    @property
    def good(self) -> int:
        return self.tried - len(self.wrong)

    def take(self, said: Iterable[str | None]) -> Tally:
        """Count trials, each with what went wrong in it, or None."""
        for why in said:
            self.tried += 1
            if why is not None:
                self.wrong.append(why)
        return self


@dataclass(frozen=True)
class Row:
    """A kind of fault: `run` makes so many trials of it in a folder of its own, with 0 all that there are. A short look
    leaves out what has 0 for it.
    """

    name: str
    what_holds: str
    full: int
    short: int
    run: Callable[[Path, int], Tally]
    scripts: tuple[str, ...] = (SCRIPT,)


def try_all(trials: Sequence[Callable[[], str | None]], at_once: int = AT_ONCE) -> Tally:
    """Make trials, some at a time; one that raises an assertion went wrong."""

    def tried(trial: Callable[[], str | None]) -> str | None:
        try:
            return trial()
        except (AssertionError, subprocess.TimeoutExpired) as error:
            return f"{type(error).__name__}: {error}"

    with ThreadPoolExecutor(at_once) as pool:
        return Tally().take(list(pool.map(tried, trials)))


def script(*words: str, name: str = SCRIPT, before: Sequence[str] = (), **how: Any) -> subprocess.CompletedProcess[str]:
    """Run a script to its end, behind the words `before`."""
    path = str(ROOT / "experiments" / f"{name}.py")
    asked: dict[str, Any] = {"capture_output": True, "text": True, "cwd": ROOT, "timeout": 120, "check": False, **how}
    return subprocess.run([sys.executable, *before, path, *words], **asked)


def learnt(run: Path) -> tuple[Any, ...]:
    """Return all of a run that must be the same again: its weights, its games, its last counters."""
    weights = safetensors.numpy.load_file(run / "weights.safetensors")
    games = records(run, "episodes.jsonl")
    for line in games:
        del line["elapsed"]
        if "session_updates" in line:  # the run's are what had been heard by then, and when is up to the machine
            del line["updates"]
    last = records(run, "speed.jsonl")[-1]
    counters = {name: last[name] for name in ("env_steps", "updates", "samples")}
    return {name: array.tobytes() for name, array in weights.items()}, games, counters


def whole_run(
    folder: Path, env_steps: int, *words: str, name: str = SCRIPT, settings: Sequence[str] = SETTINGS
) -> Path:
    """Make a run that nothing disturbs, and return its folder."""
    done = script(*settings, "--max-env-steps", str(env_steps), "--runs-dir", str(folder), *words, name=name)
    assert done.returncode == 0, done.stderr
    (run,) = folder.iterdir()
    return run


def a_sentence(done: subprocess.CompletedProcess[str], codes: Sequence[int] = (1, 2, 3)) -> str | None:
    """Return what is wrong with the end of a process that is to end with one sentence, None if nothing is."""
    lines = [line for line in done.stderr.splitlines() if not line.startswith("left out: ")]
    if done.returncode not in codes:
        return f"exit code {done.returncode}: {done.stderr[-400:]}"
    if "Traceback" in done.stdout + done.stderr:
        return f"a traceback: {done.stderr[-400:]}"
    if len(lines) != 1 or not lines[0].startswith("error: "):
        return f"no sentence: {done.stderr[-400:]!r}"
    return None


def show(rows: Sequence[Row], count: Callable[[Row], int]) -> bool:
    """Try each row, print the table as Markdown, and return whether all was good."""
    print("| fault | what must hold | tried | good | minutes |\n|---|---|---|---|---|", flush=True)
    wrong: list[str] = []
    tried = good = 0
    for row in rows:
        began = time.monotonic()
        folder = Path(tempfile.mkdtemp(prefix="faults-"))
        tally = row.run(folder, count(row))
        shutil.rmtree(folder, ignore_errors=True)
        tried, good = tried + tally.tried, good + tally.good
        minutes = (time.monotonic() - began) / 60.0
        print(f"| {row.name} | {row.what_holds} | {tally.tried} | {tally.good} | {minutes:.1f} |", flush=True)
        wrong += [f"{row.name}: {why}" for why in tally.wrong]
    print(f"| all | | {tried} | {good} | |\n")
    for why in wrong:
        print(json.dumps(why))
    return not wrong
