"""Versions and machine: what a figure needs beside it to mean something."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
import torch

from fastdqn import process
from fastdqn.runs.folder import read_object, version
from fastdqn.runs.neighbours import DEAR

PACKAGES = ("torch", "gymnasium", "ale-py", "opencv-python-headless", "numpy", "tensorboard", "fastdqn")
OF_OTHERS = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY", "GIT_NAMESPACE")
"""Variables by which git is sent to another repository, as its hooks are."""


def environment(device: torch.device) -> dict[str, Any]:
    """Return versions and machine: what a figure needs beside it to mean something."""
    packages: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            packages[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            packages[name] = None
    packages["fastdqn"] = version()  # of the code that runs, whatever is installed
    packages["torch"] = str(torch.__version__)  # names its build, +cpu or +cu130, which the package's own may not
    return {
        "python": platform.python_version(),
        "packages": packages,
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": cpu_name(),
        "cores": process.cores(),
        "threads": torch.get_num_threads(),
        "memory_bytes": psutil.virtual_memory().total,
        "gpu": gpu_name(device),
        "commit": _commit(),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "time": datetime.now().astimezone().isoformat(timespec="seconds"),
    }


def environment_of(run: Path, device: torch.device, resumed_at: int | None) -> dict[str, Any]:
    """Return what the environment.json of a run says: of this process, and of those before it where it was resumed."""
    now = environment(device)
    if resumed_at is None:
        return now
    earlier: list[Any] = []
    with contextlib.suppress(OSError, ValueError, TypeError):  # it may be damaged
        said = read_object(run / "environment.json")
        earlier = [*said.pop("earlier", []), said]
    return {**now, "resumed_at_env_step": resumed_at, "earlier": earlier}


def cpu_name() -> str:
    """Return the processor's name, with family and model where the name alone says little."""
    with contextlib.suppress(OSError):
        fields = dict(
            [part.strip() for part in line.split(":", 1)]
            for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0].splitlines()
            if ":" in line
        )
        flags = fields.get("flags", "").split()
        vectors = [name for name in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if name in flags]
        if "model name" in fields:
            return f"{fields['model name']} family {fields.get('cpu family')} model {fields.get('model')} {vectors}"
    if sys.platform == "darwin":
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            return _said("sysctl", "-n", "machdep.cpu.brand_string").strip()
    return platform.processor() or platform.machine()


def gpu_name(device: torch.device) -> str | None:
    """Return the name of the GPU that is `device`; on mps that of the chip that it is a part of."""
    if device.type == "mps":
        return f"GPU of {cpu_name()}"
    return torch.cuda.get_device_name(device) if device.type == "cuda" else None


def wait_for(device: torch.device) -> None:
    """Wait until `device` has done all that it was asked for."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def peak_device_bytes(device: torch.device) -> int:
    """Return the most memory that tensors have taken on `device`, 0 for the CPU; on mps, where nobody counts that, what
    Metal's driver holds for this process now, with the memory that PyTorch keeps for later.
    """
    if device.type == "mps":
        return torch.mps.driver_allocated_memory()
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0


def _commit() -> str | None:
    """Return the commit of the source tree, with a + for uncommitted changes; of a copy without its history what the
    environment variable FASTDQN_COMMIT says, if anything.
    """
    here = Path(__file__).resolve().parents[2]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        if (here / ".git").exists():
            changed = _said("git", "-C", str(here), "status", "--porcelain", "-uno")
            return _said("git", "-C", str(here), "rev-parse", "--short=12", "HEAD").strip() + ("+" if changed else "")
    return os.environ.get("FASTDQN_COMMIT")


def _said(*command: str) -> str:
    """Return what a command prints."""
    plain = {name: value for name, value in os.environ.items() if name not in OF_OTHERS}
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10, env=plain).stdout


class ResidentMemory:
    """The resident memory of a process and its children, looked at for at most a hundredth of the time, as each
    child takes some.
    """

    def __init__(self, parent: psutil.Process) -> None:
        self._parent = parent
        self._bytes, self._next = 0, 0.0

    def bytes(self) -> int:
        """Return `resident_bytes`, as of the last look where the next one is not due."""
        began = time.monotonic()
        if began >= self._next:
            self._bytes = resident_bytes(self._parent)
            self._next = began + DEAR * (time.monotonic() - began)
        return self._bytes


def resident_bytes(parent: psutil.Process) -> int:
    """Return the resident memory of a process and its children.

    On Linux, what children share with each other counts once.
    """
    total = int(parent.memory_info().rss)
    for child in parent.children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it has ended meanwhile
            memory: Any = child.memory_full_info() if sys.platform == "linux" else child.memory_info()
            total += int(getattr(memory, "pss", memory.rss))
    return total
