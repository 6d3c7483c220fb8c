"""`fastdqn compare`: a table of runs."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from fastdqn.cli.folders import RUNS, RunFolders, runs_of


@dataclasses.dataclass(frozen=True)
class Compare:
    """Print a table of runs: how they ended, time, env steps, speed, scores, and the options in which they differ."""

    runs: RunFolders
    """Folders of runs or of sweeps, or "latest" for the newest run in --runs-dir."""
    runs_dir: Path = RUNS
    """Where "latest" looks."""


def compare(options: Compare) -> int:
    """Print the table; return the exit code."""
    runs = runs_of(options.runs, options.runs_dir, games=False)
    from fastdqn.tools.compare import notes_of, show, table_of
    from fastdqn.tools.labels import grouped

    groups = grouped(runs)
    show(table_of(groups), notes_of(groups))
    return 0
