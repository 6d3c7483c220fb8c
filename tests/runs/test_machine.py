"""What is said of the machine and the source tree beside each figure."""

from __future__ import annotations

import importlib.metadata
import subprocess
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch

import fastdqn
from fastdqn.runs import machine
from fastdqn.runs.folder import version
from fastdqn.runs.machine import environment


@pytest.mark.parametrize("history", [True, False])
def test_commit_of_a_copy_is_what_the_environment_says(
    history: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where there is a history, it is that; a history that git does not read is none."""
    (tmp_path / "fastdqn/runs").mkdir(parents=True)
    monkeypatch.setattr(machine, "__file__", str(tmp_path / "fastdqn/runs/machine.py"))
    monkeypatch.setenv("FASTDQN_COMMIT", "abc")
    if history:
        (tmp_path / ".git").write_text("nothing that git knows")
    assert machine.environment(torch.device("cpu"))["commit"] == "abc"
    if history:
        (tmp_path / ".git").unlink()
        words = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=b"]
        subprocess.run([*words, "init", "-q"], check=True)
        subprocess.run([*words, "commit", "-q", "--allow-empty", "-m", "c"], check=True)
        said = subprocess.run([*words, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout
        assert said.startswith(str(machine.environment(torch.device("cpu"))["commit"]))


def test_the_version_is_that_of_the_code_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkout that was updated after it had been installed: what is installed says an older one."""
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "0.1.0")
    packages = environment(torch.device("cpu"))["packages"]
    assert (packages["fastdqn"], packages["numpy"], version()) == (fastdqn.__version__, "0.1.0", fastdqn.__version__)


def test_git_is_not_sent_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a hook of another repository, or somebody's own files, do."""
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    assert "GIT_DIR" not in machine._said("env")


def test_memory_is_looked_at_for_a_hundredth_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, looks = [50.0], []

    def look(_: object) -> int:
        looks.append(clock[0])
        clock[0] += 0.07  # of sixteen children
        return 1_000 * len(looks)

    monkeypatch.setattr(machine, "resident_bytes", look)
    monkeypatch.setattr(machine, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    memory = machine.ResidentMemory(psutil.Process())
    found = []
    for _ in range(20):
        found.append(memory.bytes())
        clock[0] += 1.0
    assert looks == pytest.approx([50.0, 57.07, 64.14])
    assert (found[0], found[6], found[7], found[-1]) == (1_000, 1_000, 2_000, 3_000)
