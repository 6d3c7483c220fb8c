"""Stored lambda-returns: what keeps them up to date, whatever replay they are in."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from fastdqn.replay.prioritized import DeviceReplay, PrioritizedReplay, frames_of
from fastdqn.replay.returns import Pieces, ReturnReplay, at_once


class StoredReturns:
    """The lambda-returns that a replay holds, drawn from by priority or not; nothing for a replay without them.

    Args:
        replay: that is learnt from.
    """

    def __init__(self, replay: DeviceReplay) -> None:
        self._replay = replay
        frames = frames_of(replay)
        self._returns = frames if isinstance(frames, ReturnReplay) else None

    @property
    def values(self) -> Tensor | None:
        """Where the largest values of the newest observations are wanted, (N,); None if they are not."""
        return None if self._returns is None else self._returns.values

    def note(self) -> None:
        """Keep `values` as those of the observations stored last; to be called before the step that follows them."""
        if self._returns is not None:
            self._returns.note()

    def refresh(
        self,
        still: Callable[[], Callable[[Tensor], Tensor]],
        start: Callable[[Pieces], Callable[[], None]] = at_once,
    ) -> None:
        """Compute stored returns anew, if that is due; let those of before count, if it is time.

        Args:
            still: returns a function of the values (B, A) of observations (B, C, H, W), by the weights of now.
            start: as of a replay of returns.
        """
        returns = self._returns
        if returns is None:
            return
        renewed = returns.settle()
        if returns.stale:
            renewed = returns.refresh(still(), start) or renewed
        if renewed and isinstance(self._replay, PrioritizedReplay):
            self._replay.renew()
