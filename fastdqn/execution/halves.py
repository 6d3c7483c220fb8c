"""Games in two halves, one of which may be played in a process of its own.

An agent that learns acts for all games at once. One that stays as it is needs nobody else: each half of its games
chooses actions by itself, for many rounds, and neither waits for the other between two of them. Two threads of one
process would, at each of Python's operations.
"""

from __future__ import annotations

import atexit
import pickle
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastdqn.envs.in_flight import InFlight, together
from fastdqn.envs.vector import VectorEnv
from fastdqn.errors import RunError
from fastdqn.execution.child import Outbox, Request
from fastdqn.execution.devices import flush_denormals, one_thread
from fastdqn.execution.processes import ChildProcess, sharing
from fastdqn.states import NothingUnfinished
from fastdqn.types import Came, Frame, VectorStep

ROUNDS = 16
"""Steps of all games that halves play by themselves before anybody looks at what came of it."""
PATIENCE = 10.0
"""Seconds for which the other process may finish what it was asked after Ctrl-C, so that the run can be resumed
exactly."""
HUNG = 60.0
"""Seconds without an answer after which it counts as hung."""

Draws = Sequence[tuple[NDArray[np.bool_], NDArray[np.int64]]]
"""For each round, which of N games explore, and with which actions."""
Values = Callable[[Tensor], Tensor]
"""From observations (N, C, H, W) to the values of actions, (N, A)."""


def play_rounds(games: VectorEnv, stacks: NDArray[np.uint8], values: Values, draws: Draws) -> list[Came]:
    """Play a round for each of `draws`, with the actions of largest value unless a game explores.

    Args:
        games: N games.
        stacks: what they show, (N, H, W, C).
        values: of the agent.
        draws: what is drawn by chance for each round.
    """
    planes = [np.ascontiguousarray(stacks[..., channel]) for channel in range(stacks.shape[3])]
    rounds: list[Came] = []
    for explore, drawn in draws:
        stacks = np.empty_like(stacks)
        cv2.merge([plane.reshape(-1, 1) for plane in planes], stacks.reshape(-1, 1, len(planes)))
        with torch.no_grad():
            greedy = values(torch.from_numpy(stacks).permute(0, 3, 1, 2)).argmax(dim=1).numpy()
        actions = np.where(explore, drawn, greedy)
        games.send(actions)
        step = games.recv()
        planes = [*planes[1:], np.ascontiguousarray(step.frames)]
        if step.reset.any():
            planes = [np.where(step.reset[:, None, None], 0, plane) for plane in planes[:-1]] + planes[-1:]
        rounds.append(Came(actions, step))
    return rounds


class HalfElsewhere(NothingUnfinished):
    """N games in a process of their own, which begins at once, and takes its time; `close` ends it.

    Args:
        build: returns the games; it is called in that process.

    Raises:
        RunError: there is no room for what both processes share.
    """

    num_envs: int
    num_actions: int
    numbered: bool
    obs_shape: Any
    threads: int
    newest: NDArray[Any]

    def __init__(self, build: Callable[[], VectorEnv]) -> None:
        with sharing():
            self._child = ChildProcess(_serve, (build,), "games", 1, HUNG)
        self._kept: dict[str, Any] | None = None  # what it was to continue from when a signal came
        self._child.__enter__()
        atexit.register(self.close)  # nobody else ends it if what is built next fails

    def close(self) -> None:
        """Stop the process, and wait for its end."""
        atexit.unregister(self.close)
        self._child.__exit__(None, None, None)

    def be_like(self, games: VectorEnv) -> None:
        """Take note that these are of the same kind, and as many."""
        self.num_envs, self.num_actions, self.numbered = games.num_envs, games.num_actions, games.numbered
        self.obs_shape, self.threads, self.newest = games.obs_shape, games.threads, games.newest

    def reset(self) -> Frame:
        """Start all games; return their first frames, (N, H, W) uint8."""
        return self.resetting()()

    def resetting(self) -> Callable[[], Frame]:
        """Begin what `reset` does; return what waits for it."""
        self._child.ask(Request("reset"))

        def begun() -> Frame:
            self.newest = self._answer()
            return self.newest

        return begun

    def send(self, actions: NDArray[np.int64]) -> None:
        """Let every game play its action, (N,)."""
        self._child.ask(Request("step", actions))

    def recv(self) -> VectorStep:
        """Return what came of the actions sent."""
        step: VectorStep = self._answer()
        self.newest = step.frames
        return step

    def act_by(self, values: Values) -> None:
        """From now on let `values`, which can be pickled, choose the actions of `play`."""
        self._child.ask(Request("act by", pickle.dumps(values)))

    def play(self, stacks: NDArray[np.uint8], draws: Draws) -> Callable[[], list[Came]]:
        """Begin what `play_rounds` does; return what waits for it."""
        self._child.ask(Request("play", (stacks, draws)))

        def played() -> list[Came]:
            rounds: list[Came] = self._answer()
            self.newest = rounds[-1].step.frames
            return rounds

        return played

    def state(self) -> dict[str, Any]:
        """Return the running games."""
        if self._kept is not None:
            return self._kept
        self._child.ask(Request("state"))
        return pickle.loads(self._answer())

    def load(self, state: Mapping[str, Any]) -> NDArray[np.bool_]:
        """Play the running games again, and continue from there; return which, (N,), begin anew."""
        return self.loading(state)()

    def loading(self, state: Mapping[str, Any]) -> Callable[[], NDArray[np.bool_]]:
        """Begin what `load` does; return what waits for it: after a signal for a moment only, as the run then ends
        before it goes on.
        """
        self._child.ask(Request("load", pickle.dumps(state)))

        def loaded() -> NDArray[np.bool_]:
            answer = self._child.receive(PATIENCE, busy=True)
            if answer is None:
                self._kept = dict(state)  # and what it answers later is no answer to anything else
                return np.zeros(self.num_envs, bool)
            anew: NDArray[np.bool_]
            anew, self.newest = answer
            return anew

        return loaded

    def _answer(self) -> Any:
        """Return the next answer.

        Raises:
            RunError: the process died, failed or has hung.
        """
        answer = self._child.receive(PATIENCE)
        if answer is None:
            raise RunError("The games process has not answered in time after a signal to stop.")
        return answer


class Halves(InFlight):
    """Games in two halves, which are sent their actions and received together, or play by themselves; a context
    manager, which ends the process of the second.

    Args:
        here: played in this process.
        other: as many, played here, too, or elsewhere.
    """

    def __init__(self, here: VectorEnv, other: VectorEnv | HalfElsewhere) -> None:
        super().__init__((here, other))
        self._here, self._other = here, other
        self._elsewhere = other if isinstance(other, HalfElsewhere) else None
        self._values: Values | None = None

    def __enter__(self) -> Halves:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._elsewhere:
            self._elsewhere.close()

    def reset(self) -> Frame:
        """Start all games, of both halves at a time; return their first frames, (N, H, W) uint8."""
        self.forget_sent()
        wait = self._elsewhere.resetting() if self._elsewhere else self._other.reset
        return np.concatenate([self._here.reset(), wait()])

    def act_by(self, values: Values) -> None:
        """From now on let `values`, which can be pickled, choose the actions of `play`."""
        self._values = values
        if self._elsewhere:
            self._elsewhere.act_by(values)

    def play(self, stacks: Tensor, draws: Draws) -> list[Came]:
        """Play a round for each of `draws` with the actions of largest value; return what came of them. No actions may
        be in flight. Here PyTorch computes in one thread: each half has a core.

        Args:
            stacks: what all games show, (N, C, H, W) uint8.
            draws: which of N games explore, and how.
        """
        assert self._values is not None
        shown = np.ascontiguousarray(stacks.permute(0, 2, 3, 1).numpy())
        first, second = (
            (shown[part], [(explore[part], drawn[part]) for explore, drawn in draws]) for part in self.parts
        )
        if self._elsewhere:
            wait = self._elsewhere.play(*second)  # begun first: it needs none of this process's time
        else:
            wait = partial(play_rounds, self._other, second[0], self._values, second[1])
        with one_thread():
            played = (play_rounds(self._here, first[0], self._values, first[1]), wait())
        return [
            Came(np.concatenate([one.actions, other.actions]), together([one.step, other.step]))
            for one, other in zip(*played, strict=True)
        ]

    def load_groups(self, states: Sequence[Mapping[str, Any]]) -> list[NDArray[np.bool_]]:
        """Play the running games again, of both halves at a time."""
        first, second = states
        wait = self._elsewhere.loading(second) if self._elsewhere else partial(self._other.load, second)
        return [self._here.load(first), wait()]


def halves_of(build: Callable[[int], VectorEnv], elsewhere: bool) -> Halves:
    """Return two halves, numbers 0 and 1 of what `build` returns, the second in a process of its own or not."""
    if not elsewhere:
        return Halves(build(0), build(1))
    other = HalfElsewhere(partial(build, 1))  # first: its process begins while the rest is built
    here = build(0)
    other.be_like(here)
    return Halves(here, other)


def _serve(build: Callable[[], VectorEnv], outbox: Outbox) -> None:
    """What the other process does."""
    flush_denormals()
    games, values = build(), None
    while True:
        request = outbox.request(wait=True)
        if request is None or request.kind == "stop":
            return
        if request.kind == "reset":
            outbox.put(games.reset())
        elif request.kind == "step":
            games.send(request.value)
            outbox.put(games.recv())
        elif request.kind == "act by":
            values = pickle.loads(request.value)
        elif request.kind == "play" and values is not None:
            stacks, draws = request.value
            outbox.put(play_rounds(games, stacks, values, draws))
        elif request.kind == "state":
            outbox.put(pickle.dumps(games.state()))
        elif request.kind == "load":
            outbox.put((games.load(pickle.loads(request.value)), games.newest))
