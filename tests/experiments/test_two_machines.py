"""Two machines with torchrun on each: network namespaces stand for them. One is cut off in the middle of the run."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.helpers.namespaces import ADDRESSES, Machines, can_make, two_machines
from tests.helpers.scripts import ROOT, command, only_run, summary

pytestmark = pytest.mark.slow
CART = (
    *("--game", "CartPole-v1", "--num-envs", "2", "--rollout-steps", "16", "--batch-size", "16", "--epochs", "2"),
    *("--threads", "1", "--stop-score", "None", "--checkpoint-env-steps", "100", "--learning-rate-decay", "100000"),
)
ENDLESS = (*CART, "--max-env-steps", "None")


class Node:
    """torchrun on one of two machines, with one rank."""

    def __init__(self, machines: Machines, number: int, folder: Path, *words: str) -> None:
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"]
        torchrun += ["--node-rank", str(number), "--master-addr", ADDRESSES[0], "--master-port", "29377"]
        self.script = command("41_ppo_ranks", folder, *words)
        self.errors = folder.parent / f"errors-{number}"
        self.said = folder.parent / f"said-{number}"
        with self.errors.open("w") as errors, self.said.open("w") as said:
            self.agent = subprocess.Popen(
                [*machines.command(number), *torchrun, *self.script],
                stdout=said,
                stderr=errors,
                cwd=ROOT,
                env={**os.environ, "GLOO_SOCKET_IFNAME": "cable", "OMP_NUM_THREADS": "1"},
                start_new_session=True,
            )

    def ranks(self) -> list[psutil.Process]:
        """Return the rank that lives here, if it does."""
        found: list[psutil.Process] = []
        for one in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                own = os.getsid(one.ppid()) == self.agent.pid and one.pid != self.agent.pid
                if own and self.script[0] in one.cmdline() and "torch.distributed.run" not in one.cmdline():
                    found.append(one)
        return found


@contextlib.contextmanager
def nodes(machines: Machines, folders: list[Path], *words: tuple[str, ...]) -> Iterator[list[Node]]:
    """Start torchrun on both machines, with words for each."""
    both = [Node(machines, i, folders[i], *words[i]) for i in range(2)]
    try:
        yield both
    finally:
        for node in both:
            for one in [*node.ranks(), psutil.Process(node.agent.pid)] if node.agent.poll() is None else node.ranks():
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()
            node.agent.wait()


@pytest.mark.skipif(not can_make(), reason="needs root and network namespaces")
def test_a_machine_that_is_cut_off_ends_the_run_on_both_and_it_is_resumed(tmp_path: Path) -> None:
    folders = [tmp_path / name / "runs" for name in "ab"]  # no files are shared
    for folder in folders:
        folder.parent.mkdir()
    with two_machines() as machines, nodes(machines, folders, ENDLESS, ENDLESS) as both:
        end = time.monotonic() + 120
        while not any(folders[0].glob("*/checkpoints/*.checkpoint")):
            assert time.monotonic() < end, [node.errors.read_text() for node in both]
            time.sleep(0.1)
        assert all(len(node.ranks()) == 1 for node in both)
        machines.cut()
        began = time.monotonic()
        while any(node.ranks() for node in both):
            assert time.monotonic() - began < 10.0
            time.sleep(0.1)
        first, second = (node.errors.read_text() for node in both)
    assert "error: Rank 1 (process " in first
    assert "has been silent for 5 seconds: it was stopped, or cut off." in first
    assert f"error: Rank 0 ({ADDRESSES[0]}) has been silent for 5 seconds: it was stopped, or cut off." in second
    run = only_run(folders[0])
    assert summary(run)["reason"] == "failed"
    assert not folders[1].exists()
    stood = max(int(path.stem) for path in run.glob("checkpoints/*.checkpoint"))

    copy = Path(shutil.copytree(run, tmp_path / "b" / "copy"))  # of which the second machine reads the options alone
    words = [("--resume", str(one), "--max-env-steps", str(stood + 300)) for one in (run, copy)]
    with two_machines() as machines, nodes(machines, folders, *words) as both:
        for node in both:
            assert node.agent.wait(120) == 0, node.errors.read_text()
        said = both[0].said.read_text()
        assert f"resumed at env step {stood:,}" in said
        assert "exchanged by Gloo" in said
    assert summary(run)["env_steps"] >= stood + 300
    assert summary(copy)["reason"] == "failed"  # as it was
