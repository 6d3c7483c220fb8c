"""Several runs of a sweep at once on this machine, each bound to cores of its own."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

from fastdqn import process
from fastdqn.tools.sweep.jobs import Job, Outcome, progress_of, run_job


class LocalWorkers:
    """Runs jobs as processes of this machine, as a context manager; what is going on at its end is asked to stop.

    Args:
        slots: the cores of each of the runs that are done at once.
    """

    def __init__(self, slots: Sequence[Sequence[int]]) -> None:
        self.at_once = len(slots)
        self._free: queue.SimpleQueue[Sequence[int]] = queue.SimpleQueue()
        for cores in slots:
            self._free.put(cores)
        self._pool = ThreadPoolExecutor(self.at_once, thread_name_prefix="fastdqn-sweep")
        self._stopping = threading.Event()
        self._begun: dict[str, tuple[float, Path]] = {}  # when, and in which folder

    def __enter__(self) -> LocalWorkers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._pool.shutdown(cancel_futures=True)

    def submit(self, job: Job) -> Future[Outcome]:
        """Run a job as soon as there is room for it."""
        return self._pool.submit(self._run, job)

    def running(self) -> dict[str, tuple[float, float]]:
        """Return the names of the jobs that are going on, for how many seconds each has been, and which share it has
        made.
        """
        now, begun = time.monotonic(), self._begun.copy()
        return {name: (now - at, progress_of(folder)) for name, (at, folder) in begun.items()}

    def _run(self, job: Job) -> Outcome:
        cores = self._free.get()
        self._begun[job.task.name] = (time.monotonic(), job.folder)
        try:
            return run_job(job, cores, self._stopping.is_set)
        finally:
            self._begun.pop(job.task.name, None)
            self._free.put(cores)


def slots_of(jobs: int | None, cores: int) -> list[tuple[int, ...]]:
    """Return the cores of each of `jobs` runs at once; by default as many runs as have `cores` each for themselves.

    More runs than there are cores share them.
    """
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(process.cores()))
    jobs = jobs or max(1, min(len(allowed), process.cores()) // cores)
    return [tuple(allowed[(i * cores + j) % len(allowed)] for j in range(cores)) for i in range(jobs)]
