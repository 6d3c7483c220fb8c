"""Runs over several ranks: rank 0 counts, logs and saves for all; the others follow."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from types import SimpleNamespace, TracebackType
from typing import Any, Protocol

import numpy as np
import psutil
import torch
from torch import Tensor

from fastdqn import process
from fastdqn.errors import Interrupted, RunError, UserError, counted, shortage_of
from fastdqn.options.run import RunSettings
from fastdqn.runs.checkpointing import REPLAY
from fastdqn.runs.counters import Counters
from fastdqn.runs.encoding import from_bytes, to_bytes
from fastdqn.runs.neighbours import Neighbours
from fastdqn.runs.run import Run
from fastdqn.runs.stopwatch import Stopwatch
from fastdqn.runs.weights import UNFIT, are_finite
from fastdqn.schedules import updates_due
from fastdqn.states import NothingUnfinished, Part, abandon, fetched, resume_parts, states_of
from fastdqn.types import EpisodeEnd, VectorStep

GO_ON, OVER, CHECK, STATES, STATES_WITHOUT_REPLAY, LEAVE = range(6)
"""What rank 0 tells the others between two rounds of the loop."""


class Company(Protocol):
    """Who learns together."""

    rank: int
    world: int
    alone: bool
    first: bool
    waited: float  # seconds for others

    def check(self) -> None:
        """Compare what all share."""
        ...

    def gathered(
        self, env_steps: int, episodes: tuple[EpisodeEnd, ...], at_once: int
    ) -> tuple[int, tuple[EpisodeEnd, ...]]:
        """Return the env steps and the games of all."""
        ...

    def tell(self, order: int, writing: bool = False) -> int:
        """Return rank 0's order, which it tells all others; `writing` says that it may first write a checkpoint."""
        ...

    def send(self, data: bytes, source: int) -> bytes:
        """Return what rank `source` sends to all."""
        ...

    def collect(self, data: bytes) -> list[bytes]:
        """Return the `data` of all ranks on rank 0, which alone gets them."""
        ...

    def pids_here(self) -> list[int]:
        """Return the process ids of the ranks on this machine."""
        ...

    def spare(self, saving: Callable[[], bool]) -> None:
        """Let this process finish what it saves, where another one is gone."""
        ...


def run_of(
    company: Company,
    script: str,
    options: RunSettings,
    device: torch.device,
    wrappers: str,
    notes: tuple[str, ...] = (),
    progress: Mapping[str, str] | None = None,
    warm_up: int = 0,
) -> Run | FollowingRun:
    """Return this rank's run; the arguments are those of `Run`, whose run it is where nobody else is there."""
    if company.alone:
        return Run(script, options, device, wrappers, notes, progress, warm_up)
    if company.first:
        return LeadingRun(company, script, options, device, wrappers, notes, progress, warm_up * company.world)
    return FollowingRun(company, device)


class LeadingRun(Run):
    """The run as rank 0 has it: what the others play is counted, and checkpoints hold what each has for itself.

    The metrics of updates are rank 0's own.
    """

    def __init__(
        self,
        company: Company,
        script: str,
        options: RunSettings,
        device: torch.device,
        wrappers: str,
        notes: tuple[str, ...] = (),
        progress: Mapping[str, str] | None = None,
        warm_up: int = 0,
    ) -> None:
        self._company = company
        self._others = _Others(company, lambda: self._checkpointing.keeps_replay)
        self._unchecked = self._ending = False
        super().__init__(script, options, device, wrappers, notes, progress, warm_up)
        self.timed.within("waiting for other ranks", lambda: company.waited)
        company.spare(lambda: self._ending or self._checkpointing.writing)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self._ending = True
        if isinstance(error, Interrupted):  # in the middle of a round: the checkpoint before is the one to resume
            self.reason = "interrupted"
            self._checkpointing.parts = {}
            super().__exit__(None, None, None)
            return True
        try:
            super().__exit__(kind, error, trace)
            if error is None:
                self._company.tell(LEAVE)
        except Interrupted:
            pass
        return False

    def track(self, **parts: Part) -> None:
        """As in `Run`; the others continue from what the checkpoint holds of them."""
        super().track(**parts, others=self._others)
        self.neighbours.beside(self._company.pids_here())
        counters = {name: value for name, value in self.counters.state().items() if name in _COMMON}
        for rank in range(1, self._company.world):
            state = self._others.states.get(str(rank), b"")
            self._company.send(to_bytes({"counters": counters, "resumed": bool(state)}), 0)
            self._company.send(state, 0)
        self._others.states.clear()
        for rank, data in enumerate(self._company.collect(b"")[1:], 1):
            places: list[int] = from_bytes(data)["anew"]
            self.stop.begin_anew(places, rank, self._company.world)
            if places:
                self._progress.say(f"begin anew: {counted(len(places), 'game')} of rank {rank}")

    def over(self) -> bool:
        """Tell whether the run is over, for all ranks or for none."""
        self._check()
        over = super().over()
        self._check()
        self._company.tell(OVER if over else GO_ON)
        return over

    def played_many(
        self,
        env_steps: int,
        episodes: tuple[EpisodeEnd, ...],
        at_once: int,
        of_games: Mapping[str, int] = {},
        /,
        **values: float,
    ) -> None:
        """Count env steps of `at_once` games of every rank, and log those that finished in them."""
        env_steps, episodes = self._company.gathered(env_steps, episodes, at_once)
        super().played_many(env_steps, episodes, at_once * self._company.world, of_games, **values)

    def updated(self, metrics: Mapping[str, Tensor], samples: int) -> None:
        """Count one update on so many samples of every rank."""
        super().updated(metrics, samples * self._company.world)

    def _record(self, now: float) -> None:
        super()._record(now)
        self._unchecked = True

    def _check(self) -> None:
        """Let all compare what they share, once for each record."""
        if self._unchecked:
            self._company.tell(CHECK)
            self._company.check()
            self._unchecked = False


class _Others(NothingUnfinished):
    """What the other ranks have for themselves, as a part of checkpoints."""

    def __init__(self, company: Company, with_replay: Callable[[], bool]) -> None:
        self._with_replay = with_replay
        self.states: dict[str, bytes] = {}  # by rank
        self._company = company

    def state(self) -> dict[str, Any]:
        """Return it; all ranks are between two rounds.

        Raises:
            MemoryError: a rank has none for its replay.
        """
        self._company.tell(STATES if self._with_replay() else STATES_WITHOUT_REPLAY)
        _, *said = self._company.collect(b"")
        if not all(said):
            raise MemoryError(f"the memory of rank {said.index(b'') + 1} does not suffice")
        return {str(rank): torch.frombuffer(bytearray(data), dtype=torch.uint8) for rank, data in enumerate(said, 1)}

    def load(self, state: Mapping[str, Any]) -> None:
        """Keep it until they ask."""
        self.states = {rank: data.numpy().tobytes() for rank, data in state.items()}


_COMMON = ("env_steps", "before", "updates", "samples", "discarded_at")
"""Counters that are the same on all ranks."""


class FollowingRun:
    """The run as the other ranks have it: they count as rank 0 does, and log and save nothing.

    Args:
        company: who learns together.
        device: where the learner is.
    """

    def __init__(self, company: Company, device: torch.device) -> None:
        self.counters = Counters()
        self.timed = Stopwatch(device)
        self.weights = SimpleNamespace(tensors=None)
        self.neighbours = Neighbours(psutil.Process(), lambda _: None)  # what there is to say, rank 0 says
        self._company = company
        self._parts: Mapping[str, Part] = {}

    def __enter__(self) -> FollowingRun:
        self._running = process.running()  # torchrun hands a signal to every rank
        self._running.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        try:
            if error is None:
                while (order := self._company.tell(0, writing=True)) != LEAVE:  # the checkpoint at the end
                    self._give_state(order)
        finally:
            self._running.__exit__(kind, error, trace)
        if isinstance(error, Exception) and not isinstance(error, RunError | UserError | Interrupted):
            with contextlib.suppress(RuntimeError):  # of a device that has failed
                if not are_finite(self.weights.tensors or {}):
                    raise RunError(f"{UNFIT} at env step {self.env_steps}, update {self.updates}.") from error
        return isinstance(error, Interrupted)

    @property
    def env_steps(self) -> int:
        """Env steps of all ranks so far."""
        return self.counters.env_steps

    @property
    def updates(self) -> int:
        """Updates so far."""
        return self.counters.updates

    def track(self, **parts: Part) -> None:
        """Name everything that changes while the run continues; in a resumed run it continues from the checkpoint."""
        self._parts = parts
        self.neighbours.beside(self._company.pids_here())
        said, state = b"", b""
        for rank in range(1, self._company.world):
            sent = self._company.send(b"", 0), self._company.send(b"", 0)
            if rank == self._company.rank:
                said, state = sent
        own = from_bytes(said)
        for name, value in own["counters"].items():
            setattr(self.counters, name, value)
        # Once all have theirs: games may be played again for long, and ranks do so side by side.
        anew = resume_parts(parts, from_bytes(state)) if own["resumed"] else None
        self._company.collect(to_bytes({"anew": [] if anew is None else np.flatnonzero(anew).tolist()}))

    def due(self, every: int, initial: int = 0) -> range:
        """Return the env steps of the newest step at which something is due, as in `Run`."""
        return updates_due(self.counters.before, self.env_steps, every, initial + self.counters.discarded_at)

    def played_vector(self, step: VectorStep, policy_lag: int = 0, **values: float) -> None:  # noqa: ARG002
        """Count one step of N games; games that were reset in it made no env step."""
        games = len(step.reset)
        self.played_many(games - int(step.reset.sum()), step.episodes, games)

    def played_many(
        self,
        env_steps: int,
        episodes: tuple[EpisodeEnd, ...],
        at_once: int,
        of_games: Mapping[str, int] = {},  # noqa: ARG002
        /,
        **values: float,  # noqa: ARG002
    ) -> None:
        """Count env steps of `at_once` games of every rank."""
        env_steps, _ = self._company.gathered(env_steps, episodes, at_once)
        self.counters.stepped(env_steps, {})

    def updated(self, metrics: Mapping[str, Tensor], samples: int) -> None:  # noqa: ARG002
        """Count one update on so many samples of every rank."""
        self.counters.updated(samples * self._company.world)

    def over(self) -> bool:
        """Do what rank 0 tells; tell whether the run is over."""
        self.neighbours.look()
        while True:
            order = self._company.tell(0)
            if order in (GO_ON, OVER):
                return order == OVER
            if order == CHECK:
                self._company.check()
            else:
                self._give_state(order)

    def _give_state(self, order: int) -> None:
        """Send rank 0 the state of this rank; nothing where there is no memory for its replay: it asks again, without.

        Raises:
            MemoryError: there is none for the rest either.
        """
        kept = {name: part for name, part in self._parts.items() if order == STATES or name != REPLAY}
        states: dict[str, Any] = {}
        try:
            states = states_of(kept)
            data = to_bytes(fetched(states))
        except (MemoryError, RuntimeError) as error:
            abandon(states)
            if shortage_of(error) is None or order != STATES or REPLAY not in kept:
                raise
            data = b""
        self._company.collect(data)
