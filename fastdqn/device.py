"""Devices and threads: where the learner runs, or one sentence about why it cannot run there."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from pathlib import Path

import torch

from fastdqn import startup
from fastdqn.config import FastOptions, RunOptions, VectorOptions
from fastdqn.errors import UserError

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3  # malloc.h


def prepare_device(run: RunOptions) -> torch.device:
    """Return the device that `run` asks for, and set the number of PyTorch's CPU threads.

    Raises:
        UserError: the device's name means nothing, or the device is not there.
    """
    torch.set_num_threads(run.threads or startup.cores())
    name = "cuda" if run.cuda and run.device in (None, "auto") else run.device or "cpu"
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        device = torch.device("meta")
    if device.type not in ("cpu", "cuda"):
        raise UserError(f"--device {name} is not a device that fastdqn trains on; use cpu, cuda, cuda:N or auto.")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UserError(
            f"CUDA was asked for, but this PyTorch ({torch.__version__}) sees no CUDA device; leave it out to train on "
            "the CPU, or install a CUDA build of PyTorch and the NVIDIA driver."
        )
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UserError(f"--device {name}: there are only {torch.cuda.device_count()} CUDA devices, from cuda:0 on.")
    if device.type == "cuda":
        device = torch.device("cuda", device.index or 0)
        torch.cuda.set_device(device)  # streams and events that name no device are then this one's
    return device


def num_envs_of(options: VectorOptions) -> int:
    """Return how many games to play at once: as asked for, else 4 for each core, from 8 to 128."""
    return options.num_envs or min(128, max(8, 4 * startup.cores()))


def env_threads_of(options: VectorOptions) -> int:
    """Return how many threads the emulators play in: as asked for, else one for each core."""
    return min(options.env_threads or startup.cores(), num_envs_of(options))


def has_bf16(device: torch.device) -> bool:
    """Tell whether `device` computes in bfloat16 itself; where it is emulated it is eight times as slow as float32."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    capabilities = torch.backends.cpu.get_cpu_capability()
    flags = _cpu_flags()
    return capabilities.startswith("AVX512") and bool({"avx512_bf16", "amx_bf16"} & flags)


def wants_bf16(options: FastOptions, device: torch.device) -> bool:
    """Return whether the network's body shall compute in bfloat16."""
    return options.precision == "bf16" or (options.precision == "auto" and has_bf16(device))


def keep_freed_memory() -> None:
    """Let the C library keep the memory that an update gives back, instead of asking the system for it each time.

    On Linux with glibc; elsewhere nothing. An update's temporaries are tens of megabytes, and fetching them anew page
    by page costs 10-15% of it. Not for replays that keep frames on the heap (LOG.md, "A heap that grew").
    """
    if not sys.platform.startswith("linux"):
        return
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_MMAP_THRESHOLD, 32 * 2**20)
        mallopt(M_TRIM_THRESHOLD, 2**30)
        mallopt(M_TOP_PAD, 64 * 2**20)


def _cpu_flags() -> set[str]:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("flags"):
                return set(line.split())
    return set()
