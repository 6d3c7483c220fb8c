"""A trainer in a thread of its own, beside the loop that steps the environments.

One thread plays and puts what it has played into a queue; the other takes it from there, and learns. Nothing but three
things crosses: what was played, weights of finished updates, and what is to be said of updates. Whoever plays acts with
weights of its own, which it renews between two steps, so that it never meets an update half made; and it alone counts
and logs.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from fastdqn import process
from fastdqn.errors import RunError
from fastdqn.foreach import copy_all
from fastdqn.types import Made

ItemT = TypeVar("ItemT", contravariant=True)
ROOM = 20
"""Steps that may wait for a trainer with a thread. One without has room for any number: nobody else would take them."""
POLL_SECONDS = 0.05
"""How long a trainer waits for an item, and whoever plays for room, before they look around."""
JOIN_SECONDS = 8.0
"""How long a trainer has to finish the update that it is at."""


class Work(Protocol[ItemT]):
    """What a trainer does; only one thread at a time."""

    def take(self, item: ItemT) -> None:
        """Store what was played."""
        ...

    def due(self) -> bool:
        """Tell whether an update is due, of what was taken so far."""
        ...

    def update(self) -> Made | None:
        """Make one update; return what is to be said of it, or None if it turned out that none was to be made."""
        ...


class Trainer(Generic[ItemT]):
    """A trainer, as a context manager: its thread, if it is to have one, starts on entry and is joined on exit.

    As a part of checkpoints it comes first: it stands still until the next item is
    put, and has taken all that waited, so that the parts after it are of one moment.

    Args:
        work: what it does.
        learnt: weights that it changes.
        played_with: weights of whoever plays, of the same shapes.
        threaded: whether it has a thread of its own; otherwise `advance` is to be called.
        room: items that may wait for the thread.
    """

    def __init__(
        self,
        work: Work[ItemT],
        learnt: Sequence[Tensor],
        played_with: Sequence[Tensor],
        threaded: bool,
        room: int = ROOM,
    ) -> None:
        self.threaded = threaded
        self._work = work
        self._learnt, self._played_with = ([one.detach() for one in weights] for weights in (learnt, played_with))
        self._queue: queue.Queue[ItemT] = queue.Queue(maxsize=room if threaded else 0)
        self.version = 0
        """Updates in the weights that are played with, since this process began."""
        self._said: deque[Made] = deque()  # updates, until they are counted; its ends are atomic
        self._made = 0
        self._newest: tuple[int, list[Tensor]] | None = None  # version and weights; only the trainer sets it
        self._renewed: tuple[int, list[Tensor]] | None = None  # the ones that are played with
        self._working = threading.Lock()  # held during a round of the trainer
        self._standing = True  # until the first item is put: a run that is resumed has other weights by then
        self._leave = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="fastdqn-trainer", daemon=True)

    def __enter__(self) -> Trainer[ItemT]:
        if self.threaded:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave.set()
        if self.threaded:
            self._thread.join(JOIN_SECONDS)
        if error is not None:
            return
        self.check()
        if self._thread.is_alive():
            raise RunError(f"The trainer has not finished its update within {JOIN_SECONDS:g} seconds.")
        self._take_all()

    def check(self) -> None:
        """Raise what has ended the thread, if anything has: nobody else would hear of it."""
        if self._error is not None:
            raise self._error

    def put(self, item: ItemT) -> None:
        """Hand over what was played; wait while there is no room, unless a signal asks this process to stop."""
        self._standing = False
        while True:
            self.check()
            try:
                self._queue.put(item, timeout=POLL_SECONDS)
            except queue.Full:
                if not process.stop_signal():
                    continue
                self._stand()
                self._take_all()
                self._work.take(item)
            return

    def advance(self) -> bool:
        """Take what waits until an update is due, and make it; return whether anything was done. A trainer with a
        thread does so by itself."""
        return not self.threaded and self._round()

    def said(self) -> list[Made]:
        """Return the updates since the last call; at last, after the exit, those that the thread has finished since."""
        return [self._said.popleft() for _ in range(len(self._said))]

    def renew(self) -> None:
        """Let whoever plays have the weights of the newest update; to be called between two steps."""
        newest = self._newest
        if newest is not None and newest is not self._renewed:
            self.version, weights = newest
            copy_all(self._played_with, weights)
            self._renewed = newest

    def state(self) -> dict[str, Any]:
        """Come to a stand, and take what waits; return of what size updates were that have not been counted yet."""
        self._stand()
        self._take_all()
        return {"unsaid": [made.samples for made in list(self._said)]}

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from there."""
        self._said.extend(Made({}, int(samples)) for samples in state["unsaid"])
        self._newest = 0, self._learnt  # once the learner has continued, too

    def discard(self, envs: Any) -> None:
        """Drop nothing: nothing waits."""

    def _round(self) -> bool:
        """Take what waits now, but nothing more once an update is due, which is then made."""
        took = False
        for _ in range(self._queue.qsize()):
            if self._work.due():
                break
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                break
            self._work.take(item)
            took = True
        if not self._work.due():
            return took
        made = self._work.update()
        if made is not None:
            self._said.append(made)
            self._made += 1
            self._newest = self._made, [weight.clone() for weight in self._learnt]
        return True

    def _run(self) -> None:
        """What the thread does."""
        # Products of matrices have OpenMP's number of threads here until PyTorch is asked for its own.
        torch.set_num_threads(torch.get_num_threads())
        try:
            while not self._leave.is_set():
                with self._working:
                    done = not self._standing and self._round()
                if not done:
                    self._wait()
        except BaseException as error:
            self._error = error

    def _wait(self) -> None:
        """Wait for an item, or for a moment."""
        if self._standing:
            self._leave.wait(POLL_SECONDS)
            return
        with self._queue.not_empty:
            if not self._queue.queue:
                self._queue.not_empty.wait(POLL_SECONDS)

    def _stand(self) -> None:
        """Wait until the round is over that the thread is at, after a signal not for long; it begins no other."""
        self._standing, since = True, None
        while not self._working.acquire(timeout=POLL_SECONDS):
            if not process.stop_signal():
                continue
            since = since or time.monotonic()
            if time.monotonic() - since > JOIN_SECONDS:
                raise RunError(f"The trainer has not finished its update within {JOIN_SECONDS:g} seconds.")
        self._working.release()
        self.check()

    def _take_all(self) -> None:
        while self._queue.qsize():
            self._work.take(self._queue.get_nowait())
