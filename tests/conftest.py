"""Tests run side by side, one on each core; those marked `cuda` are skipped where there is no CUDA device."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

from fastdqn import process
from tests.helpers.trained import TrainedRuns


def pytest_configure() -> None:
    """Give each of pytest-xdist's workers a core of its own, which the scripts that it starts inherit, where there is a
    way to.

    PyTorch's threads wait by spinning: two processes on the same cores slow each other down tenfold.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is None:
        return
    # Scripts that wait for a GPU do so by spinning, too: not all on one core.
    if hasattr(os, "sched_setaffinity") and not torch.cuda.is_available():
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[int(worker.removeprefix("gw")) % len(cores)]})
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def process_as_it_was() -> Iterator[None]:
    """Put back what a script that ran in this process has set for its thread, and its clock, which resuming moves."""
    threads, began = torch.get_num_threads(), process._began
    process._ran, process._taken = False, True
    yield
    process._began = began
    torch.set_flush_denormal(False)
    torch.set_num_threads(threads)


@pytest.fixture
def one_torch_thread() -> None:
    """Let PyTorch have one thread, as it has where tests run side by side; it is put back as above."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> TrainedRuns:
    """Runs, hardly trained, of which a test may take what it wants to look at."""
    return TrainedRuns(tmp_path_factory.mktemp("runs"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    for item in items:
        if "cuda" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))
