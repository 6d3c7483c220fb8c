"""A run's counters: how far it is, how fast, and what each update was made of."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from fastdqn import process

RECENT_SECONDS = 10.0
"""Of which the speed is that is shown while a run goes on."""


@dataclass
class Counters:
    """How far a run is; a checkpoint keeps all of it."""

    env_steps: int = 0
    updates: int = 0
    samples: int = 0
    before: int = 0  # env steps before the newest step
    discarded_at: int = 0  # env steps at which the replay was last left empty, because a checkpoint had left it out
    first_update: float | None = None  # seconds since the process began
    first_update_env_steps: int = 0
    first_update_samples: int = 0
    rss: int = 0  # bytes resident, those of child processes too
    peak_rss: int = 0
    neighbours: float = 0.0  # cores that other processes used lately
    values: dict[str, float] = field(default_factory=dict[str, float])  # the script's, of the newest env step
    records: list[list[float]] = field(default_factory=list[list[float]])  # (elapsed, env_steps, updates) each

    def __post_init__(self) -> None:
        self._kept = 0  # records of the processes before this one

    def stepped(self, env_steps: int, values: Mapping[str, float]) -> None:
        """Count a step of the games."""
        self.before = self.env_steps
        self.env_steps += env_steps
        self.values.update(values)

    def updated(self, samples: int) -> None:
        """Count an update on so many samples."""
        self.updates += 1
        self.samples += samples
        if self.first_update is None:
            self.first_update = process.elapsed()
            self.first_update_env_steps, self.first_update_samples = self.env_steps, self.samples

    def record(self, elapsed: float) -> float | None:
        """Note how far the run is after `elapsed` seconds; return env steps/s since there were new ones, None where
        there are none.
        """
        own = self.records[self._kept :] or [[elapsed, self.env_steps, self.updates]]
        newest = own[-1][1]
        *_, since = itertools.takewhile(lambda record: record[1] == newest, reversed(own))
        self.records.append([elapsed, self.env_steps, self.updates])
        seconds = elapsed - since[0]
        return (self.env_steps - newest) / seconds if seconds > 0 and self.env_steps > newest else None

    @property
    def recent_speed(self) -> float | None:
        """Mean env steps/s of the last seconds: between two records alone there may be little but a pause."""
        own = self.records[max(self._kept, len(self.records) - 1000) :]
        newest = own[-1] if own else None
        earlier = [record for record in own[:-1] if newest and record[0] < newest[0]]
        if newest is None or not earlier:
            return None
        since = next((record for record in earlier if record[0] >= newest[0] - RECENT_SECONDS), earlier[-1])
        return (newest[1] - since[1]) / (newest[0] - since[0])

    @property
    def median_speed(self) -> float | None:
        """Median env steps/s between two records since the first update; where most records have no new env steps,
        because many are counted at once, between two that have.
        """
        parts = [self.records[: self._kept], self.records[self._kept :]]  # between them the run stood still
        median = _median_speed(parts)
        if median == 0:
            median = _median_speed([[next(same) for _, same in itertools.groupby(p, lambda r: r[1])] for p in parts])
        return median

    @property
    def samples_per_step(self) -> float | None:
        """Samples trained on for each env step since the first update."""
        env_steps = self.env_steps - self.first_update_env_steps
        return (self.samples - self.first_update_samples) / env_steps if env_steps else None

    def state(self) -> dict[str, Any]:
        """Return copies of all counters."""
        return asdict(self)

    def load(self, state: Mapping[str, Any]) -> None:
        """Have the counters of `state`."""
        for name in asdict(self):
            setattr(self, name, state[name])
        self._kept = len(self.records)


def _median_speed(parts: Sequence[Sequence[Sequence[float]]]) -> float | None:
    """Return the median env steps/s between two records of a part, since the first update."""
    pairs = [pair for part in parts for pair in itertools.pairwise(part) if pair[0][2] > 0]
    speeds = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairs if b[0] > a[0]]
    return statistics.median(speeds) if speeds else None
