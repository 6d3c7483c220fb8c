"""Stored lambda-returns: what keeps them up to date, whatever replay they are in."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from fastdqn.replay.prioritized import DeviceReplay, PrioritizedReplay
from fastdqn.replay.returns import ReturnReplay, one_by_one


class StoredReturns:
    """The lambda-returns that a replay holds, drawn from by priority or not; nothing for a replay without them.

    Args:
        replay: that is learnt from.
    """

    def __init__(self, replay: DeviceReplay) -> None:
        self._replay = replay
        frames = replay.frames if isinstance(replay, PrioritizedReplay) else replay
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
        self, evaluate: Callable[[Tensor], Tensor], do_all: Callable[[Sequence[Callable[[], None]]], None] = one_by_one
    ) -> None:
        """Compute stored returns anew, if that is due, by the values (B, A) that `evaluate` gives for (B, C, H, W);
        `do_all` does pieces of that work, in threads or one by one.
        """
        if self._returns is None or not self._returns.stale:
            return
        self._returns.refresh(evaluate, do_all)
        if isinstance(self._replay, PrioritizedReplay):
            self._replay.renew()
