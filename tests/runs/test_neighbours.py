"""Neighbours: who else uses the cores."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any, NamedTuple

import pytest

from fastdqn.runs import neighbours
from fastdqn.runs.neighbours import Neighbours


class Core(NamedTuple):
    user: float
    idle: float
    steal: float


class Used(NamedTuple):
    user: float
    system: float


class Running:
    """A process, as psutil shows it."""

    def __init__(self, pid: int, parent: int) -> None:
        self.pid, self.info, self.used = pid, {"ppid": parent}, 0.0

    def cpu_times(self) -> Used:
        return Used(self.used, 0.0)

    def children(self, recursive: bool) -> list[Any]:
        return []


class Clock:
    """A machine of two cores on which the time is what a test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.busy, self.stolen = 0.0, 0.0, 0.0
        self.own, self.stranger = Running(10, 1), Running(30, 1)
        self.running = [self.own, self.stranger]
        self.said: list[str] = []
        self.looks, self.look_seconds = 0, 0.0
        monkeypatch.setattr(neighbours.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(neighbours.psutil, "cpu_times", self.cores)
        monkeypatch.setattr(neighbours.os, "sched_getaffinity", lambda _: {0, 2}, raising=False)
        monkeypatch.setattr(neighbours.psutil, "process_iter", lambda _: self.running)
        parent: Any = self.own
        self.neighbours = Neighbours(parent, self.said.append)

    def cores(self, percpu: bool) -> list[Core]:
        assert percpu
        self.looks += 1
        self.now += self.look_seconds
        used = self.busy + self.stolen
        mine = Core(self.busy / 2, self.now - used / 2, self.stolen / 2)
        return [mine, Core(99.0 * self.now, 0.0, 0.0), mine]  # the one between is not this process's

    def passes(self, seconds: float, own: float, others: float, stolen: float = 0.0) -> None:
        """Let time pass in which this process and others use so many cores."""
        for _ in range(round(seconds)):
            self.now += 1.0
            self.use(self.own, own)
            self.use(self.stranger, others)
            self.stolen += stolen
            self.neighbours.look()

    def use(self, process: Running, seconds: float) -> None:
        process.used += seconds
        self.busy += seconds


def test_dear_looks_are_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine with many processes; the control is a look that costs nothing."""
    machine = Clock(monkeypatch)
    for seconds, looks in ((0.0, 40), (0.05, 8)):
        machine.looks, machine.look_seconds = 0, seconds
        machine.passes(40, own=1.0, others=0.0)
        assert abs(machine.looks - looks) <= 1


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


def test_what_others_leave_on_many_cores_ends_a_crowd(monkeypatch: pytest.MonkeyPatch) -> None:
    used = {"busy": 0.0, "idle": 0.0}
    monkeypatch.setattr(Neighbours, "_used", lambda self: (used["busy"], used["idle"], self._process.used))
    machine = Clock(monkeypatch)

    def second(own: float, others: float, idle: float) -> bool:
        machine.now += 1.0
        machine.own.used += own
        used["busy"] += own + others
        used["idle"] += idle
        machine.neighbours.look()
        return machine.neighbours.crowded

    assert not second(8.0, 36.0, 20.0)  # less is idle than others use, but more than this run does
    assert second(8.0, 50.0, 6.0)
    assert second(1.0, 56.0, 7.0)  # in one thread meanwhile: it had eight cores
    assert not second(1.0, 50.0, 13.0)
    assert second(8.0, 50.0, 6.0)
    assert not second(8.0, 1.0, 55.0)


def test_cores_that_a_container_numbers_anew_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Clock(monkeypatch)
    monkeypatch.setattr(neighbours.os, "sched_getaffinity", lambda _: {37, 53}, raising=False)
    monkeypatch.setattr(machine, "cores", lambda percpu: [Core(machine.busy / 2, machine.now / 2, 0.0)] * 2)
    monkeypatch.setattr(neighbours.psutil, "cpu_times", machine.cores)
    machine.passes(3, own=0.5, others=0.7)
    assert machine.neighbours.cores == pytest.approx(0.7)


@pytest.mark.parametrize("known", [True, False])
def test_other_ranks_and_what_they_have_started_are_no_neighbours(monkeypatch: pytest.MonkeyPatch, known: bool) -> None:
    """Rank 1 has a child, and that another one; the control does not know rank 1."""
    machine = Clock(monkeypatch)
    rank, grandchild, child = Running(20, 1), Running(21, 22), Running(22, 20)
    machine.running += [rank, grandchild, child]
    machine.use(rank, 500.0)  # before it is known
    if known:
        machine.neighbours.beside([20, 99])  # the second has ended
    for _ in range(12):
        for one, seconds in ((rank, 0.5), (child, 0.2), (grandchild, 0.3)):
            machine.use(one, seconds)
        machine.passes(1, own=0.9, others=0.1)
    if known:
        assert machine.neighbours.cores == pytest.approx(0.1)
        assert not machine.neighbours.crowded
        assert machine.said == []
    else:
        assert machine.neighbours.cores == pytest.approx(1.1)
        assert machine.neighbours.crowded
        assert machine.said == ["other processes use 1.1 of the 2 cores: it is slower meanwhile"]


def test_a_process_has_the_children_that_it_has() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        found = {one.pid for one in neighbours.family({os.getpid()})}
        child.communicate(b"\n")
    assert {os.getpid(), child.pid} <= found
    assert os.getppid() not in found
    assert neighbours.family({child.pid}) == []


def test_it_is_said_once_it_has_lasted(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Clock(monkeypatch)
    machine.passes(8, own=1.0, others=1.0)
    machine.passes(4, own=2.0, others=0.0)
    assert machine.said == []
    machine.passes(30, own=1.0, others=1.0)
    assert machine.said == ["other processes use 1.0 of the 2 cores: it is slower meanwhile"]
    machine.passes(30, own=2.0, others=0.0)
    assert machine.said[1:] == ["the cores are free again"]
