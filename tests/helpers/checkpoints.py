"""Checkpoints of single parts, written to a file and read again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastdqn.runs.checkpoint import Checkpoints, Saved, newest, read

ABOUT = {"script": "09_cuda_graph", "game": "pong", "config": {"script": "09_cuda_graph"}}


def saved(folder: Path, states: dict[str, Any], env_steps: int = 100) -> Saved:
    """Write a checkpoint of these states and return what is said of it."""
    checkpoints = Checkpoints(folder, ABOUT)
    checkpoints.begin(env_steps, lambda: states)
    done = checkpoints.ended(wait=True)
    assert done is not None
    return done


def through_a_file(folder: Path, part: Any) -> dict[str, Any]:
    """Return the state of `part` as a file gives it back."""
    folder.mkdir(exist_ok=True, parents=True)
    saved(folder, {"part": part.state()})
    return read(newest(folder))["part"]
