"""Returns and advantages of a policy: pure functions, one equation each.

Names carry time: `v_tm1` is the value of the observation in which an action was taken; `r_t`, `discount_t` and `v_t`
belong to what followed. `v_t` is the value of the observation that really followed, never that of a next game's first:
truncation bootstraps from it, and termination has `discount_t` 0.
"""

from __future__ import annotations

import torch
from torch import Tensor


def bootstrapped_returns(r_t: Tensor, discount_t: Tensor, v_t: Tensor) -> Tensor:
    """Return r_t + discount_t * v_t, shape (B,), of windows of n env steps (Mnih et al. 2016, section 4, "A3C").

    Args:
        r_t: (B,) float32, the sum of gamma^i * r_i over the window.
        discount_t: (B,) float32, gamma^k for a window of k env steps, 0 where it terminated.
        v_t: (B,) float32, values of the observations after the windows.

    Raises:
        ValueError: if a shape is not as above (a silent broadcast would hide here).
    """
    _check_alike(r_t, discount_t, v_t)
    return r_t + discount_t * v_t


def generalised_advantages(
    r_t: Tensor, discount_t: Tensor, v_tm1: Tensor, v_t: Tensor, continues_t: Tensor, trace_decay: float
) -> Tensor:
    """Return A_t = d_t + discount_t * lambda * A_(t+1), d_t = r_t + discount_t * v_t - v_tm1, shape (T, N).

    Generalised advantage estimation (Schulman et al. 2016, eq. 11 and 16), cut where an episode ends. A row after an
    end, in which a game was only reset, is no transition: what comes out there means nothing, and enters nothing else.

    Args:
        r_t: (T, N) float32. discount_t: (T, N), gamma, 0 where the episode terminated.
        v_tm1, v_t: (T, N), values of the observations before and after each env step.
        continues_t: (T, N), 0 where the episode terminated or was truncated in this env step, else 1.
        trace_decay: lambda.

    Raises:
        ValueError: if a shape is not as above.
    """
    _check_alike(r_t, discount_t, v_tm1, v_t, continues_t)
    errors = r_t + discount_t * v_t - v_tm1
    decay = discount_t * continues_t * trace_decay
    advantages = torch.zeros_like(errors)
    following = torch.zeros_like(errors[0])
    for t in reversed(range(len(errors))):
        following = errors[t] + decay[t] * following
        advantages[t] = following
    return advantages


def _check_alike(*tensors: Tensor) -> None:
    shapes = [tuple(tensor.shape) for tensor in tensors]
    if len(set(shapes)) > 1:
        raise ValueError(f"all must have the same shape, not {shapes}")
