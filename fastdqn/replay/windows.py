"""Windows of env steps: their returns, and how long they may be now."""

from __future__ import annotations

import torch
from torch import Tensor


class Windows:
    """Windows of up to n env steps, each of which ends at its episode's end if that comes first.

    Args:
        n_step: the longest.
        gamma: discount for each env step.
        device: of what they are made of.
    """

    def __init__(self, n_step: int, gamma: float, device: torch.device) -> None:
        self.ahead = torch.arange(n_step, device=device)
        self._n = n_step
        self._gammas = _powers(gamma, n_step).to(device)
        self._most: Tensor | None = None  # () int64, where it is not always n

    def set_horizon(self, n_step: int, gamma: float) -> None:
        """Let windows from now on be of at most `n_step` env steps, no more than the longest, with this gamma; graphed
        ones too, unless the first call comes after they were recorded.

        Raises:
            ValueError: they cannot be so long.
        """
        if not 1 <= n_step <= self._n:
            raise ValueError(f"windows must be of 1 to {self._n} env steps, not {n_step}")
        if self._most is None:
            self._most = torch.zeros((), dtype=torch.int64, device=self._gammas.device)
        self._most.fill_(n_step)
        powers = _powers(gamma, self._n)
        self._gammas.copy_(powers.pin_memory() if self._gammas.is_cuda else powers, non_blocking=True)

    def returns(self, reward: Tensor, terminated: Tensor, ended: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the sums of discounted rewards (B,), the discounts (B,) of what follows, and the lengths (B,) int64 of
        windows.

        Args:
            reward: (B, n) float32. terminated, ended: (B, n) bool; what lies behind an end does not count.
        """
        before = torch.cumsum(ended, dim=1) - ended.to(torch.int64)  # ends before this env step of the window
        inside = before == 0
        if self._most is not None:
            inside &= self.ahead < self._most
        steps = inside.sum(dim=1)  # (B,), k
        total = (reward * self._gammas[:-1] * inside).sum(dim=1)
        return total, self._gammas[steps].masked_fill((terminated & inside).any(dim=1), 0.0), steps


def _powers(gamma: float, n_step: int) -> Tensor:
    """Return 1, gamma, ..., gamma^n, (n + 1,) float32 on the CPU."""
    return torch.tensor([gamma**k for k in range(n_step + 1)], dtype=torch.float32)
