"""Losses and targets: pure functions, one equation each.

Names carry time: `q_tm1` are the values of the observation in which `a_tm1` was taken; `r_t`,
`discount_t` and `q_t` belong to what followed.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional


def q_learning_target(r_t: Tensor, discount_t: Tensor, q_t_value: Tensor, q_t_selector: Tensor) -> Tensor:
    """Return r_t + discount_t * q_t_value[argmax_a q_t_selector], shape (B,).

    Plain DQN (Mnih et al. 2015, eq. 1 of Methods) passes the target network's values twice; Double
    Q-learning (van Hasselt et al. 2015, eq. 4) passes the online network's values as `q_t_selector`.

    Args:
        r_t: (B,) float32 rewards. discount_t: (B,) float32, 0 where the episode terminated.
        q_t_value, q_t_selector: (B, A) float32.

    Raises:
        ValueError: if a shape is not as above (a silent broadcast would hide here).
    """
    batch_size = r_t.shape[0]
    if r_t.shape != (batch_size,) or discount_t.shape != (batch_size,):
        raise ValueError(f"r_t and discount_t must be (B,), not {tuple(r_t.shape)} and {tuple(discount_t.shape)}")
    if q_t_value.dim() != 2 or q_t_value.shape[0] != batch_size or q_t_selector.shape != q_t_value.shape:
        raise ValueError(
            f"q_t_value and q_t_selector must be (B, A), not {tuple(q_t_value.shape)} and {tuple(q_t_selector.shape)}"
        )
    best = q_t_selector.argmax(dim=1, keepdim=True)  # (B, 1)
    return r_t + discount_t * q_t_value.gather(1, best).squeeze(1)


def taken_values(q_tm1: Tensor, a_tm1: Tensor) -> Tensor:
    """Return q_tm1[b, a_tm1[b]], shape (B,), from (B, A) values and (B,) int64 actions."""
    if q_tm1.dim() != 2 or a_tm1.shape != q_tm1.shape[:1]:
        raise ValueError(f"q_tm1 must be (B, A) and a_tm1 (B,), not {tuple(q_tm1.shape)} and {tuple(a_tm1.shape)}")
    return q_tm1.gather(1, a_tm1.unsqueeze(1)).squeeze(1)


def mean_squared_td_error(qa_tm1: Tensor, target_tm1: Tensor) -> Tensor:
    """Return the mean over the batch of (target - Q(s, a))^2, a scalar; the target carries no gradient.

    Deviates: Nature DQN clips the error term to [-1, 1]; the 2017 post uses the plain square.
    """
    if qa_tm1.shape != target_tm1.shape or qa_tm1.dim() != 1:
        raise ValueError(f"both must be (B,), not {tuple(qa_tm1.shape)} and {tuple(target_tm1.shape)}")
    return functional.mse_loss(qa_tm1, target_tm1.detach())
