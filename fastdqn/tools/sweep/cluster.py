"""The runs of a sweep on a Ray cluster, which places, queues and counts; imported only if it is asked for.

A run is done in a folder of the same path on whichever machine Ray chooses, and its result comes back to the sweep.
Where all machines share the folder of the sweep, a run that was stopped is resumed by any of them; where they do not,
by the one that has its checkpoint, or it begins anew.
"""

from __future__ import annotations

import contextlib
import importlib
import signal
import time
from collections.abc import Generator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError  # before Python 3.11 one of its own
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from fastdqn.errors import RunError, UserError
from fastdqn.tools.sweep.jobs import Job, Outcome, progress_of, run_job

STOP_SECONDS = 150
"""For which runs that are asked to stop may write their checkpoints."""
_LOOK_SECONDS = 0.5
_ANSWER_SECONDS = 60.0
_SILENT_SECONDS = 10.0
"""Without a word, after which a run is no longer shown as one that is going on."""


class RayWorkers:
    """Runs jobs as tasks of Ray, as a context manager; what is going on at its end is asked to stop.

    Args:
        address: of a cluster; None starts one on this machine.
        at_once: runs where Ray is started on this machine; None for as many as there are cores for.
        cores: of each run.

    Raises:
        UserError: Ray is not installed, or this machine has fewer cores.
        RunError: the cluster cannot be reached.
    """

    def __init__(self, address: str | None, at_once: int | None, cores: int) -> None:
        try:
            self._ray: Any = importlib.import_module("ray")
        except ImportError as error:
            raise UserError("--engine ray needs Ray, which is not installed: pip install 'fastdqn[ray]'.") from error
        count = None if at_once is None else at_once * cores
        own = {"address": "local", "num_cpus": count, "include_dashboard": False}  # not one that happens to be here
        where: dict[str, Any] = own if address is None else {"address": address}
        try:
            with _handlers_kept():
                self._ray.init(log_to_driver=False, logging_level="error", **where)
        except Exception as error:  # whatever Ray makes of it
            why = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
            raise RunError(f"The Ray cluster {address or 'on this machine'} cannot be reached: {why}.") from error
        each = [int(node["Resources"].get("CPU", 0)) for node in self._ray.nodes() if node["Alive"]]
        if address is None and max(each, default=0) < cores:  # Ray would wait for ever; a cluster may grow
            self._ray.shutdown()
            raise UserError(
                f"This machine has {max(each, default=0)} cores, and a run is to have {cores}; lower --cores."
            )
        self.at_once = max(1, sum(count // cores for count in each))
        here = importlib.import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy(
            self._ray.get_runtime_context().get_node_id(), soft=False
        )  # as long as the sweep is there, whatever machine goes
        coordinator = self._ray.remote(_Coordinator)
        placed = coordinator.options(num_cpus=0, max_concurrency=1000, scheduling_strategy=here)
        self._coordinator: Any = placed.remote()
        run = self._ray.remote(_run)
        self._remote: Any = run.options(num_cpus=cores, max_retries=0)
        self._cores = cores
        self._left: dict[Any, str] = {}  # names of jobs that have not ended
        self._going: dict[str, tuple[float, float]] = {}
        self._answer: Future[dict[str, tuple[float, float]]] | None = None

    def __enter__(self) -> RayWorkers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            with contextlib.suppress(Exception):  # it is gone: so is whoever asks it
                self._ray.get(self._coordinator.stop.remote(), timeout=_ANSWER_SECONDS)
            left = list(self._left.copy())  # Ray's thread takes some out
            if left:
                self._ray.wait(left, num_returns=len(left), timeout=STOP_SECONDS)
        finally:
            self._ray.shutdown()

    def submit(self, job: Job) -> Future[Outcome]:
        """Run a job as soon as the cluster has room for it."""
        away = replace(job, folder=job.folder.resolve(), path=job.path.resolve())
        ref = self._remote.remote(away, self._cores, self._coordinator)
        future: Future[Outcome] = Future()
        self._left[ref] = job.task.name

        def ended(asked: Future[Any]) -> None:
            del self._left[ref]
            error = asked.exception()
            if error is None:
                future.set_result(asked.result())
            elif isinstance(cause := getattr(error, "cause", error), OSError):
                future.set_exception(cause)
            elif cause is not error and isinstance(cause, Exception):  # it was raised there
                future.set_result(Outcome(job.task.name, 1, f"{type(cause).__name__}: {cause}", None))
            else:  # its machine, or Ray's own process there, is gone
                line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
                future.set_result(Outcome(job.task.name, -signal.SIGKILL, line, None))

        ref.future().add_done_callback(ended)
        return future

    def running(self) -> dict[str, tuple[float, float]]:
        """Return the names of the jobs that are going on, for how many seconds each has been, and which share it has
        made, as they said a moment ago.
        """
        if self._answer is not None and self._answer.done() and self._answer.exception() is None:
            self._going = self._answer.result()
        if self._answer is None or self._answer.done():  # who waited for it would wait for the cluster
            self._answer = self._coordinator.going.remote().future()
        left = set(self._left.copy().values())  # a copy: Ray's thread takes some out
        return {name: said for name, said in self._going.items() if name in left}


class _Coordinator:
    """Says to all machines whether the sweep is being stopped, and is told by them how far their runs are."""

    def __init__(self) -> None:
        self._stopping = False
        self._told: dict[str, tuple[float, float, float]] = {}  # when, and what

    def stop(self) -> None:
        self._stopping = True

    def tell(self, name: str, seconds: float, share: float) -> bool:
        """Hear how far a run is; return whether it is to stop."""
        self._told[name] = (time.monotonic(), seconds, share)
        return self._stopping

    def going(self) -> dict[str, tuple[float, float]]:
        now = time.monotonic()
        told = self._told.copy().items()  # at once: others speak meanwhile
        return {name: (seconds, share) for name, (at, seconds, share) in told if now - at < _SILENT_SECONDS}


@contextlib.contextmanager
def _handlers_kept() -> Generator[None]:
    """Keep this process's own handlers of signals, in place of which Ray puts its own."""
    numbers = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _run(job: Job, cores: int, coordinator: Any) -> Outcome:
    """Run a job on the machine that Ray has chosen."""
    name, began = job.task.name, time.monotonic()

    def tell(share: float) -> Future[bool]:
        answer: Future[bool] = coordinator.tell.remote(name, time.monotonic() - began, share).future()
        return answer  # not ray.get: whoever waits in it gives its cores to another run

    answer, looked = tell(progress_of(job.folder)), began
    with contextlib.suppress(TimeoutError, FutureTimeoutError):  # a cluster that is slow to answer has not said "stop"
        if answer.result(_ANSWER_SECONDS):  # it has waited for its turn until now
            return Outcome(name, 128 + signal.SIGTERM, "stopped before it began", None)

    def stopping() -> bool:
        nonlocal answer, looked
        if not answer.done():
            return False
        if answer.exception() is not None or answer.result():  # whoever could say so is gone: with a checkpoint, too
            return True
        if time.monotonic() - looked > _LOOK_SECONDS:
            looked, answer = time.monotonic(), tell(progress_of(job.folder))
        return False

    if not Path(job.path).is_file():
        return Outcome(name, 1, f"there is no script {job.path} on this machine", None)
    return run_job(job, cores, stopping)
