"""The processes that sessions are, and what the process that counts hears of them."""

from __future__ import annotations

import math
import pickle
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastdqn.execution.crew import PATIENCE, Crew, CrewPlan
from fastdqn.execution.hogwild import Shared, Synced
from fastdqn.execution.player import PlayerWeights
from fastdqn.execution.processes import Request
from fastdqn.types import EpisodeEnd, SessionPiece

AHEAD = 2
"""Pieces that a session may play before it is heard: one waits while the next is played."""


class Sessions(Crew):
    """Sessions, each in a process of its own: they play and learn by themselves, and say what they have done.

    A session that has made its share of env steps rests. For a checkpoint all sessions come to a stand, so that what
    they share and what each has for itself are of one moment; what they had played until then and nobody has heard yet
    is part of it. Where one does not stand in time, the checkpoint has what has been counted of each: when the run is
    resumed they begin anew, with other random numbers, and count on from there.

    Args:
        plan: what they do.
        weights: that are the run's.
        descents: of each session.
    """

    called = "session"

    def __init__(self, plan: CrewPlan, weights: PlayerWeights, descents: Sequence[Shared | Synced]) -> None:
        super().__init__(plan, weights, 0, AHEAD, list(descents))  # 0: what a session has played, it says itself
        self._asked_for = [0] * plan.players  # pieces that each has yet to send
        self._pending: deque[tuple[int, SessionPiece]] = deque()  # heard while sessions came to a stand
        self._counted = [(0, 0)] * plan.players  # env steps and updates of what `take` has returned of each
        self._standing = True

    def take(self) -> tuple[int, SessionPiece] | None:
        """Return the next piece of any session, and the session's number from 1 on; None if a signal asks this process
        to stop.

        Raises:
            RunError: a session died, failed (its traceback is part of the message) or has hung.
        """
        if self._pending:
            player, piece = self._pending.popleft()
        else:
            found = self.messages(1)
            if not found:
                return None
            player, piece = found[0]
        self._counted[player] = piece.total_env_steps, piece.total_updates
        return player + 1, self.placed(piece, player)

    def state(self) -> dict[str, Any]:
        """Return what has been counted of each session, what it has for itself, and what has not been counted yet."""
        if self._state is not None:
            return self._state
        if self._broken or not self._wait_until_ready() or not self._stand():
            return self._nothing()
        players: list[Any] = []
        for player, child in enumerate(self._children):  # one after the other: replays take memory on their way
            self.ask(player, Request("state"))
            said = child.receive(self.plan.timeout, busy=True)  # it packs a replay first, however long that takes
            if said is None:
                self._broken = True
                return self._nothing()
            players.append(pickle.loads(said))
        pending = [[player, _plain(piece)] for player, piece in self._pending]
        return {**self._nothing(), "players": players, "pending": pending}

    def places(self, session: int) -> range:
        """Return where the games of a session, the first is 1, are among those of all."""
        return range((session - 1) * self.plan.num_envs, session * self.plan.num_envs)

    def load(self, state: Mapping[str, Any]) -> NDArray[np.bool_]:
        """Let the sessions continue from there; return which games of all begin anew."""
        self._counted = [(env_steps, updates) for env_steps, updates in state["counted"]]
        for player, said in state["pending"]:  # one that had its share may have more now, and says so itself
            self._pending.append((int(player), _piece_of(said)._replace(done=False)))
        anew = super().load({"players": state["players"] or [_begun_with(*counted) for counted in self._counted]})
        if self._state is not None:  # a signal ends the run before it goes on
            self._state = dict(state)
        return anew

    def _nothing(self) -> dict[str, Any]:
        return {"players": [], "pending": [], "counted": [list(counted) for counted in self._counted]}

    def _begin(self, count: int) -> bool:  # noqa: ARG002 - pieces are asked for as they come
        if not self._wait_until_ready():
            return False
        if self._standing:
            for player in range(self.plan.players):
                self._ask_for(player, AHEAD)
            self._standing = False
        return True

    def _taken(self, player: int, message: SessionPiece) -> None:
        self._asked_for[player] -= 1
        if message.done:
            self._resting.add(player)
        if not self._standing:
            self._ask_for(player, 1)

    def _ask_for(self, player: int, pieces: int) -> None:
        if player not in self._resting:
            self._heard[player] = time.monotonic()
            self.ask(player, Request("turns", pieces))
            self._asked_for[player] += pieces

    def _stand(self) -> bool:
        """Hear all that sessions have been asked for; False if one does not come to a stand in time."""
        self._standing = True
        for player, child in enumerate(self._children):
            while self._asked_for[player]:
                piece = child.receive(PATIENCE)
                if piece is None:
                    self._broken = True
                    return False
                self._taken(player, piece)
                self._pending.append((player, piece))
        return True


def scalars_of(piece: SessionPiece) -> dict[str, Tensor]:
    """Return the metrics of a piece's newest update, () float32 each."""
    return {name: torch.tensor(value, dtype=torch.float32) for name, value in piece.scalars.items()}


def share_of(total: int | None, session: int, sessions: int) -> float:
    """Return the env steps that a session, the first is 0, is to make where all are to make `total`."""
    return math.inf if total is None else total // sessions + (session < total % sessions)


def _begun_with(env_steps: int, updates: int) -> dict[str, int]:
    """Return the state of a session of which nothing is left but what has been counted."""
    return {"begun": env_steps, "env_steps": env_steps, "updates": updates}


def _plain(piece: SessionPiece) -> dict[str, Any]:
    return {**piece._asdict(), "scalars": dict(piece.scalars), "episodes": [list(end) for end in piece.episodes]}


def _piece_of(said: Mapping[str, Any]) -> SessionPiece:
    fields: dict[str, Any] = {**said, "episodes": tuple(EpisodeEnd(*end) for end in said["episodes"])}
    return SessionPiece(**fields)
