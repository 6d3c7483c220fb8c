"""Devices and threads: where the learner runs, or one sentence about why it cannot run there."""

from __future__ import annotations

import torch

from fastdqn import startup
from fastdqn.config import RunOptions
from fastdqn.errors import UserError


def prepare_device(run: RunOptions) -> torch.device:
    """Return the device that `run` asks for, and set the number of PyTorch's CPU threads.

    Raises:
        UserError: the device's name means nothing, or the device is not there.
    """
    torch.set_num_threads(run.threads or startup.cores())
    name = run.device or ("cuda" if run.cuda else "cpu")
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
