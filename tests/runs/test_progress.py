"""The progress of a run: plain lines where there is no terminal, and a display that fits into one of any width."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from fastdqn.algorithms.dqn import PROGRESS
from fastdqn.runs.counters import Counters
from fastdqn.runs.limits import Limits, StopTest
from fastdqn.runs.progress import Progress, days
from fastdqn.runs.run import Run
from tests.helpers.runs import CPU, NOTHING, game, options, scalars
from tests.helpers.terminal import Terminal


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
        "games 1 ",
        "mean-100 3.00",
        "epsilon 0.700",
        "loss 0.5 ",
        "elapsed 0:",
        "left ",
    ):
        assert part in last
    assert "\x1b" not in out


def terminal_of(width: int, patch: pytest.MonkeyPatch, kind: str = "xterm") -> Terminal:
    """Return a terminal that stdout goes to for the rest of a test."""
    made = Terminal(width)
    patch.setattr("os.get_terminal_size", lambda *_: os.terminal_size((made.width, 24)))
    patch.setenv("TERM", kind)
    patch.delenv("COLUMNS", raising=False)
    patch.setattr(sys, "stdout", made)
    return made


def progress_of(env_steps: int = 123_456, updates: int = 9) -> Progress:
    counters = Counters()
    counters.env_steps, counters.updates = env_steps, updates
    counters.values = {"epsilon": 0.5}
    made = Progress(counters, StopTest(Limits(18.0, 3_000_000, None)), PROGRESS, 1_000_000, 0.001)
    made.newest(612.3, {"loss": 0.01234})
    return made


def pieces(rows: list[str]) -> int:
    """How many headings and bars are on the screen."""
    return sum(row.split()[:2] == ["env", "steps"] for row in rows) + sum("━" in row for row in rows)


@pytest.mark.parametrize("width", [20, 40, 60, 79, 80, 120])
@pytest.mark.parametrize("env_steps", [0, 123_456, 2_999_999])
def test_the_display_fits_into_a_terminal(width: int, env_steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(width, monkeypatch)
    progress = progress_of(env_steps, updates=0)
    progress.start()
    for now in range(3):
        progress.show(float(now))
    progress.stop()
    assert len([row for row in terminal.shown() if row]) == 3  # nothing is wrapped
    assert not any(goes_on for _, goes_on in terminal.rows)
    head, values, bar = terminal.shown()[:3]
    assert "…" not in head + values + bar
    assert head.split()[:2] == ["env", "steps"]
    assert values.split()[0] == f"{env_steps:,}"
    if width >= 40:
        assert "mean-100" in head
        assert "%" in bar
        assert "left" in head
    assert ("loss" in head) == (width >= 79)
    if width >= 79:
        assert "of the limit, " in bar


def test_a_terminal_that_is_resized_keeps_one_display_and_what_stands_above(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(80, monkeypatch)
    progress = progress_of()
    progress.say("run folder runs/here")
    progress.start()
    progress.show(0.0)
    for now, width in enumerate((60, 40, 100, 79, 30, 31, 80, 20, 80), 1):
        terminal.resize(width)
        if width == 30:
            progress.say("checkpoint")  # before the display is drawn anew
        progress.show(float(now))
        assert pieces(terminal.shown()) == 2, (width, terminal.shown())
        assert "".join(terminal.shown()).startswith("run folder runs/here"), (width, terminal.shown())
    terminal.resize(50)
    progress.stop()
    progress.say("the end")
    rows = [row for row in terminal.shown() if row]
    assert rows[:2] == ["run folder runs/here", "checkpoint"]
    assert rows[-1] == "the end"
    assert len(rows) == 6


def test_the_terminal_of_these_tests_wraps_anew() -> None:
    """The control: without what the display does about it, rows are left over."""
    terminal = Terminal(80)
    rows = "x" * 70 + "\n" + "y" * 70
    terminal.write(rows)
    terminal.resize(40)
    assert terminal.shown() == ["x" * 40, "x" * 30, "y" * 40, "y" * 30]
    terminal.write("\r\x1b[2K\x1b[1A\x1b[2Kz")
    assert terminal.shown() == ["x" * 40, "x" * 30, "z", ""]
    terminal.resize(80)
    assert terminal.shown() == ["x" * 70, "z", ""]


def test_a_dumb_terminal_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(300, monkeypatch, "dumb")
    progress = progress_of()
    progress.start()
    progress.show(0.0)
    progress.show(100.0)
    progress.stop()
    assert terminal.shown()[0].startswith("env steps 123,456 | env steps/s 612.3 | games 0 | mean-100 -")


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
