"""The progress of a run where there is no terminal."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from fastdqn.algorithms.dqn import PROGRESS
from fastdqn.runs.run import Run
from tests.helpers.runs import CPU, NOTHING, game, options, scalars


def test_plain_lines_where_there_is_no_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    opts = options(tmp_path, log_seconds=0.01, max_env_steps=100)
    with Run("01_baseline", opts, CPU, "classic", ("how the game is presented",), PROGRESS) as run:
        for _ in range(10):
            time.sleep(0.02)
            run.played(NOTHING, epsilon=0.7)
            run.updated(scalars(), 32)
        run._next_record = 0.0
        run.played(game(3.0), epsilon=0.7)
        time.sleep(0.02)
        run.played(NOTHING, epsilon=0.7)
    out = capsys.readouterr().out
    assert out.startswith("how the game is presented\nrun folder ")
    last = [line for line in out.splitlines() if line.startswith("env steps ")][-1]
    for part in (
        "env steps/s ",
        "episodes 1 ",
        "mean-100 3.00",
        "epsilon 0.700",
        "loss 0.5 ",
        "elapsed 0:",
        "left ",
    ):
        assert part in last
    assert "\x1b" not in out
