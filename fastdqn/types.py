"""The nouns that pass between the parts, and the legend of shapes.

Shapes are written with these letters everywhere:

    B  batch          T  time           N  environments
    A  actions, or the numbers of a continuous one
    Z  atoms          C H W  channels (stacked frames), height, width
    D  numbers of a vector that is observed instead of frames

Counters are `frames` (emulator ticks), `env_steps` (decisions of the agent, `frame_skip` frames each) and
`updates` (optimiser steps).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

Frame = NDArray[np.uint8]


class Observation(Protocol):
    """What an agent observes: anything that numpy turns into a uint8 array (C, H, W), or into a float32 vector (D,)."""

    def __array__(self, dtype: object = None, copy: bool | None = None) -> NDArray[Any]: ...


class LazyFrames:
    """A stack of frames that is only put together when an array is asked for.

    Consecutive observations share their frames, so a replay that keeps observations stores each frame once.
    """

    __slots__ = ("frames",)

    def __init__(self, frames: tuple[Frame, ...]) -> None:
        self.frames = frames  # each (1, H, W) uint8, the oldest first

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[np.uint8]:
        stacked = np.concatenate(self.frames, axis=0)
        return stacked if dtype is None else stacked.astype(dtype, copy=False)


class Transition(NamedTuple):
    """One transition as replay stores it; `done` and gamma are folded into `discount`.

    `discount` is gamma^k for a window of k env steps (k = 1 unless n-step is on), and 0 when the game or
    learning episode terminated within it. A truncated episode keeps its gamma^k: truncation is not
    termination, the target bootstraps from `next_obs`, the true last observation.
    """

    obs: Observation  # (C, H, W) uint8, or (D,) float32
    action: Any  # int, or where actions are continuous (A,) float32 from -1 to 1
    reward: float  # sum of gamma^i * r_i over the window
    discount: float
    next_obs: Observation  # as obs


class Batch(NamedTuple):
    """B transitions as tensors on one device."""

    obs: torch.Tensor  # (B, C, H, W) uint8, or (B, D) float32
    action: torch.Tensor  # (B,) int64, or where actions are continuous (B, A) float32 from -1 to 1
    reward: torch.Tensor  # (B,) float32
    discount: torch.Tensor  # (B,) float32
    next_obs: torch.Tensor  # as obs
    weight: torch.Tensor | None = None  # (B,) float32, importance weights of which the largest is 1; None for ones
    slot: torch.Tensor | None = None  # (B,) int64, where each is kept, so that its priority can be written back


class EpisodeEnd(NamedTuple):
    """A finished game: its raw, unclipped score over all its lives, and its length."""

    score: float
    frames: int  # of the emulator, or steps of another environment
    truncated: bool  # cut off, by the frame limit or by the environment itself
    place: int = 0  # of the games played at once, the one that finished
    row: int = 0  # of the steps that are handed over at once, the one in which it finished


class PlayedStep(NamedTuple):
    """What one env step of a player yields."""

    transitions: tuple[Transition, ...]  # one; with n-step none at a start, several at an end
    episodes: tuple[EpisodeEnd, ...]  # games that finished in this env step


class VectorStep(NamedTuple):
    """What one step of N games yields; a row is one game.

    A row whose `reset` is set is no transition: the action was ignored, and the frame is the first of a new game.
    """

    frames: NDArray[Any]  # (N, H, W) uint8, the newest frame of each game; of those that show vectors (N, D) float32
    reward: NDArray[np.float32]  # (N,), clipped to its sign if the protocol says so
    terminated: NDArray[np.bool_]  # (N,), end of a learning episode: game over, or a lost life
    truncated: NDArray[np.bool_]  # (N,), cut off, by the frame limit or by the environment: the last observation counts
    reset: NDArray[np.bool_]  # (N,)
    episodes: tuple[EpisodeEnd, ...]  # games that have finished


class Came(NamedTuple):
    """What came of the actions of N games."""

    actions: NDArray[np.int64]  # (N,)
    step: VectorStep


class Samples(NamedTuple):
    """B samples of a policy gradient, as tensors on one device."""

    obs: torch.Tensor  # (B, C, H, W) uint8, or (B, D) float32
    action: torch.Tensor  # (B,) int64
    target: torch.Tensor  # (B,) float32, the return, which the value is to predict


class Piece(NamedTuple):
    """Samples of a player, and what it played since the piece before, as they cross processes."""

    obs: NDArray[Any]  # (B, C, H, W) uint8, or (B, D) float32
    action: NDArray[np.int64]  # (B,)
    target: NDArray[np.float32]  # (B,), the return, bootstrapped already
    env_steps: int
    episodes: tuple[EpisodeEnd, ...]  # games that have finished


class SentGradient(NamedTuple):
    """What a player says of a gradient that it has computed, as it crosses processes."""

    scalars: Mapping[str, float]  # the metrics of its samples
    env_steps: int  # played since the gradient before
    episodes: tuple[EpisodeEnd, ...]  # games that have finished


class SessionPiece(NamedTuple):
    """What a session has played and learnt since the piece before, as it crosses processes."""

    scalars: Mapping[str, float]  # the metrics of the newest update, empty before the first
    env_steps: int
    total_env_steps: int  # of this session so far
    updates: int
    total_updates: int  # of this session so far
    episodes: tuple[EpisodeEnd, ...]  # games that have finished
    done: bool  # whether it has made its share of env steps


class Metrics(NamedTuple):
    """What one update reports. The tensors stay on the device until somebody reads them."""

    scalars: Mapping[str, torch.Tensor]  # () each; one whose name begins with "loss" must stay finite
    priority: torch.Tensor  # (B,) float32 >= 0, how surprising each transition was


class Made(NamedTuple):
    """An update that a trainer has made."""

    scalars: Mapping[str, torch.Tensor]  # its metrics, () each
    samples: int


class Histogram(NamedTuple):
    """A distribution over bars, each of which ends in the middle between two centers."""

    centers: list[float]
    mass: list[float]  # of each bar


Pieces = Sequence[Callable[[], None]]
"""Pieces of work that need nothing of each other."""
Start = Callable[[Pieces], Callable[[], None]]
"""Starts to do pieces of work, at once or elsewhere; returns what helps with those that are left, and then waits for
all."""
