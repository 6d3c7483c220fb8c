"""Checkpoints of single parts, written to a file and read again."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastdqn.runs.checkpoint import Checkpoints, Saved, newest, read
from fastdqn.runs.encoding import from_bytes, to_bytes

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


def taken_apart(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the first line of a checkpoint, and its states with what they say of the run."""
    line, _, data = path.read_bytes().partition(b"\n")
    return json.loads(line), from_bytes(data)


def put_together(path: Path, header: Mapping[str, Any], body: bytes) -> None:
    """Write a checkpoint whose size and checksum are right, whatever it holds."""
    line = json.dumps({**header, "size": len(body), "crc32": zlib.crc32(body)}).encode()
    path.write_bytes(line + b"\n" + body)


def say_of_itself(path: Path, header: Mapping[str, Any]) -> None:
    """Let a checkpoint say this of itself, in its first line and within."""
    _, states = taken_apart(path)
    about = {key: header[key] for key in ("script", "game", "config", "env_steps")}
    put_together(path, header, to_bytes({**states, "about": json.dumps(about)}))
