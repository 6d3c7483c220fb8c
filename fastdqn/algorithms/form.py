"""How the arithmetic of an update is laid out."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Form:
    """How the arithmetic of an update is laid out; what is computed stays the same, but for rounding."""

    channels_last: bool = False  # convolutions over (N, H, W, C)
    fused: bool = False  # Adam in one kernel
    bf16: bool = False  # the network's body in bfloat16; its last layer, targets, loss and optimiser stay float32
    capturable: bool = False  # the learning rate is read from the device: it may change between replays of a graph

    def describe(self, device: torch.device) -> str:
        """Return one line about the precision of an update on `device`."""
        if self.bf16:
            return "arithmetic: bf16 with a float32 last layer"
        rounded = device.type == "cuda" and torch.backends.cudnn.allow_tf32
        return f"arithmetic: float32{', TF32 in convolutions' if rounded else ''}"


PLAIN = Form()
