"""Several players, each in a process of its own: what the trainer asks of them, and what they send.

Every player has a queue of its own, to which it alone writes: one that is killed in the middle of a message takes
nobody else's with it. What is asked goes the other way through a pipe: turns to play, a checkpoint's state, to leave.
"""

from __future__ import annotations

import contextlib
import math
import multiprocessing.connection
import pickle
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fastdqn import process
from fastdqn.errors import RunError, UserError
from fastdqn.execution.child import Outbox, Request
from fastdqn.execution.player import PlayerWeights
from fastdqn.execution.processes import POLL_SECONDS, ChildProcess, end_all
from fastdqn.states import NothingUnfinished

PATIENCE = 3.0
"""Seconds for which players that are waited for may finish their turns after Ctrl-C, so that the run can be resumed
exactly."""
READY = "ready"


class Plays(Protocol):
    """Who plays, in a player process."""

    def piece(self) -> Any:
        """Play for one turn; return the message to send."""
        ...

    def state(self) -> dict[str, Any]:
        """Return all that `load` needs."""
        ...

    def load(self, state: Mapping[str, Any]) -> NDArray[np.bool_]:
        """Continue from there; return which of its games begin anew."""
        ...

    def discard(self, envs: NDArray[np.bool_] | None) -> None:
        """Drop what is unfinished of these games."""
        ...


class CrewPlan(NamedTuple):
    """What the player processes are to do; all of it can be sent to a process."""

    build: Callable[..., Plays]  # from a network, the player's number, and the env steps played before; see `Hands`
    players: int
    num_envs: int  # games of each player
    synchronous: bool  # players wait for their turns, of which an update gives each the same number
    timeout: float  # seconds without a message after which a player counts as hung


class Leaving(Exception):  # noqa: N818 - it is no error
    """The trainer has asked this player to leave."""


class Desk:
    """A player's side: where the trainer's requests are read.

    Args:
        outbox: of this process.
        free: things that the player may take without asking, see `take`.
    """

    def __init__(self, outbox: Outbox, free: int) -> None:
        self._outbox = outbox
        self._turns: float = 0
        self._free = free

    def wait_for_turn(self, player: Plays) -> None:
        """Do what is asked until it is this player's turn.

        Raises:
            Leaving: the trainer asks for that.
        """
        while True:
            request = self._outbox.request(wait=self._turns <= 0)
            if request is None:
                break
            self._answer(request, player)
        self._turns -= 1

    def take(self) -> None:
        """Take one of the free things; wait until there is one.

        Raises:
            Leaving: the trainer asks for that.
        """
        while self._free == 0:
            request = self._outbox.request(wait=True)
            if request is not None:
                self._answer(request, None)
        self._free -= 1

    def _answer(self, request: Request, player: Plays | None) -> None:
        if request.kind == "stop":
            raise Leaving
        if request.kind == "turns":
            self._turns += request.value
        elif request.kind == "free":
            self._free += request.value
        elif request.kind == "state" and player is not None:
            self._outbox.put(pickle.dumps(player.state()))
        elif request.kind == "load" and player is not None:
            anew = player.load(pickle.loads(request.value))
            if anew.any():
                player.discard(anew)
            self._outbox.put(anew)


class Hands(Protocol):
    """What a player process has besides its network; its desk is set there."""

    desk: Desk | None


class Crew(NothingUnfinished):
    """Player processes, as a context manager: started on entry, stopped and joined on exit.

    They play once the first message is taken: by then the weights are those to play with. A checkpoint has the states
    of players that wait for their turns; others begin new games when the run is resumed.

    Args:
        plan: what they do.
        weights: that they act with.
        begun: env steps that others have played before.
        capacity: messages of each player that may wait.
        hands: for each player, what `plan.build` gets besides, if anything.
    """

    called = "player"
    """What each of them is called where it fails, and in the option that says how long one may be silent."""

    def __init__(
        self, plan: CrewPlan, weights: PlayerWeights, begun: int, capacity: int, hands: list[Hands] | None = None
    ) -> None:
        self.plan = plan
        others = 0 if plan.synchronous else begun
        self._children = [
            ChildProcess(
                _play,
                (plan.build, weights.networks[i], i, others, capacity, None if hands is None else hands[i]),
                self.called if plan.players == 1 else f"{self.called} {i + 1}",
                capacity,
                plan.timeout,
                f"--{self.called}-timeout",
            )
            for i in range(plan.players)
        ]
        self._heard = [0.0] * plan.players
        self._resting: set[int] = set()  # players of whom nothing is expected any more; they may still die
        self._ready = self._playing = self._broken = False
        self._last = 0  # the player whose message was taken last
        self._state: dict[str, Any] | None = None  # once the players are gone

    @property
    def at_once(self) -> int:
        """Games that are played at once by all players."""
        return self.plan.players * self.plan.num_envs

    def __enter__(self) -> Any:
        with contextlib.ExitStack() as stack:
            for child in self._children:
                stack.enter_context(child)
            stack.pop_all()  # they are ended together
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            with contextlib.suppress(RunError, UserError):
                if error is None:
                    self._state = self.state()
        finally:  # whatever it raises: children that are left would keep this process for ever
            self._state = self._state or self._nothing()
            end_all(self._children)

    def messages(self, count: int) -> list[tuple[int, Any]]:
        """Return the next `count` messages, each with the number of its player; fewer only if a signal asks this
        process to stop.

        Players that wait for their turns are asked in their order, one message each, again and again.

        Raises:
            RunError: a player died, failed (its traceback is part of the message) or has hung.
        """
        found: list[tuple[int, Any]] = []
        if not self._begin(count):
            return found
        while len(found) < count:
            place = len(found) % self.plan.players
            if self.plan.synchronous:
                said = (place, self._children[place].receive(PATIENCE))
                self._broken = self._broken or said[1] is None
            else:
                said = self._any()
            if said is None or said[1] is None:
                break
            found.append(said)
            self._taken(*said)
        return found

    def placed(self, message: Any, player: int) -> Any:
        """Return a player's message with its games at their places among those of all."""
        moved = tuple(end._replace(place=end.place + player * self.plan.num_envs) for end in message.episodes)
        return message._replace(episodes=moved)

    def queued(self) -> int:
        """Return how many messages wait (0 where the system cannot tell)."""
        return sum(child.queued() for child in self._children)

    def state(self) -> dict[str, Any]:
        """Return the states of the players, if they wait for their turns."""
        if self._state is not None:
            return self._state
        if not self.plan.synchronous or self._broken or not self._wait_until_ready():
            return self._nothing()
        said = self._asked([Request("state")] * self.plan.players)
        return self._nothing() if said is None else {"players": [pickle.loads(one) for one in said]}

    def load(self, state: Mapping[str, Any]) -> NDArray[np.bool_]:
        """Let the players continue from there; return which games of all begin anew."""
        states: list[Any] = state["players"]
        if len(states) != self.plan.players:
            return np.ones(self.at_once, bool)
        requests = [Request("load", pickle.dumps(one)) for one in states]
        anew = self._asked(requests, busy=True) if self._wait_until_ready() else None  # games may be played again
        if anew is not None:
            return np.concatenate(anew)
        self._state = {"players": states}  # a signal ends the run before it goes on: nothing is lost
        return np.zeros(self.at_once, bool)

    def ask(self, player: int, request: Request) -> None:
        """Ask something of one player."""
        self._children[player].ask(request)

    def _taken(self, player: int, message: Any) -> None:
        """Do what follows when a message has been taken."""

    def _nothing(self) -> dict[str, Any]:
        return {"players": []}

    def _begin(self, count: int) -> bool:
        """Give turns to play; tell whether there are players who can."""
        if not self._wait_until_ready():
            return False
        if self.plan.synchronous or not self._playing:
            turns = count // self.plan.players if self.plan.synchronous else math.inf
            if self.plan.synchronous and torch.cuda.is_initialized():
                torch.cuda.synchronize()  # weights may be the players', too, and a stream orders one process's work
            for player in range(self.plan.players):
                self.ask(player, Request("turns", turns))
            self._heard = [time.monotonic()] * self.plan.players
            self._playing = True
        return True

    def _any(self) -> tuple[int, Any] | None:
        """Return the next message of any player, of each in turn; None once a signal asks this process to stop."""
        count = self.plan.players
        while True:
            for i in range(1, count + 1):
                player = (self._last + i) % count
                resting = player in self._resting
                message = self._children[player].look(time.monotonic() if resting else self._heard[player])
                if message is not None:
                    self._last, self._heard[player] = player, time.monotonic()
                    return player, message
            if process.stop_signal():
                return None
            multiprocessing.connection.wait([child.reader for child in self._children], POLL_SECONDS)

    def _wait_until_ready(self) -> bool:
        """Wait until all players could play; False if a signal asks this process to stop."""
        if not self._ready:
            said = [child.receive() for child in self._children]
            self._ready = all(one == READY for one in said)
        return self._ready

    def _asked(self, requests: list[Request], busy: bool = False) -> list[Any] | None:
        """Return what each player, which waits for its turn, answers to its request, which may take any time if it is
        `busy`; None if one does not in time.
        """
        for player, request in enumerate(requests):
            self.ask(player, request)
        said = [child.receive(PATIENCE, busy) for child in self._children]
        return None if any(one is None for one in said) else said


def _play(
    build: Callable[..., Plays], network: nn.Module, number: int, begun: int, free: int, hands: Any, outbox: Outbox
) -> None:
    """What a player process does."""
    device = next(network.parameters()).device
    if device.type == "cuda":
        torch.cuda.set_device(device)
    desk = Desk(outbox, free)
    if hands is None:
        player = build(network, number, begun)
    else:
        hands.desk = desk
        player = build(network, number, begun, hands)
    outbox.put(READY)
    with contextlib.suppress(Leaving):
        while True:
            desk.wait_for_turn(player)
            outbox.put(player.piece())
