"""Logs that are cut off where a checkpoint says."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastdqn.errors import CheckpointError
from fastdqn.runs.records import Records


def test_logs_whose_lines_end_elsewhere_are_not_cut(tmp_path: Path) -> None:
    """As after a program that writes the line ends of Windows."""
    logs = Records(tmp_path, [], print)
    path = tmp_path / "episodes.jsonl"
    path.write_bytes(b'{"score": 1}\n{"score": 2}\n{"score": 3}\n')
    sizes = {"episodes.jsonl": 26, "speed.jsonl": 0}
    logs.check(sizes)
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    with pytest.raises(CheckpointError, match=r"episodes\.jsonl is not as the run wrote it"):
        logs.check(sizes)
    logs.close({})
