"""How a child process starts: by which method, deaf to what, with which environment.

On Linux multiprocessing's fork server imports PyTorch and the other packages once; children are forked from it, and
share those pages of memory. It opens no device and starts no thread. A child may run on the cores that were its
parent's when the first child started. Elsewhere children are spawned.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing.forkserver
import multiprocessing.resource_tracker
import multiprocessing.util
import os
import sys
import tempfile
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any

import torch.multiprocessing

from fastdqn import process
from fastdqn.errors import RunError
from fastdqn.execution import fork_server

IMPORTED_BEFORE = (*process.NEEDED, "tensorboard.summary.writer.record_writer", "safetensors.torch")
"""The modules of other packages that children find imported."""
LONGEST_FOLDER = 75
"""Bytes of the folder for temporary files: the path of the fork server's socket has 32 more, and 107 at most."""
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def starter() -> Any:
    """Return the context of multiprocessing by which children start, and what they share with this process."""
    if sys.platform != "win32":
        with process.signals_blocked():  # the tracker of what is shared outlives a closed terminal, and cleans up
            multiprocessing.resource_tracker.ensure_running()
    if sys.platform != "linux" or not _has_room_for_a_socket():
        return torch.multiprocessing.get_context("spawn")
    context: Any = torch.multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([fork_server.__name__])
    return context


def _has_room_for_a_socket() -> bool:
    """Tell whether there is a folder for temporary files, and its path is short enough."""
    try:
        return len(os.fsencode(tempfile.gettempdir())) <= LONGEST_FOLDER
    except OSError:
        return False


def start(child: Any) -> None:
    """Start a process of `starter()`; it and the fork server are deaf to what is sent to all processes of a run.

    Raises:
        RunError: it cannot be started.
    """
    with process.signals_held():
        if child._start_method == "forkserver":
            multiprocessing.resource_tracker.ensure_running()  # which, when it starts, lets signals through again
            root = str(Path(__file__).resolve().parents[2])
            path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
            folder = multiprocessing.util.get_temp_dir()
            task = json.dumps({"parent": os.getpid(), "folder": folder, "modules": IMPORTED_BEFORE})
            with process.signals_blocked(), environment({fork_server.TASK: task, "PYTHONPATH": path, **ONE_THREAD}):
                _do(multiprocessing.forkserver.ensure_running, child)
            _do(child.start, child)
        else:
            with process.signals_blocked(), environment(ONE_THREAD):
                _do(child.start, child)


def _do(step: Callable[[], object], child: Any) -> None:
    """Take a step towards a child."""
    try:
        step()
    except (EOFError, OSError) as error:
        raise RunError(f"The process {child.name} could not be started ({error or type(error).__name__}).") from error


@contextlib.contextmanager
def environment(values: Mapping[str, str]) -> Generator[None]:
    """Set variables of the environment for what starts now."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
