"""A player in its own process, a trainer in this one, a bounded queue between them.

The player owns the environment, epsilon and the stop test. It puts one message for each env step on a queue of
2N messages, so it runs at most 2N env steps ahead; the trainer takes exactly N for each update, so the ratio of
updates to env steps does not depend on which of the two is faster.

Whatever ends one side ends the other: an exception in the player is raised in the trainer with its traceback, a
killed or hung player is noticed, a player whose trainer is gone leaves.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import multiprocessing.connection
import os
import queue
import signal
import threading
import time
import traceback
from collections.abc import Generator
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Literal, NamedTuple

import cv2
import torch
import torch.multiprocessing
from torch import nn

from fastdqn import startup
from fastdqn.acting import epsilon_at, make_player
from fastdqn.config import ParallelOptions
from fastdqn.envs.make import Wrappers, make_env
from fastdqn.errors import RunError
from fastdqn.parallel.wire import FrameDecoder, FrameEncoder, WireStep, window_for
from fastdqn.stopping import StopTest
from fastdqn.types import PlayedStep

POLL_SECONDS = 0.2
"""How long the trainer waits for a message before it looks for signals and a dead player."""
LEAVE_SECONDS = 4.0
"""How long a player has to leave after it was asked to, before it is killed."""


class Message(NamedTuple):
    """One env step of the player."""

    played: PlayedStep
    epsilon: float
    reason: str | None  # why the run is over after this env step


class _Wire(NamedTuple):
    step: WireStep
    epsilon: float
    reason: str | None


class PlayerWeights:
    """The weights that the player acts with.

    With `player_device` "same" they are the learner's own, in shared memory (CUDA: by CUDA IPC): each update is
    seen at once and nothing is copied. With "cpu" they are a shared copy that `publish` refreshes.
    """

    def __init__(self, network: nn.Module, player_device: Literal["same", "cpu"]) -> None:
        """Take the learner's network, on its device."""
        self._source = network
        learns_on_cpu = next(network.parameters()).device.type == "cpu"
        self._copy = None if player_device == "same" or learns_on_cpu else copy.deepcopy(network).cpu()
        self.network = (self._copy or network).share_memory()

    @property
    def device(self) -> torch.device:
        """Where the player evaluates the network."""
        return next(self.network.parameters()).device

    def publish(self) -> None:
        """Let the player see the learner's newest weights; free when they are the same."""
        if self._copy is not None:
            self._copy.load_state_dict(self._source.state_dict())


class PlayerProcess:
    """The player process, as a context manager: started on entry, stopped and joined on exit.

    Args:
        options: of the run; `options.steps` is N.
        wrappers: how the player sees the game.
        weights: that the player acts with.
        stop: the stop test so far; the player goes on with a copy of it.
        begun: env steps that another player has played before.
    """

    def __init__(
        self, options: ParallelOptions, wrappers: Wrappers, weights: PlayerWeights, stop: StopTest, begun: int = 0
    ) -> None:
        context = torch.multiprocessing.get_context("spawn")
        self._timeout = options.player_timeout
        self._queue: Any = context.Queue(maxsize=2 * options.steps)
        # A pipe, not an Event: an Event's lock would stay locked for ever if the player were killed while holding it.
        control, child_end = context.Pipe()
        self._control: Connection = control
        self._child_end: Connection = child_end
        self._process = context.Process(
            target=_play,
            args=(options, wrappers, weights.network, stop, begun, self._queue, child_end),
            name="fastdqn-player",
            daemon=True,
        )
        window = window_for(options.protocol.frame_stack, options.dqn.n_step)
        self._decoder = FrameDecoder(window)
        self.reason: str | None = None
        """Why the player ended the run, once it has."""

    @property
    def pid(self) -> int | None:
        """The player's process id."""
        return self._process.pid

    def __enter__(self) -> PlayerProcess:
        with startup.signals_held(), _one_thread_environment():
            self._process.start()
        self._child_end.close()
        # Only the player writes. With this end closed too, a player killed in the middle of a message
        # is an end of file here, not a wait for the rest of it.
        self._queue._writer.close()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._control.send("stop")
        deadline = time.monotonic() + LEAVE_SECONDS
        while self._process.is_alive() and time.monotonic() < deadline:
            self._drain()
            self._process.join(0.02)
        if self._process.is_alive():
            self._process.kill()
            self._process.join(1.0)
        self._queue.close()
        self._control.close()

    def take(self, count: int) -> list[Message]:
        """Return the next `count` env steps in the order in which they were played.

        Fewer only if the player has ended the run (see `reason`) or a signal asks this process to stop.

        Raises:
            RunError: the player died, failed (its traceback is part of the message) or has hung.
        """
        messages: list[Message] = []
        waiting_since = time.monotonic()
        while len(messages) < count and self.reason is None:
            alive = self._process.is_alive()
            try:
                wire: _Wire = self._queue.get(timeout=POLL_SECONDS)
            except queue.Empty:
                if startup.stop_signal():
                    break
                if not alive:
                    raise self._failed() from None
                if time.monotonic() - waiting_since > self._timeout:
                    raise RunError(
                        f"The player process has sent nothing for {self._timeout:g} seconds and counts as hung."
                    ) from None
                continue
            except (EOFError, OSError):
                if startup.stop_signal():
                    break
                raise self._failed() from None
            waiting_since = time.monotonic()
            messages.append(Message(self._decoder.decode(wire.step), wire.epsilon, wire.reason))
            self.reason = wire.reason
        return messages

    def queued(self) -> int:
        """Return how many env steps wait in the queue, at most 2N (0 where the system cannot tell)."""
        try:
            return int(self._queue.qsize())
        except NotImplementedError:  # macOS
            return 0

    def _drain(self) -> None:
        with contextlib.suppress(queue.Empty, EOFError, OSError):
            while True:
                self._queue.get_nowait()

    def _failed(self) -> RunError:
        self._process.join(1.0)
        trace = ""
        with contextlib.suppress(EOFError, OSError):
            if self._control.poll():
                trace = self._control.recv()
        code = self._process.exitcode
        if trace:
            return RunError(f"{trace.rstrip()}\nThe player process failed; its traceback is above.")
        how = f"was killed by {signal.Signals(-code).name}" if code is not None and code < 0 else f"left with {code}"
        return RunError(f"The player process {how}.")


def _play(
    options: ParallelOptions,
    wrappers: Wrappers,
    network: nn.Module,
    stop_test: StopTest,
    begun: int,
    messages: Any,
    control: Connection,
) -> None:
    """What the player process runs."""
    startup.install()
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    try:
        torch.set_num_threads(1)
        cv2.setNumThreads(0)
        device = next(network.parameters()).device
        if device.type == "cuda":
            torch.cuda.set_device(device)
        env = make_env(options.run.game, options.protocol, wrappers)
        player = make_player(env, network, device, options, begun)
        encoder = FrameEncoder(window_for(options.protocol.frame_stack, options.dqn.n_step))
        for env_step in itertools.count(begun + 1):
            epsilon = epsilon_at(env_step, options.dqn)
            played = player.step(epsilon)
            for episode in played.episodes:
                stop_test.add(episode.score)
            reason = stop_test.reason(env_step)
            if control.poll():  # asked to stop
                break
            messages.put(_Wire(encoder.encode(played), epsilon, reason))
            if reason is not None:
                break
        messages.close()
        messages.join_thread()
    except BaseException:
        with contextlib.suppress(OSError):
            control.send(traceback.format_exc())
        messages.close()
        messages.join_thread()  # what was played before is not lost
        os._exit(1)


def _leave_with_parent() -> None:
    """Wait for the trainer's end, however it comes, and leave at once."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)


@contextlib.contextmanager
def _one_thread_environment() -> Generator[None]:
    """Give a child that starts now one thread for each numeric library: set before its first import."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
