"""Series: what runs, and what is refused before it begins."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from fastdqn.errors import UserError
from fastdqn.options.parts import VARIANTS
from fastdqn.tools.series import distinct, run_series, without
from tests.helpers.marks import posix_signals
from tests.helpers.scripts import ROOT, parse


def parsed(words: Sequence[str]) -> Any:
    return parse("10_rainbow", *words)


def test_a_series_is_refused_before_it_begins(tmp_path: Path) -> None:
    words = ["--variant", "all", "--epsilon-final", "0.05", "--runs-dir", str(tmp_path / "runs")]
    options = parsed(words)
    with pytest.raises(UserError, match=r"--epsilon-final 0\.05 is above --epsilon-start 0"):
        run_series(
            Path("10_rainbow.py"),
            words,
            parsed,
            options.series.variant,
            range(options.series.seeds),
            options.run.runs_dir,
            options.game.name,
        )
    assert not (tmp_path / "runs").exists()


SERIES = """
import sys
import fastdqn.cli.begin
from pathlib import Path
from fastdqn.tools import series
series.GRACE_SECONDS = 0.5
from types import SimpleNamespace
parsed = SimpleNamespace(dqn=SimpleNamespace(agent="toy"))
script, runs = Path(sys.argv[1]), Path(sys.argv[2])
sys.exit(series.run_series(script, (), lambda words: parsed, None, range(2), runs, "toy"))
"""
RUN = """
import os, sys, time
import fastdqn.cli.begin
from fastdqn import process
with process.running():
    print(os.getpid(), flush=True)
    while not process.stop_signal():
        time.sleep(0.05)
    time.sleep(float({leaves}))
sys.exit(process.exit_code())
"""


@posix_signals
@pytest.mark.parametrize(("leaves", "presses"), [(0.0, 1), (60.0, 2)])
def test_a_signal_for_the_series_alone_ends_its_run(tmp_path: Path, leaves: float, presses: int) -> None:
    """As a supervisor sends it, or an IDE: the run is asked to stop, and ends with a series that leaves at once."""
    script = tmp_path / "toy.py"
    script.write_text(RUN.format(leaves=leaves))
    words = [sys.executable, "-c", SERIES, str(script), str(tmp_path / "runs")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT) as whole:
        assert whole.stdout is not None
        pid = int(next(line for line in whole.stdout if line.strip().isdecimal()))
        for _ in range(presses):
            whole.send_signal(signal.SIGINT)
            time.sleep(1.0)
        assert whole.wait(30.0) == 130
    with contextlib.suppress(psutil.NoSuchProcess):
        assert psutil.Process(pid).status() == psutil.STATUS_ZOMBIE  # nobody has asked yet how it ended


def test_words_of_a_series() -> None:
    words = ["--seed", "3", "--variant=all", "--dueling", "--seeds", "2", "--lr", "1"]
    assert without(words, "--variant", "--seed", "--seeds") == ["--dueling", "--lr", "1"]


def test_a_series_runs_what_differs_once(capsys: pytest.CaptureFixture[str]) -> None:
    def variants_of(*words: str) -> tuple[str, ...]:
        return distinct({variant: parsed(["--variant", variant, *words]) for variant in VARIANTS})

    assert variants_of("--game", "pong") == VARIANTS
    assert capsys.readouterr().out == ""
    assert variants_of("--agent", "pong-fast") == tuple(v for v in VARIANTS if v != "n-step")  # has 5 steps already
    assert capsys.readouterr().out == "n-step is dqn with these options, and is left out\n"
