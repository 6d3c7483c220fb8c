"""Neighbours: who else uses the cores."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from fastdqn.runs import neighbours
from fastdqn.runs.neighbours import Neighbours


class Core(NamedTuple):
    user: float
    idle: float
    steal: float


class Own(NamedTuple):
    user: float
    system: float


class Clock:
    """A machine of two cores on which the time is what a test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.busy, self.stolen, self.own = 0.0, 0.0, 0.0, 0.0
        self.said: list[str] = []
        monkeypatch.setattr(neighbours.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(neighbours.psutil, "cpu_times", self.cores)
        monkeypatch.setattr(neighbours.os, "sched_getaffinity", lambda _: {0, 2}, raising=False)
        parent: Any = self
        self.neighbours = Neighbours(parent, self.said.append)

    def cores(self, percpu: bool) -> list[Core]:
        assert percpu
        used = self.busy + self.stolen
        mine = Core(self.busy / 2, self.now - used / 2, self.stolen / 2)
        return [mine, Core(99.0 * self.now, 0.0, 0.0), mine]  # the one between is not this process's

    def cpu_times(self) -> Own:
        return Own(self.own, 0.0)

    def children(self, recursive: bool) -> list[Any]:
        return []

    def passes(self, seconds: float, own: float, others: float, stolen: float = 0.0) -> None:
        """Let time pass in which this process and others use so many cores."""
        for _ in range(round(seconds)):
            self.now += 1.0
            self.own += own
            self.busy += own + others
            self.stolen += stolen
            self.neighbours.look()


def test_others_are_what_is_busy_and_not_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Clock(monkeypatch)
    machine.passes(3, own=1.9, others=0.1)
    assert not machine.neighbours.crowded
    assert machine.neighbours.cores == pytest.approx(0.1)
    machine.passes(1, own=1.1, others=0.9)
    assert machine.neighbours.crowded
    machine.passes(1, own=1.0, others=0.3)
    assert machine.neighbours.crowded  # a little is still left
    machine.passes(1, own=1.0, others=0.1)
    assert not machine.neighbours.crowded
    machine.passes(1, own=1.2, others=0.0, stolen=0.8)  # by other virtual machines
    assert machine.neighbours.crowded


def test_a_busy_process_beside_free_cores_is_no_crowd(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Clock(monkeypatch)
    machine.passes(3, own=0.2, others=0.5)
    assert not machine.neighbours.crowded


def test_it_is_said_once_it_has_lasted(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Clock(monkeypatch)
    machine.passes(8, own=1.0, others=1.0)
    machine.passes(4, own=2.0, others=0.0)
    assert machine.said == []
    machine.passes(30, own=1.0, others=1.0)
    assert machine.said == ["other processes use 1.0 of the 2 cores: it is slower meanwhile"]
    machine.passes(30, own=2.0, others=0.0)
    assert machine.said[1:] == ["the cores are free again"]
