"""Logs that are cut off where a checkpoint says."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from fastdqn.errors import CheckpointError
from fastdqn.runs.counters import Counters
from fastdqn.runs.limits import Limits, StopTest
from fastdqn.runs.records import Records
from fastdqn.types import EpisodeEnd


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


def test_what_is_no_number_is_null(tmp_path: Path) -> None:
    logs = Records(tmp_path, [], print)
    logs.report({"held_out/mean_q": math.nan, "held_out/max_q": math.inf, "held_out/min_q": 0.5}, {}, 7)
    stop = StopTest(Limits(None, None, None))
    logs.episode(Counters(), EpisodeEnd(3.0, 40, False), stop, 1, {"score": 9.0, "catches": math.nan})
    logs.close({})
    game = json.loads((tmp_path / "episodes.jsonl").read_text(encoding="utf-8"), parse_constant=pytest.fail)
    assert (game["score"], game["catches"]) == (3.0, None)  # a value of a script's does not replace a figure of the run
    line = json.loads((tmp_path / "reports.jsonl").read_text(encoding="utf-8"), parse_constant=pytest.fail)
    assert [line[f"held_out/{name}_q"] for name in ("mean", "max", "min")] == [None, None, 0.5]
