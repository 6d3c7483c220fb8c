"""Seats: N games that an agent is evaluated in, whatever plays them."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastdqn.envs import games
from fastdqn.envs.build import PlayEnv, Wrappers, build_env, check_alike
from fastdqn.envs.vector import AtariVector, distinct_seeds
from fastdqn.options.game import GameOptions
from fastdqn.replay.newest import NewestStacks
from fastdqn.seeds import game_seed
from fastdqn.types import EpisodeEnd, Frame


class Seats(Protocol):
    """N games that show stacks."""

    def reset(self) -> Tensor:
        """Start all games; return observations (N, C, H, W) uint8, or (N, D) float32."""
        ...

    def step(self, actions: NDArray[Any]) -> tuple[Tensor, list[EpisodeEnd | None], NDArray[np.bool_]]:
        """Play actions (N,), or continuous ones (N, A); return observations, the game that ended in each seat, and
        which seats made an env step.
        """
        ...


class VectorSeats:
    """Games of the emulator's own threads, their stacks put together on `device`, as a run's replay does."""

    def __init__(self, game: GameOptions, side: int, count: int, seed: int, threads: int, device: torch.device) -> None:
        seeds = np.random.SeedSequence(seed)
        self._games = AtariVector(games.rom_of(game.name), game, count, seeds, threads, side)
        self._frames = NewestStacks(count, self._games.obs_shape, device)

    def reset(self) -> Tensor:
        self._frames.reset(self._games.reset())
        return self._frames.stacks()

    def step(self, actions: NDArray[Any]) -> tuple[Tensor, list[EpisodeEnd | None], NDArray[np.bool_]]:
        self._games.send(actions)
        step = self._games.recv()
        self._frames.add(actions, step)
        ended = iter(step.episodes)
        return self._frames.stacks(), [next(ended) if over else None for over in step.reset], ~step.reset


class WrappedSeats:
    """Games behind wrappers, or environments of one's own, one after the other.

    A lost life resets the wrappers as it did in the run (FIRE may have to be pressed); scores are whole games' all the
    same. Whole games of an environment of one's own have a seed each, as in training: without one it may begin each of
    them alike.
    """

    def __init__(
        self,
        game: GameOptions,
        wrappers: Wrappers | None,
        side: int,
        count: int,
        seed: int,
        continuous: bool | None = False,
    ) -> None:
        self._envs: list[PlayEnv] = [build_env(game, wrappers or "opencv", side, continuous) for _ in range(count)]
        check_alike(self._envs)
        self._seeds = distinct_seeds(np.random.SeedSequence(seed), count)
        self._views = [View(wrappers is None) for _ in self._envs]
        self._games = None if games.is_atari(game.name) else [0] * count

    def reset(self) -> Tensor:
        shown: list[Frame] = []
        for env, seed, view in zip(self._envs, self._seeds, self._views, strict=True):
            shown.append(view.first(env.reset(seed=int(seed))[0]))
            env.get_wrapper_attr("pop_finished")()
        return torch.from_numpy(np.stack(shown))

    def step(self, actions: NDArray[Any]) -> tuple[Tensor, list[EpisodeEnd | None], NDArray[np.bool_]]:
        shown: list[Frame] = []
        ends: list[EpisodeEnd | None] = []
        each: Any = actions.tolist() if actions.ndim == 1 else actions
        for seat, (env, action, view) in enumerate(zip(self._envs, each, self._views, strict=True)):
            obs, _, terminated, truncated, _ = env.step(action)
            over = terminated or truncated
            finished = env.get_wrapper_attr("pop_finished")()
            seed = self._seed(seat) if finished else None
            shown.append(view.first(env.reset(seed=seed)[0]) if over else view.next(obs))
            finished += env.get_wrapper_attr("pop_finished")()  # a game may end among the no-ops
            ends.append(finished[0] if finished else None)
        return torch.from_numpy(np.stack(shown)), ends, np.ones(len(self._envs), bool)

    def _seed(self, seat: int) -> int | None:
        """Return the seed of the next whole game in a seat; None to let an emulator go on as it does."""
        if self._games is None:
            return None
        self._games[seat] += 1
        return game_seed(int(self._seeds[seat]), self._games[seat])


class View:
    """What a run showed its agent of the stacks that wrappers make.

    The wrappers fill the stack of a first observation with copies of its frame, a replay of frames with zeros.

    Args:
        blank: whether frames before the first are zeros.
    """

    def __init__(self, blank: bool) -> None:
        self._blank = blank
        self._known = 0

    def first(self, obs: Any) -> Frame:
        """Return the stack (C, H, W) to show of a first observation."""
        self._known = 0
        return self.next(obs)

    def next(self, obs: Any) -> Frame:
        """Return the stack (C, H, W) to show of the next observation; a vector (D,) is shown as it is."""
        stack: Frame = np.array(obs)
        self._known += 1
        if self._blank and stack.ndim == 3:
            stack[: max(0, len(stack) - self._known)] = 0
        return stack
