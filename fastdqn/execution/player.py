"""A player in its own process, a trainer in this one, a bounded queue between them.

The player owns the environment, its exploration and the stop test. It sends one message for each env step through a
queue of 2N messages, so it runs at most 2N env steps ahead; the trainer takes exactly N for each update, so the ratio
of updates to env steps does not depend on which of the two is faster.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from types import TracebackType
from typing import Literal, NamedTuple, Protocol

import torch
from torch import nn

from fastdqn.execution.child import Outbox
from fastdqn.execution.processes import ChildProcess, sharing
from fastdqn.execution.wire import FrameDecoder, FrameEncoder, WireStep
from fastdqn.types import PlayedStep


class Plays(Protocol):
    """One environment, and who plays it."""

    def step(self, epsilon: float) -> PlayedStep:
        """Play one env step."""
        ...


class StopTest(Protocol):
    """Says when a run is over."""

    def add(self, score: float) -> int:
        """Count a finished game's raw score; return how many have been counted."""
        ...

    def reason(self, env_steps: int) -> str | None:
        """Return why the run is over after `env_steps`, or None while it is not."""
        ...


class Message(NamedTuple):
    """One env step of the player."""

    played: PlayedStep
    epsilon: float


class _Wire(NamedTuple):
    step: WireStep
    epsilon: float
    reason: str | None  # why the run is over after this env step


PlayerDevice = Literal["same", "cpu", "all"]


def player_devices(
    learns_on: torch.device, player_device: PlayerDevice, players: int, gpus: int | None = None
) -> list[torch.device]:
    """Return where each of several players evaluates the network.

    Args:
        learns_on: the learner's device.
        player_device: "same" is the learner's, "cpu" the CPU, "all" each CUDA device in turn, from the learner's on.
            A learner on the CPU has players there, and so has one on mps, whose memory processes cannot share.
        players: how many.
        gpus: CUDA devices that there are; by default those of this machine.
    """
    if learns_on.type != "cuda" or player_device == "cpu":
        return [torch.device("cpu")] * players
    if player_device == "same":
        return [learns_on] * players
    count, first = gpus or torch.cuda.device_count(), learns_on.index or 0
    return [learns_on if i % count == 0 else torch.device("cuda", (first + i) % count) for i in range(players)]


class PlayerWeights:
    """The weights that players act with.

    On the learner's own device they are the learner's own, in shared memory (CUDA: by CUDA IPC): each update is
    noticed at once and nothing is copied. On any other device they are a copy there, shared by all players of that
    device, that `publish` refreshes.

    Args:
        network: the learner's, on its device.
        player_device: where players evaluate it, as in `player_devices`.
        players: how many there are.

    Raises:
        RunError: this system shares no memory.
    """

    def __init__(self, network: nn.Module, player_device: PlayerDevice, players: int = 1) -> None:
        self._source = network
        here = next(network.parameters()).device
        devices = player_devices(here, player_device, players)
        there = dict.fromkeys(device for device in devices if device != here)
        self._copies = {device: copy.deepcopy(network).to(device) for device in there}
        with sharing():
            self.networks = [self._copies.get(device, network).share_memory() for device in devices]
        """One for each player."""

    @property
    def network(self) -> nn.Module:
        """The first player's."""
        return self.networks[0]

    def publish(self) -> None:
        """Let players have the learner's newest weights; free where they are the same."""
        for there in self._copies.values():
            there.load_state_dict(self._source.state_dict())


class PlayerPlan(NamedTuple):
    """What a player process is to do; all of it can be sent to a process."""

    build: Callable[[nn.Module, int], Plays]  # from a network, and the env steps that another player has played before
    epsilon_at: Callable[[int], float]  # of an env step, the first is 1
    window: int  # frames that the two sides remember
    ahead: int  # env steps that the player may be ahead, 2N
    timeout: float  # seconds without an env step after which it counts as hung


class PlayerProcess:
    """The player process, as a context manager: started on entry, stopped and joined on exit.

    Args:
        plan: what it does.
        weights: that it acts with.
        stop: the stop test so far; the player continues with a copy of it.
        begun: env steps that another player has played before.
    """

    def __init__(self, plan: PlayerPlan, weights: PlayerWeights, stop: StopTest, begun: int = 0) -> None:
        args = (plan, weights.network, stop, begun)
        self._child = ChildProcess(_play, args, "player", plan.ahead, plan.timeout, "--player-timeout")
        self._decoder = FrameDecoder(plan.window)
        self.reason: str | None = None
        """Why the player ended the run, once it has."""

    def __enter__(self) -> PlayerProcess:
        self._child.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._child.__exit__(kind, error, trace)

    def take(self, count: int) -> list[Message]:
        """Return the next `count` env steps in the order in which they were played.

        Fewer only if the player has ended the run (see `reason`) or a signal asks this process to stop.

        Raises:
            RunError: the player died, failed (its traceback is part of the message) or has hung.
        """
        messages: list[Message] = []
        while len(messages) < count and self.reason is None:
            wire: _Wire | None = self._child.receive()
            if wire is None:
                break
            messages.append(Message(self._decoder.decode(wire.step), wire.epsilon))
            self.reason = wire.reason
        return messages

    def queued(self) -> int:
        """Return how many env steps wait in the queue, at most 2N (0 where the system cannot tell)."""
        return self._child.queued()


def _play(plan: PlayerPlan, network: nn.Module, stop: StopTest, begun: int, outbox: Outbox) -> None:
    """What the player process does."""
    device = next(network.parameters()).device
    if device.type == "cuda":
        torch.cuda.set_device(device)
    player = plan.build(network, begun)
    encoder = FrameEncoder(plan.window)
    for env_step in itertools.count(begun + 1):
        epsilon = plan.epsilon_at(env_step)
        played = player.step(epsilon)
        for episode in played.episodes:
            stop.add(episode.score)
        reason = stop.reason(env_step)
        if outbox.asked_to_stop():
            break
        outbox.put(_Wire(encoder.encode(played), epsilon, reason))
        if reason is not None:
            break
