"""Environments played one after the other: for environments of one's own, and as a plain reference for many at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdqn.envs.build import PlayEnv, check_alike, is_numbered, spaces_of
from fastdqn.envs.rerun import Rerun
from fastdqn.envs.vector import distinct_seeds
from fastdqn.states import NothingUnfinished, copied
from fastdqn.types import EpisodeEnd, Frame, VectorStep


class SerialVector(NothingUnfinished):
    """N environments, one played after the other: for environments of one's own, and a plain reference.

    Args:
        envs: environments as `build_env` returns them.
        seed: every environment gets a seed of its own that is drawn from this one.
    """

    def __init__(self, envs: list[PlayEnv], seed: np.random.SeedSequence) -> None:
        check_alike(envs)
        self.num_envs = len(envs)
        self.threads = 0
        self.obs_shape, self.num_actions = spaces_of(envs[0])
        self.numbered = is_numbered(envs[0])
        pictures = len(self.obs_shape) == 3
        self.seeds = distinct_seeds(seed, self.num_envs)
        self.envs = [Rerun(env, int(s)) for env, s in zip(envs, self.seeds, strict=True)]
        shape = self.obs_shape[1:] if pictures else self.obs_shape
        self.newest: NDArray[Any] = np.zeros((self.num_envs, *shape), np.uint8 if pictures else np.float32)
        self._over: NDArray[np.bool_] = np.zeros(self.num_envs, bool)
        self._actions: NDArray[Any] = np.zeros(self.num_envs, np.int64)

    def reset(self) -> NDArray[Any]:
        self._over[:] = False
        self.envs = [Rerun(one.env, int(s)) for one, s in zip(self.envs, self.seeds, strict=True)]
        self.newest = np.stack([_newest(env.reset()) for env in self.envs])
        return self.newest

    def send(self, actions: NDArray[Any]) -> None:
        self._actions = actions

    def recv(self) -> VectorStep:
        count = self.num_envs
        actions: Any = self._actions.tolist() if self.numbered else self._actions
        reset = self._over
        reward = np.zeros(count, np.float32)
        terminated, truncated = np.zeros(count, bool), np.zeros(count, bool)
        frames: list[NDArray[Any]] = []
        episodes: tuple[EpisodeEnd, ...] = ()
        for i, env in enumerate(self.envs):
            if reset[i]:
                obs = env.reset()
            else:
                obs, reward[i], terminated[i], truncated[i] = env.step(actions[i])
            frames.append(_newest(obs))
            episodes += tuple(end._replace(place=i) for end in env.pop_finished())
        self._over = terminated | truncated
        self.newest = np.stack(frames)
        return VectorStep(self.newest, reward, terminated, truncated & ~terminated, reset, episodes)

    def state(self) -> dict[str, Any]:
        return {"games": [env.state() for env in self.envs], "over": copied(self._over)}

    def load(self, state: Mapping[str, Any]) -> NDArray[np.bool_]:
        frames: list[NDArray[Any]] = []
        for env, said in zip(self.envs, state["games"], strict=True):
            shown = [_newest(obs) for _, obs, _ in env.play_again(said)]
            frames.append(shown[-1])
        self.newest = np.stack(frames)
        anew = np.array([not env.repeated for env in self.envs])
        self._over = state["over"].numpy() | anew
        return anew


def _newest(obs: Any) -> NDArray[Any]:
    """Return the newest frame (H, W) of a stack, or a vector (D,) as it is."""
    frames: tuple[Frame, ...] | None = getattr(obs, "frames", None)
    if frames is not None:
        return frames[-1][0]
    array = np.asarray(obs)
    return array if array.ndim == 1 else array[-1]
