"""From steps of many games to observations and transitions for a list replay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastdqn.envs.frames import FrameStore
from fastdqn.replay.nstep import NStep
from fastdqn.states import copied
from fastdqn.types import Frame, LazyFrames, Observation, Transition, VectorStep


class GameStacks:
    """Turns the steps of N games into stacks to act on and transitions for a list replay; each frame is kept once."""

    def __init__(self, num_envs: int, frame_shape: tuple[int, int], stack: int, n_step: int, gamma: float) -> None:
        height, width = frame_shape
        self._store = FrameStore((1, height, width))
        self._blank: Frame = np.zeros((1, height, width), np.uint8)  # stands before a game's first frame
        self._stack = stack
        self._windows = [NStep(n_step, gamma) for _ in range(num_envs)]
        self._obs: list[Observation] = []

    def reset(self, frames: NDArray[Any]) -> None:
        """Begin with the games' first frames, (N, H, W) uint8."""
        self._obs = [self._first(frame) for frame in frames]

    def obs(self) -> NDArray[Any]:
        """Return the newest observations, (N, C, H, W) uint8."""
        return np.stack([np.asarray(obs) for obs in self._obs])

    def add(self, actions: NDArray[Any], step: VectorStep) -> list[Transition]:
        """Take one step of the games; return the transitions that it completes."""
        transitions: list[Transition] = []
        for i, frame in enumerate(step.frames):
            if step.reset[i]:
                self._obs[i] = self._first(frame)
                continue
            obs = self._obs[i]
            self._obs[i] = after = self._next(obs, frame)
            action: Any = int(actions[i]) if actions.ndim == 1 else actions[i].copy()
            transitions += self._windows[i].add(
                obs, action, float(step.reward[i]), after, bool(step.terminated[i]), bool(step.truncated[i])
            )
        return transitions

    def state(self) -> dict[str, Any]:
        """Return the newest observations and the open windows, each frame as often as it is shown."""
        return {
            "obs": torch.from_numpy(self.obs()),
            "windows": [
                [(copied(np.asarray(obs)), _told(action), reward) for obs, action, reward in window.window()]
                for window in self._windows
            ],
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from there."""
        self._obs = [self.kept(obs) for obs in state["obs"].numpy()]
        for window, said in zip(self._windows, state["windows"], strict=True):
            window.reopen((self.kept(obs.numpy()), _heard(action), reward) for obs, action, reward in said)

    def discard(self, envs: NDArray[np.bool_] | None) -> None:
        """Drop the open windows of these games, (N,), which will not continue; of all with None."""
        for i in range(len(self._windows)) if envs is None else np.flatnonzero(envs).tolist():
            self._windows[i].reopen(())

    def kept(self, obs: NDArray[Any]) -> Observation:
        """Return a copy of an observation, (C, H, W)."""
        return LazyFrames(tuple(self._kept(frame) for frame in obs))

    def _next(self, obs: Any, frame: NDArray[Any]) -> Observation:
        return LazyFrames((*obs.frames[1:], self._kept(frame)))

    def _first(self, frame: NDArray[Any]) -> Observation:
        return LazyFrames((*[self._blank] * (self._stack - 1), self._kept(frame)))

    def _kept(self, frame: NDArray[Any]) -> Frame:
        kept = self._store.new()
        kept[0] = frame
        return kept


class GameVectors(GameStacks):
    """The same for N games that show vectors, each of which is an observation by itself."""

    def __init__(self, num_envs: int, n_step: int, gamma: float) -> None:
        super().__init__(num_envs, (0, 0), 1, n_step, gamma)

    def kept(self, obs: NDArray[Any]) -> Observation:
        """Return a copy of an observation, (D,)."""
        vector: Any = np.array(obs)
        return vector

    def _next(self, obs: Any, frame: NDArray[Any]) -> Observation:  # noqa: ARG002 - nothing is left of the one before
        return self.kept(frame)

    def _first(self, frame: NDArray[Any]) -> Observation:
        return self.kept(frame)


def _told(action: Any) -> Any:
    """Return an action as a checkpoint holds it: a number, or a continuous one, (A,), as a tensor."""
    return action if isinstance(action, int) else copied(action)


def _heard(said: Any) -> Any:
    return said.numpy() if isinstance(said, torch.Tensor) else said
