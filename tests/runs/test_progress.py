"""The progress of a run where there is no terminal."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from fastdqn.algorithms.dqn import PROGRESS
from fastdqn.runs.counters import Counters
from fastdqn.runs.limits import Limits, StopTest
from fastdqn.runs.progress import Progress, days
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
        "loss 0.50000",
        "elapsed 0:",
        "left ",
    ):
        assert part in last
    assert "\x1b" not in out


def test_a_run_of_days_says_so_once_its_speed_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    """100 env steps/s in 50 s; 50 million take 5.8 days, which the progress line counts down in days, too."""

    def said_by(max_env_steps: int | None) -> list[str]:
        counters, stop = Counters(), StopTest(Limits(None, max_env_steps, None))
        progress = Progress(counters, stop, {}, 0, None)
        progress.show(1.0)
        counters.env_steps = 90_000
        progress.show(20.0)  # fast, before the first update
        counters.updates = 1
        for second in (30.0, 50.0, 80.0, 90.0, 100.0):
            counters.env_steps = 90_000 + round(100 * (second - 30.0))
            progress.newest(100.0, {})
            progress.show(second)
        return capsys.readouterr().out.splitlines()

    lines = said_by(50_000_000)
    assert [line for line in lines if "days" in line] == ["at 100 env steps/s it is 5.8 days to the limit"]
    assert lines.index("at 100 env steps/s it is 5.8 days to the limit") == 3  # after those at 20, 30 and 50 s
    assert lines[-1].endswith("left 5 d 18 h")
    assert not any("days" in line for line in said_by(8_000_000))  # 22 hours
    assert not any("days" in line for line in said_by(None))


def test_times_left_by_hand() -> None:
    assert [days(seconds) for seconds in (59, 86_399, 86_400, 2 * 86_400 + 3 * 3600 + 3599)] == [
        "0:00:59",
        "23:59:59",
        "1 d 0 h",
        "2 d 3 h",
    ]
