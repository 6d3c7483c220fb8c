"""What is said of the machine and the source tree beside each figure."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import torch

from fastdqn.runs import machine


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


def test_git_is_not_sent_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a hook of another repository, or somebody's own files, do."""
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    assert "GIT_DIR" not in machine._said("env")
