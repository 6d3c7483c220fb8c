"""Launching: what the environment says of ranks, and children of which one cannot start."""

from __future__ import annotations

import math
import os
import time
from typing import Any, ClassVar, cast
from unittest import mock

import pytest

from fastdqn.errors import RunError, UserError
from fastdqn.execution import exchange, launch  # noqa: F401 - the first is imported before a clock runs
from fastdqn.execution.launch import joins, words_of_environment
from fastdqn.execution.presence import lookouts
from tests.helpers.scripts import parse


def test_the_environment_of_torchrun_is_found() -> None:
    with mock.patch.dict(os.environ, {"RANK": "1", "WORLD_SIZE": "3"}):
        assert joins() == 3
        assert words_of_environment(["--seed", "1"], None) == ["--seed", "1", "--processes", "3"]
        assert parse("42_sac_ranks", "--published").sac.learning_rate == 3e-3
        with pytest.raises(UserError, match="--processes 2 contradicts the 3 processes"):
            words_of_environment([], "2")
    with mock.patch.dict(os.environ, {"RANK": "3", "WORLD_SIZE": "3"}), pytest.raises(UserError, match="RANK 3"):
        joins()
    with mock.patch.dict(os.environ, {"RANK": "0", "WORLD_SIZE": "2"}):
        with pytest.raises(UserError, match="learns in one process, and WORLD_SIZE"):
            parse("20_a2c")
        assert parse("41_ppo_ranks").ranks.processes == 2
    with mock.patch.dict(os.environ, {"WORLD_SIZE": "2"}), pytest.raises(UserError, match="but not RANK"):
        joins()
    with mock.patch.dict(os.environ, {"WORLD_SIZE": "1"}):
        assert joins() is None
    assert joins() is None


class Child:
    """A rank's process, of which one of several cannot be started."""

    fails = 3
    made: ClassVar[list[Child]] = []

    def __init__(self, _work: object, args: tuple[Any, ...], *_: object) -> None:
        self.rank = int(args[1]["RANK"])
        self.alive, self.asked, self.closed = False, math.inf, math.inf
        self.made.append(self)

    def __enter__(self) -> Child:
        if self.rank == self.fails:
            raise RunError("The process rank 3 could not be started.")
        self.alive = True
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, _request: object) -> None:
        self.asked = time.monotonic()

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def close(self) -> None:
        self.alive, self.closed = False, min(self.closed, time.monotonic())


@pytest.mark.parametrize("fails", [3, 9])
def test_no_rank_is_left_where_a_later_one_cannot_start(monkeypatch: pytest.MonkeyPatch, fails: int) -> None:
    """They would wait for it; they are ended together, and soon. The control: all can, and are there."""
    monkeypatch.setattr(launch, "ChildProcess", Child)
    monkeypatch.setattr(launch, "LEAVE_SECONDS", 0.1)
    monkeypatch.setattr(Child, "fails", fails)
    monkeypatch.setattr(Child, "made", [])
    children, began = launch.Children(cast(Any, None), 4, 1.0), time.monotonic()
    if fails == 3:
        with pytest.raises(RunError, match="could not be started"):
            children.__enter__()
        assert time.monotonic() - began < 20.0
        assert max(child.asked for child in Child.made[:2]) <= min(child.closed for child in Child.made[:2])
    else:
        with children:
            assert [child.alive for child in Child.made] == [True, True, True]
    assert [child.alive for child in Child.made] == [False, False, False]
    assert "RANK" not in os.environ
    assert children._look not in lookouts
