"""Stable-Baselines3 over ranks: alone it is what it was, bit for bit; two ranks are equal after learning."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.helpers.sb3_rank import ALGORITHMS, learnt, model_of
from tests.helpers.scripts import ROOT, with_root

pytest.importorskip("stable_baselines3")
pytestmark = pytest.mark.engines


@pytest.mark.parametrize("name", ALGORITHMS)
def test_alone_it_is_what_it_was(name: str) -> None:
    from fastdqn.sb3 import average

    a = learnt(model_of(name, 0))
    averaged = model_of(name, 0)  # which seeds the random numbers of all anew
    average(averaged)
    assert getattr(averaged, "max_grad_norm", math.inf) == math.inf
    b = learnt(averaged)
    assert a.keys() == b.keys()
    assert all(torch.equal(a[key], b[key]) for key in a)
    assert any(not torch.equal(a[key], value) for key, value in model_of(name, 0).policy.state_dict().items())


def ranks_of(name: str, folder: Path, *words: str) -> list[dict[str, Any]]:
    """Let two ranks learn under torchrun; return the weights of each."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "tests.helpers.sb3_rank", name, str(folder), *words]
    environment = {**with_root(), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stdout + done.stderr
    return [torch.load(folder / f"rank{rank}.pt", weights_only=True) for rank in range(2)]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_two_ranks_are_equal_after_learning(tmp_path: Path, name: str) -> None:
    first, second = ranks_of(name, tmp_path)
    assert all(torch.equal(first[key], second[key]) for key in first)
    alone = learnt(model_of(name, 0))
    assert any(not torch.equal(first[key], alone[key]) for key in alone)


def test_the_control_without_it_they_drift_apart(tmp_path: Path) -> None:
    first, second = ranks_of("PPO", tmp_path, "alone")
    assert any(not torch.equal(first[key], second[key]) for key in first)
