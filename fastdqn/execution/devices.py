"""Devices and threads: where the learner runs, or one sentence about why it cannot run there."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Generator
from pathlib import Path

import numpy as np
import torch

from fastdqn import process
from fastdqn.errors import UserError

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3  # malloc.h


def prepare_device(device: str | None = None, cuda: bool = False, threads: int | None = None) -> torch.device:
    """Return the device that is asked for, and set the number of PyTorch's CPU threads.

    Args:
        device: cpu, cuda, cuda:N, mps or auto; None for cpu. auto is cuda or cpu, as only these have been measured.
        cuda: whether CUDA was asked for by itself.
        threads: of PyTorch on the CPU, None for one for each core.

    Raises:
        UserError: the device's name means nothing, or the device is not there.
    """
    torch.set_num_threads(threads or process.cores())
    name = _name_of(device, cuda)
    try:
        found = torch.device(name)
    except RuntimeError:
        found = torch.device("meta")
    if found.type not in ("cpu", "cuda", "mps"):
        raise UserError(f"--device {name} is not a device that fastdqn trains on; use cpu, cuda, cuda:N, mps or auto.")
    if found.type == "mps":
        return _prepared_mps(found)
    if found.type == "cuda" and not torch.cuda.is_available():
        raise UserError(
            f"CUDA was asked for, but this PyTorch ({torch.__version__}) sees no CUDA device; leave it out to train on "
            "the CPU, or install a CUDA build of PyTorch and the NVIDIA driver."
        )
    if found.type == "cuda" and (found.index or 0) >= torch.cuda.device_count():
        raise UserError(f"--device {name}: the last CUDA device is cuda:{torch.cuda.device_count() - 1}.")
    if found.type == "cuda":
        found = torch.device("cuda", found.index or 0)
        torch.cuda.set_device(found)  # streams and events that name no device are then this one's
    return found


@contextlib.contextmanager
def one_thread() -> Generator[None]:
    """Let PyTorch compute in one CPU thread meanwhile: what a few games show is no sooner done by several, which wait
    for each other wherever somebody else wants a core.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def check_default_dtype() -> None:
    """Raise UserError unless PyTorch's default numbers are float32, which networks and losses count on."""
    default = torch.get_default_dtype()
    if default != torch.float32:
        raise UserError(f"fastdqn computes in float32, and torch.set_default_dtype says {default}; set it back first.")


def has_gpu(device: str | None, cuda: bool) -> bool:
    """Tell whether what `prepare_device` makes of these words is a CUDA device, as far as there can be one."""
    return _name_of(device, cuda).startswith("cuda")


def has_bf16(device: torch.device) -> bool:
    """Tell whether `device` computes in bfloat16 itself; where it is emulated it is far slower than float32.

    Never on mps, where PyTorch has it on some systems alone.
    """
    if device.type == "mps":
        return False
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    capabilities = torch.backends.cpu.get_cpu_capability()
    flags = _cpu_flags()
    return capabilities.startswith("AVX512") and bool({"avx512_bf16", "amx_bf16"} & flags)


def describe_device(device: torch.device) -> tuple[str, ...]:
    """Return a line about what is different on mps; nothing for a device on which nothing is."""
    if device.type != "mps":
        return ()
    return ("device: mps, float32 without graphs, the replay in the host's memory (not yet tried on an Apple machine)",)


def prepare_memory() -> None:
    """Set up this process for the fastest update: freed memory is kept, and denormal numbers are zero."""
    keep_freed_memory()
    flush_denormals()


def keep_freed_memory() -> None:
    """Let the C library keep the memory that an update gives back, instead of asking the system for it each time.

    On Linux with glibc; elsewhere nothing. An update's temporaries are large, and fetching them anew page by page
    takes a good part of its time. Not for replays that keep frames on the heap (LOG.md, "A heap that grew").
    """
    if not sys.platform.startswith("linux"):
        return
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_MMAP_THRESHOLD, 32 * 2**20)
        mallopt(M_TRIM_THRESHOLD, 2**30)
        mallopt(M_TOP_PAD, 64 * 2**20)


def flush_denormals() -> None:
    """Let numbers below 1e-38 be zero in this thread and in those that it starts from now on; where that is not to be
    had, nothing.

    Adam's first moments of weights that no longer get a gradient shrink by a tenth an update until rounding holds them
    at 1e-45, for ever, and such numbers are slow to compute with.
    """
    for kind in (np.float32, np.float64):
        np.finfo(kind)  # older numpy looks at the smallest numbers then, and would warn of zeros
    torch.set_flush_denormal(True)


def _name_of(device: str | None, cuda: bool) -> str:
    """Return the device that these words ask for, auto no more."""
    name = "cuda" if cuda and device in (None, "auto") else device or "cpu"
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return name


def _prepared_mps(found: torch.device) -> torch.device:
    if not torch.backends.mps.is_available():
        raise UserError(
            f"--device mps was asked for, but this PyTorch ({torch.__version__}) has no MPS here, which needs a Mac "
            "with an Apple GPU; leave it out to train on the CPU."
        )
    if found.index:
        raise UserError(f"--device mps:{found.index}: there is only one MPS device, mps.")
    return torch.device("mps", 0)  # as its tensors call it


def _cpu_flags() -> set[str]:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("flags"):
                return set(line.split())
    return set()
