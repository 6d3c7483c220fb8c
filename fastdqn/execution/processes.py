"""A child process: started, watched, drained, joined, killed if it must be, with its traceback if it fails.

The child gets a bounded queue, on which it puts messages, and a pipe, on which it is asked to stop. Whatever ends one
side ends the other: an exception in the child is raised in the parent, a RunError or UserError as it is and any other
with its traceback, a killed or hung child is noticed (but for one that is stopped in the middle of a message, whose
rest its parent waits for), a child whose parent is gone leaves.
"""

from __future__ import annotations

import contextlib
import errno
import multiprocessing.synchronize
import os
import queue
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from types import TracebackType
from typing import Any

import psutil

from fastdqn import process
from fastdqn.errors import RunError, UserError
from fastdqn.execution.child import Request, run
from fastdqn.execution.starting import ONE_THREAD, start, starter

POLL_SECONDS = 0.2
"""How long the parent waits for a message before it looks for signals and a dead child."""
PAUSE_SECONDS = 5.0
"""Between two looks, after which a silent child has as long as ever: it may have stood still with its parent."""
LEAVE_SECONDS = 4.0
"""How long a child has to leave after it was asked to, before it is killed."""
MOST_MESSAGES: int = vars(multiprocessing.synchronize)["SEM_VALUE_MAX"]
"""Of a queue: what a semaphore counts to on this system."""
BUFFERED_BYTES = 1 << 16
"""A request of so many bytes finds room in the pipe; a thread sends a larger one, as a child that is stopped would keep
its parent waiting."""
SERVER_LOST = 255
"""The exit code that multiprocessing makes up for a child whose fork server is gone."""


STOP = Request("stop")


class ChildProcess:
    """A child process, as a context manager: started on entry, stopped and joined on exit.

    Args:
        work: what the child does, importable, called with `args` and its `Outbox`.
        args: sent to the child.
        name: of the process; "fastdqn-player" is called "the player process" where it fails.
        capacity: messages that the queue holds, or as many as this system can count.
        timeout: seconds without a message after which a living child counts as hung.
        option: by which the user sets the timeout, if there is one.

    Raises:
        RunError: no queue or pipe can be made.
    """

    def __init__(
        self,
        work: Callable[..., None],
        args: tuple[Any, ...],
        name: str,
        capacity: int,
        timeout: float,
        option: str | None = None,
    ) -> None:
        context = starter()
        self._called = f"The {name} process"
        self._timeout = timeout
        self._set_by = "" if option is None else f" ({option})"
        self._seen: psutil.Process | None = None
        self._looked = self._woke = time.monotonic()
        self._said: RunError | UserError | str = ""  # why the child failed
        try:
            self._queue: Any = context.Queue(maxsize=min(capacity, MOST_MESSAGES))
            # A pipe, not an Event: an Event's lock would stay locked for ever if the child were killed holding it.
            control, child_end = context.Pipe()
        except OSError as error:
            advice = "allow more (ulimit -n), or make fewer processes"
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                advice = "/dev/shm may be full, or read-only"
            raise RunError(f"{self._called} cannot be made: {error.strerror or error}; {advice}.") from error
        self._control: Connection = control
        self._child_end: Connection = child_end
        self._outgoing: deque[Any] = deque()  # requests that a thread is sending
        self._outgoing_lock = threading.Lock()
        self._sender: threading.Thread | None = None
        self._process = context.Process(
            target=run,
            args=({**os.environ, **ONE_THREAD}, work, args, self._queue, child_end),
            name=f"fastdqn-{name}",
            daemon=True,
        )

    @property
    def pid(self) -> int | None:
        """The child's process id."""
        return self._process.pid

    def __enter__(self) -> ChildProcess:
        start(self._process)
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended already
            self._seen = psutil.Process(self._process.pid)
        self._child_end.close()
        # Only the child writes. With this end closed too, a child killed in the middle of a message
        # is an end of file here, not a wait for the rest of it.
        self._queue._writer.close()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        end_all([self])

    def ask(self, request: Request) -> None:
        """Ask something of the child, unless it is gone or stopped, which the next `receive` notices."""
        said = ForkingPickler.dumps(request)
        with self._outgoing_lock:
            if not self._outgoing and len(said) <= BUFFERED_BYTES:
                self._send(said)
                return
            self._outgoing.append(said)
            if len(self._outgoing) == 1:
                self._sender = threading.Thread(target=self._send_all, daemon=True)
                self._sender.start()

    def _send(self, said: Any) -> None:
        with contextlib.suppress(OSError):
            self._control.send_bytes(said)

    def _send_all(self) -> None:
        """Send all that is to be sent, each request once the child has taken the one before."""
        left = True
        while left:
            self._send(self._outgoing[0])
            with self._outgoing_lock:
                self._outgoing.popleft()
                left = len(self._outgoing) > 0

    def receive(self, patience: float = 0.0, busy: bool = False) -> Any:
        """Return the next message; None once a signal asks this process to stop.

        Args:
            patience: seconds from then on for which a message is waited for all the same.
            busy: whether the child has something to do that may take any time, and so does not count as hung.

        Raises:
            RunError: the child died, failed (its traceback is part of the message) or has hung.
            UserError: the child met a mistake in what was asked for.
        """
        waiting_since, stopping_since = time.monotonic(), None
        while True:
            message = self.look(time.monotonic() if busy else waiting_since, POLL_SECONDS)
            if message is not None:
                return message
            if process.stop_signal():
                stopping_since = stopping_since or time.monotonic()
                if time.monotonic() - stopping_since >= patience or not self.alive:
                    return None

    def look(self, heard: float, seconds: float = 0.0) -> Any:
        """Return the next message, None if there is none within so many seconds, or a signal asks this process to stop.

        Args:
            heard: when the child was last heard of, by the clock of `time.monotonic`.
            seconds: to wait.

        Raises:
            RunError: the child died, failed (its traceback is part of the message) or has hung.
            UserError: the child met a mistake in what was asked for.
        """
        alive, now = self._process.is_alive(), time.monotonic()
        if now - self._looked > PAUSE_SECONDS:  # this process has stood still itself, say with its child by Ctrl-Z
            self._woke = now
        heard = max(heard, self._woke)
        try:
            return self._queue.get(timeout=seconds) if seconds else self._queue.get_nowait()
        except queue.Empty:
            self._hear()
            if not alive and not process.stop_signal():
                raise self._failed() from None
            if time.monotonic() - now > seconds + PAUSE_SECONDS:  # or while it waited here
                self._woke = time.monotonic()
                return None
            if not process.stop_signal() and time.monotonic() - heard > self._timeout:
                raise RunError(
                    f"{self._called} has sent nothing for {self._timeout:g} seconds{self._set_by} and counts as hung."
                ) from None
        except (EOFError, OSError):
            if not process.stop_signal():
                raise self._failed() from None
        finally:
            self._looked = time.monotonic()
        return None

    def queued(self) -> int:
        """Return how many messages wait in the queue (0 where the system cannot tell)."""
        try:
            return int(self._queue.qsize())
        except NotImplementedError:  # macOS
            return 0

    @property
    def reader(self) -> Any:
        """What `multiprocessing.connection.wait` waits on for a message, or for the child's end."""
        return self._queue._reader

    @property
    def alive(self) -> bool:
        """Whether the child has not ended yet."""
        return self._process.is_alive()

    def wait(self, seconds: float) -> None:
        """Wait so long for the child's end; its messages are dropped, so that it need not wait for room."""
        self._drain()
        self._process.join(seconds)

    def close(self) -> None:
        """Kill the child if it lives, and close what leads to it."""
        if self._process.is_alive():
            self._process.kill()
            self._process.join(1.0)
        elif (orphan := self._orphan()) is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                orphan.kill()
        if self._sender is not None:
            self._sender.join(1.0)
        self._queue.close()
        self._control.close()

    def _orphan(self) -> psutil.Process | None:
        """Return the child if it lives, but its fork server does not."""
        lost = self._process.exitcode == SERVER_LOST and self._seen is not None and self._seen.is_running()
        return self._seen if lost else None

    def _drain(self) -> None:
        with contextlib.suppress(queue.Empty, EOFError, OSError):
            while True:
                self._queue.get_nowait()

    def _hear(self) -> None:
        """Take what the child says of its failure; it does not leave before a long text is read."""
        with contextlib.suppress(EOFError, OSError):
            if not self._said and self._control.poll():
                self._said = self._control.recv()

    def _failed(self) -> RunError | UserError:
        self._hear()  # first: it may be waiting for that
        self._process.join(LEAVE_SECONDS)
        self._hear()
        code, said = self._process.exitcode, self._said
        if isinstance(said, RunError | UserError):
            return said
        if self._orphan() is not None:
            return RunError(f"{self._called} has lost the fork server, which was killed.")
        if said:
            return RunError(f"{said.rstrip()}\n{self._called} failed; its traceback is above.")
        how = (
            f"was killed by {signal.Signals(-code).name}"
            if code is not None and code < 0
            else f"ended with exit code {code}"
        )
        return RunError(f"{self._called} {how}.")


def end_all(children: Sequence[ChildProcess], seconds: float | None = None) -> None:
    """Ask all children to leave, wait for that, at most so many seconds for all together (LEAVE_SECONDS unless said
    otherwise), and kill those that stay.
    """
    with contextlib.ExitStack() as closing:
        for child in children:
            closing.callback(child.close)
        for child in children:
            child.ask(STOP)
        deadline = time.monotonic() + (LEAVE_SECONDS if seconds is None else seconds)
        while any(child.alive for child in children) and time.monotonic() < deadline:
            for child in children:
                child.wait(0.02 / len(children))


@contextlib.contextmanager
def sharing() -> Generator[None]:
    """Turn what PyTorch says where memory cannot be shared between processes into one sentence.

    Raises:
        RunError: it cannot be.
    """
    try:
        yield
    except (RuntimeError, OSError) as error:
        said = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise RunError(f"Memory cannot be shared between processes ({said}); /dev/shm may be full.") from error
