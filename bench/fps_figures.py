"""Figures of a script that was timed: from the counters that it logs, and from several turns."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from fastdqn.errors import RunError


def playing(config: dict[str, Any]) -> int:
    """Return how many processes play in a run of this config.json."""
    several = (("players", "players"), ("sessions", "sessions"), ("ranks", "processes"))
    return math.prod(config.get(group, {}).get(setting, 1) for group, setting in several)


def steady_state(lines: list[dict[str, Any]], warmup: float, label: str) -> dict[str, Any]:
    """Return speeds between the first record `warmup` seconds after the first update and the last record.

    Of a script that plays much at a time and then learns, records count in which it has just played.

    Raises:
        RunError: there were no updates in that time: that is no speed.
    """
    trained = [line for line in lines if line["updates"] > 0]
    if not trained:
        raise RunError(f"{label} made no update at all: there is nothing to time.")
    window = [line for line in trained if line["elapsed"] >= trained[0]["elapsed"] + warmup]
    played = [line for before, line in itertools.pairwise(window) if line["env_steps"] > before["env_steps"]]
    window = played if len(played) > 1 else window or trained[-1:]
    first, last = window[0], window[-1]
    seconds, updates = last["elapsed"] - first["elapsed"], last["updates"] - first["updates"]
    env_steps = last["env_steps"] - first["env_steps"]
    if updates <= 0 or env_steps <= 0:
        raise RunError(f"{label} made no update in the measured time; give it more --seconds.")
    return {
        "env_steps_per_s": env_steps / seconds,
        "updates_per_s": updates / seconds,
        "samples_per_step": (last["samples"] - first["samples"]) / env_steps,
        "batch_size": (last["samples"] - first["samples"]) / updates,  # of all processes together
        "measured_seconds": seconds,
    }


def ratios(over: Sequence[float], under: Sequence[float]) -> list[float]:
    """Return the ratios within each turn."""
    return [a / b for a, b in zip(over, under, strict=True)]


def median_ratio(over: Sequence[float], under: Sequence[float]) -> float:
    """Return the median of the ratios within each turn."""
    return statistics.median(ratios(over, under))


def gains_of(speeds: Mapping[str, Sequence[float]]) -> list[float]:
    """Return how many times as fast the last form was in each turn as the better one of those before, by its median: of
    two noisy speeds the larger of each turn would be too high.
    """
    *before, last = speeds.values()
    return ratios(last, max(before, key=statistics.median))


def share_of(
    ceilings: dict[Any, list[float]], what: str, words: dict[str, tuple[str, ...]], speeds: list[float]
) -> float | None:
    """Return the median share of a ceiling; None if there is none, or if it failed in one of the turns."""
    alone = ceilings.get((what, words[what]), []) if words else []
    return median_ratio(speeds, alone) if len(alone) == len(speeds) else None
