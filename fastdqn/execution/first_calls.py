"""The first work on a GPU: PyTorch loads libraries for it, which takes longer than all that follows in a second."""

from __future__ import annotations

import threading
from collections.abc import Callable

import torch
from torch.nn import functional

from fastdqn.execution.devices import has_bf16


def first_calls(device: torch.device) -> Callable[[], None]:
    """Let a GPU do a convolution and a product, and compute their gradients, in a thread of its own; return a function
    that waits until it has. On a CPU there is nothing to load.

    To be called before what holds Python's lock for long, as making Atari's games does: the thread does not need the
    lock any more while it is in its first convolution, and this returns once it is about to begin that.
    """
    if device.type != "cuda":
        return lambda: None
    begins = threading.Event()
    kind = torch.bfloat16 if has_bf16(device) else torch.float32

    def work() -> None:
        try:
            frames = torch.zeros(16, 4, 36, 36, dtype=kind, device=device).contiguous(memory_format=torch.channels_last)
            kernels = torch.zeros(32, 4, 8, 8, dtype=kind, device=device, requires_grad=True)
            begins.set()
            seen = torch.conv2d(frames, kernels, stride=4).flatten(1)
            functional.linear(seen, torch.zeros(8, seen.shape[1], dtype=kind, device=device)).sum().backward()
        except RuntimeError:  # a device that is full, say: the run will meet it, too, and say so
            return
        finally:
            begins.set()

    thread = threading.Thread(target=work, name="first calls", daemon=True)
    thread.start()
    begins.wait()
    return thread.join
