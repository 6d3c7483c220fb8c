"""bench/checkpoint.py: one real run of it, and a mistake."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.helpers.scripts import ROOT


@pytest.mark.slow
def test_checkpoints_are_timed() -> None:
    words = ("--replay-size", "2000", "--played", "1000", "--num-envs", "4", "--seconds", "0.3", "--repeats", "1")
    command = [sys.executable, str(ROOT / "bench" / "checkpoint.py"), *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    line = json.loads(done.stdout.splitlines()[-1])
    assert line["frames"] == 2000
    assert 0 < line["begin_s"] <= line["written_s"]
    assert line["megabytes"] > 20.0  # network, target and two moments
    bad = subprocess.run([*command, "--game", "pongg"], capture_output=True, text=True, cwd=ROOT, check=False)
    assert bad.returncode
    assert bad.stderr.startswith("error: ")
    assert "Traceback" not in bad.stderr
