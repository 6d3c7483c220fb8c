"""Folders of runs that were never played, for what looks at runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import filelock

from fastdqn.runs.folder import hold
from fastdqn.tools.reading import RunData, read_run

CONFIG: dict[str, dict[str, Any]] = {
    "run": {"seed": 0, "stop_score": 18.0, "max_env_steps": 3_000_000, "max_minutes": None, "train_seconds": None},
    "game": {"name": "pong", "sticky_actions": 0.0},
    "dqn": {"learning_rate": 1e-4, "double": False, "n_step": 1, "epsilon_start": 1.0, "epsilon_final": 0.02},
    "update": {"precision": "auto"},
}
_HELD: list[filelock.BaseFileLock] = []
"""Locks of runs that seem to be going on in this process."""


def make_folder(
    folder: Path,
    seed: int = 0,
    ended: str | None = "solved",
    scores: Sequence[float] = (1.0, 2.0, 3.0),
    script: str = "09_cuda_graph",
    time: str = "2026-11-22T18:16:25+00:00",
    summary: Mapping[str, Any] | None = None,
    running: bool = False,
    cpu: str = "a processor",
    **changes: Mapping[str, Any],
) -> Path:
    """Make the folder of a run, and return it.

    Args:
        folder: where.
        seed: of the run.
        ended: why, None for a run that left no summary.
        scores: of its games; one a minute, and one every 100,000 env steps.
        script: that trained it.
        time: when it began.
        summary: what else its summary says.
        running: whether it is going on, in this process.
        cpu: of its machine.
        changes: of its options, by group.
    """
    folder.mkdir(parents=True)
    groups = {name: {**CONFIG.get(name, {}), **changes.get(name, {})} for name in {**CONFIG, **changes}}
    groups["run"]["seed"] = seed
    config = {"format": 3, "script": script, "wrappers": "vector", **groups}
    (folder / "config.json").write_text(json.dumps(config))
    stamp = {"cores": 2, "cpu": cpu, "gpu": None, "time": time}
    (folder / "environment.json").write_text(json.dumps(stamp))
    lines = [
        {"score": score, "mean_100": sum(scores[: i + 1]) / (i + 1), "env_steps": 100_000 * i, "elapsed": 60.0 * i}
        for i, score in enumerate(scores)
    ]
    (folder / "episodes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if ended is not None:
        last = lines[-1] if lines else {"mean_100": None, "env_steps": 50, "elapsed": 1.0}
        said = {"reason": ended, **last, "episodes": len(scores), "median_env_steps_per_s": 1000.0, **(summary or {})}
        (folder / "summary.json").write_text(json.dumps(said))
    if running:
        _HELD.append(hold(folder))
    return folder


def make_run(folder: Path, **what: Any) -> RunData:
    """Make such a folder, and return what it says."""
    return read_run(make_folder(folder, **what))
