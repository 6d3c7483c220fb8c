"""Groups of games that take turns: while actions are chosen for one group, the emulators play the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdqn.envs.vector import VectorEnv
from fastdqn.states import copied
from fastdqn.types import Came, EpisodeEnd, Frame, VectorStep


class Turns:
    """N games in groups of equal kind, each of which plays on as soon as it has its actions.

    Each group in turn is received and sent its next actions. All games have made the same number of steps once the last
    of them has been received. `send` and `recv` are for all groups together.

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
        self._sent: list[NDArray[np.int64] | None] = [None for _ in groups]
        self._early: list[VectorStep | None] = [None for _ in groups]  # received, because a checkpoint was due
        self._shown: list[NDArray[Any]] = [group.newest for group in groups]  # frames for which those were chosen

    def reset(self) -> Frame:
        """Start all games; return their first frames, (N, H, W) uint8."""
        self.forget_sent()
        return np.concatenate([group.reset() for group in self.groups])

    def forget_sent(self) -> None:
        """Take note that no actions are under way."""
        self._sent, self._early = [None for _ in self.groups], [None for _ in self.groups]

    def newest_of(self, number: int) -> Frame:
        """Return the newest frames of group `number`, those that somebody has received."""
        return self.groups[number].newest if self._sent[number] is None else self._shown[number]

    @property
    def newest(self) -> NDArray[Any]:
        """The newest frames of all games, (N, H, W) uint8, as `newest_of` has them."""
        return np.concatenate([self.newest_of(number) for number in range(len(self.groups))])

    def send(self, actions: NDArray[np.int64]) -> None:
        """Let every game play its action, (N,)."""
        for number, part in enumerate(self.parts):
            self.send_to(number, actions[part])

    def recv(self) -> VectorStep:
        """Return what came of the actions sent."""
        return together([self.recv_from(number) for number in range(len(self.groups))]).step

    def send_to(self, number: int, actions: NDArray[np.int64]) -> None:
        """Let every game of group `number` play its action."""
        self._shown[number] = self.groups[number].newest
        self.groups[number].send(actions)
        self._sent[number] = actions

    def sent(self, number: int) -> bool:
        """Whether there is something to receive from group `number`."""
        return self._sent[number] is not None

    def recv_from(self, number: int) -> Came:
        """Return what came of the actions sent to group `number`."""
        actions, early = self._sent[number], self._early[number]
        assert actions is not None
        self._sent[number] = self._early[number] = None
        return Came(actions, early or self.groups[number].recv())

    def state(self) -> dict[str, Any]:
        """Return the running games, and what has come of all actions sent, for which this waits."""
        for number, group in enumerate(self.groups):
            if self._sent[number] is not None and self._early[number] is None:
                self._early[number] = group.recv()
        return {
            "groups": [group.state() for group in self.groups],
            "sent": [[] if actions is None else [copied(actions)] for actions in self._sent],
            "early": [[] if step is None else [_saved(step)] for step in self._early],
            "handed": [copied(self.newest_of(number)) for number in range(len(self.groups))],
        }

    def load(self, state: Mapping[str, Any]) -> NDArray[np.bool_]:
        """Play the running games again, and continue from there; return which, (N,), begin anew."""
        anew = self.load_groups(state["groups"])
        self._sent = [said[0].numpy() if said else None for said in state["sent"]]
        self._early = [
            _without(_loaded(said[0]), lost, group.newest) if said else None
            for said, lost, group in zip(state["early"], anew, self.groups, strict=True)
        ]
        self._shown = [frames.numpy() for frames in state["handed"]]
        return np.concatenate(anew)

    def load_groups(self, states: Sequence[Mapping[str, Any]]) -> list[NDArray[np.bool_]]:
        """Play the running games of each group again; return which of them begin anew."""
        return [group.load(said) for group, said in zip(self.groups, states, strict=True)]

    def discard(self, envs: NDArray[np.bool_] | None) -> None:
        """Drop what is unfinished of these games, (N,)."""
        for group, part in zip(self.groups, self.parts, strict=True):
            group.discard(None if envs is None else envs[part])


def together(came: Sequence[Came]) -> Came:
    """Return what came of the actions of all groups, in their order, as of one."""
    if len(came) == 1:
        return came[0]
    steps = [one.step for one in came]
    episodes: list[EpisodeEnd] = []
    first = 0
    for step in steps:
        episodes += [end._replace(place=first + end.place) for end in step.episodes]
        first += len(step.reset)
    whole = VectorStep(
        np.concatenate([step.frames for step in steps]),
        np.concatenate([step.reward for step in steps]),
        np.concatenate([step.terminated for step in steps]),
        np.concatenate([step.truncated for step in steps]),
        np.concatenate([step.reset for step in steps]),
        tuple(episodes),
    )
    return Came(np.concatenate([one.actions for one in came]), whole)


def _saved(step: VectorStep) -> dict[str, Any]:
    """Return a step as a checkpoint holds it."""
    arrays = {name: copied(value) for name, value in step._asdict().items() if name != "episodes"}
    return {**arrays, "episodes": [list(end) for end in step.episodes]}


def _loaded(said: Mapping[str, Any]) -> VectorStep:
    arrays = {name: value.numpy().copy() for name, value in said.items() if name != "episodes"}
    return VectorStep(**arrays, episodes=tuple(EpisodeEnd(*values) for values in said["episodes"]))


def _without(step: VectorStep, lost: NDArray[np.bool_], newest: Frame) -> VectorStep:
    """Return `step` as if the games `lost`, (N,), had been reset by it, to these first frames."""
    frames = np.where(lost[:, None, None], newest, step.frames)
    reward = np.where(lost, np.float32(0.0), step.reward)
    episodes = tuple(end for end in step.episodes if not lost[end.place])
    return VectorStep(frames, reward, step.terminated & ~lost, step.truncated & ~lost, step.reset | lost, episodes)
