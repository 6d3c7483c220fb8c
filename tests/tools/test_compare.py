"""Comparing runs."""

from __future__ import annotations

import numpy as np

from fastdqn.tools.compare import bootstrap, interquartile_mean


def test_interquartile_mean_by_hand() -> None:
    assert interquartile_mean(np.array([100.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, -50.0])) == 3.5  # two cut at each end
    assert interquartile_mean(np.array([1.0, 2.0, 9.0])) == 4.0  # a quarter of three is less than one
    assert bootstrap(np.array([5.0, 5.0, 5.0])) == (5.0, 5.0, 5.0)
    interval = bootstrap(np.arange(20.0))
    assert interval.low < interval.value == 9.5 < interval.high
