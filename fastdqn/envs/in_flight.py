"""Games whose actions may be in flight: sent, and what came of them not received yet, when a checkpoint is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdqn.envs.vector import VectorEnv
from fastdqn.states import copied
from fastdqn.types import Came, EpisodeEnd, Frame, VectorStep


class InFlight:
    """N games, in groups of equal kind, that play on while somebody looks at what came of their actions before.

    Args:
        groups: the games.
    """

    def __init__(self, groups: Sequence[VectorEnv]) -> None:
        self.groups = groups
        ends = np.cumsum([group.num_envs for group in groups]).tolist()
        self.parts = [slice(end - group.num_envs, end) for end, group in zip(ends, groups, strict=True)]
        """Where the games of each group are among the N."""
        self.num_envs = ends[-1]
        first = groups[0]
        self.num_actions, self.numbered, self.obs_shape = first.num_actions, first.numbered, first.obs_shape
        self.threads = sum(group.threads for group in groups)
        self._sent: NDArray[np.int64] | None = None
        self._early: VectorStep | None = None  # received, because a checkpoint was due
        self._shown: NDArray[Any] | None = None  # frames for which the actions in flight were chosen

    def reset(self) -> Frame:
        """Start all games; return their first frames, (N, H, W) uint8."""
        self.forget_sent()
        return np.concatenate([group.reset() for group in self.groups])

    def forget_sent(self) -> None:
        """Take note that no actions are in flight."""
        self._sent = self._early = self._shown = None

    @property
    def sent(self) -> bool:
        """Whether there is something to receive."""
        return self._sent is not None

    @property
    def newest(self) -> NDArray[Any]:
        """The newest frames of all games, (N, H, W) uint8, that somebody has received."""
        return self._now() if self._shown is None else self._shown

    def send(self, actions: NDArray[np.int64]) -> None:
        """Let every game play its action, (N,)."""
        self._shown = self._now()
        for group, part in zip(self.groups, self.parts, strict=True):
            group.send(actions[part])
        self._sent = actions.copy()  # the caller's may change

    def came(self) -> Came:
        """Return what came of the actions sent, and these."""
        actions, early = self._sent, self._early
        assert actions is not None
        self.forget_sent()
        return Came(actions, early or self._received())

    def recv(self) -> VectorStep:
        """Return what came of the actions sent."""
        return self.came().step

    def state(self) -> dict[str, Any]:
        """Return the running games, and what has come of the actions sent, for which this waits."""
        if self._sent is not None and self._early is None:
            self._early = self._received()
        return {
            "groups": [group.state() for group in self.groups],
            "sent": [] if self._sent is None else [copied(self._sent)],
            "early": [] if self._early is None else [_saved(self._early)],
            "shown": [] if self._shown is None else [copied(self._shown)],
        }

    def load(self, state: Mapping[str, Any]) -> NDArray[np.bool_]:
        """Play the running games again, and continue from there; return which, (N,), begin anew: all if they were in
        another number of groups.
        """
        if len(state["groups"]) != len(self.groups):
            self.forget_sent()
            return np.concatenate(self.load_groups([{"groups": ()} for _ in self.groups]))
        anew = np.concatenate(self.load_groups(state["groups"]))
        self._sent = state["sent"][0].numpy() if state["sent"] else None
        self._early = _without(_loaded(state["early"][0]), anew, self._now()) if state["early"] else None
        self._shown = state["shown"][0].numpy() if state["shown"] else None
        return anew

    def load_groups(self, states: Sequence[Mapping[str, Any]]) -> list[NDArray[np.bool_]]:
        """Play the running games of each group again; return which of them begin anew."""
        return [group.load(said) for group, said in zip(self.groups, states, strict=True)]

    def discard(self, envs: NDArray[np.bool_] | None) -> None:
        """Drop what is unfinished of these games, (N,)."""
        for group, part in zip(self.groups, self.parts, strict=True):
            group.discard(None if envs is None else envs[part])

    def _now(self) -> NDArray[Any]:
        """Return the newest frames of all games, whether somebody has received them or not."""
        return _joined([group.newest for group in self.groups])

    def _received(self) -> VectorStep:
        return together([group.recv() for group in self.groups])


def together(steps: Sequence[VectorStep]) -> VectorStep:
    """Return a step of all groups, in their order, as of one."""
    if len(steps) == 1:
        return steps[0]
    episodes: list[EpisodeEnd] = []
    first = 0
    for step in steps:
        episodes += [end._replace(place=first + end.place) for end in step.episodes]
        first += len(step.reset)
    return VectorStep(
        np.concatenate([step.frames for step in steps]),
        np.concatenate([step.reward for step in steps]),
        np.concatenate([step.terminated for step in steps]),
        np.concatenate([step.truncated for step in steps]),
        np.concatenate([step.reset for step in steps]),
        tuple(episodes),
    )


def _joined(frames: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return frames[0] if len(frames) == 1 else np.concatenate(frames)


def _saved(step: VectorStep) -> dict[str, Any]:
    """Return a step as a checkpoint holds it."""
    arrays = {name: copied(value) for name, value in step._asdict().items() if name != "episodes"}
    return {**arrays, "episodes": [list(end) for end in step.episodes]}


def _loaded(said: Mapping[str, Any]) -> VectorStep:
    arrays = {name: value.numpy().copy() for name, value in said.items() if name != "episodes"}
    return VectorStep(**arrays, episodes=tuple(EpisodeEnd(*values) for values in said["episodes"]))


def _without(step: VectorStep, lost: NDArray[np.bool_], newest: Frame) -> VectorStep:
    """Return `step` as if the games `lost`, (N,), had been reset by it, to these first frames."""
    frames = np.where(lost.reshape(-1, *[1] * (step.frames.ndim - 1)), newest, step.frames)
    reward = np.where(lost, np.float32(0.0), step.reward)
    episodes = tuple(end for end in step.episodes if not lost[end.place])
    return VectorStep(frames, reward, step.terminated & ~lost, step.truncated & ~lost, step.reset | lost, episodes)
