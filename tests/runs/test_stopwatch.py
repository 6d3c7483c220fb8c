"""Where a loop's time goes."""

from __future__ import annotations

from unittest import mock

import pytest
import torch

from fastdqn.runs.stopwatch import Stopwatch, percentages


def test_parts_are_shares_of_the_time_since_it_began() -> None:
    """By hand: 10 seconds, 4 of them in one part and 1 in another; of what is within them 3 since it began."""
    waited, timed = [7.0], Stopwatch(torch.device("cpu"))
    timed.within("waiting", lambda: waited[0])
    timed.enable()
    moments = iter((100.0, 101.0, 105.0, 106.0, 107.0, 110.0))
    with mock.patch("time.perf_counter", moments.__next__):
        with timed("playing"):
            pass  # before it began: not counted
        timed.begin()
        for part in ("update", "playing"):
            with timed(part):
                waited[0] += 1.5
        shares = timed.shares()
    assert shares == pytest.approx({"update": 0.4, "playing": 0.1, "the rest": 0.5, "waiting (within these)": 0.3})
    assert percentages(shares) == "update 40.0%, playing 10.0%, the rest 50.0%, waiting (within these) 30.0%"


def test_what_is_not_enabled_measures_nothing() -> None:
    timed = Stopwatch(torch.device("cpu"))
    timed.begin()
    with timed("update"):
        pass
    assert timed.shares() == {}
