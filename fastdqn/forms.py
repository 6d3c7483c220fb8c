"""Which form of an update is the fastest on a device."""

from __future__ import annotations

import torch

from fastdqn.algorithms.descent import fused_adam_on
from fastdqn.algorithms.form import Form
from fastdqn.errors import UserError
from fastdqn.execution.devices import has_bf16
from fastdqn.execution.graphs import graphs_on


def fastest_form(precision: str, device: torch.device) -> Form:
    """Return the form in which an update is fastest on `device`, in the precision that is asked for: "auto", "fp32" or
    "bf16".

    On mps channels are not last: PyTorch has silently computed wrong values there of weights that are laid out
    otherwise than in rows (its issues 118115 and 192212).

    Raises:
        UserError: bf16 is asked for on mps.
    """
    if device.type == "mps":
        if precision == "bf16":
            raise UserError("--precision bf16 is not for --device mps, which computes in float32; leave it out.")
        return Form(fused=fused_adam_on(device))
    bf16 = precision == "bf16" or (precision == "auto" and has_bf16(device))
    return Form(channels_last=True, fused=True, bf16=bf16, capturable=graphs_on(device))
