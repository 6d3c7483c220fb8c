"""Results of runs that were never made, for reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fastdqn.tools.sweep.results import sealed, write_result


def make_results(folder: Path, scores: Mapping[str, Iterable[float]], agent: str = "der", **others: Any) -> Path:
    """Write a result for each score of each game, with seeds from 0 on, and return the folder of the sweep."""
    for game, runs in scores.items():
        for seed, score in enumerate(runs):
            said = {
                "script": "12_atari_100k",
                "name": f"{game}-{agent}-{seed}",
                "asked": {"game": game, "agent": agent, "seed": str(seed)},
                "game": game,
                "agent": agent,
                "seed": seed,
                "score": score,
                "score_of": "evaluation",
                "ended": "max-env-steps",
                "minutes": 30.0,
                "env_steps": 100_000,
                "cores": 2,
                "cpu": "a processor",
                "commit": "abc",
                "options": {},
            }
            write_result(folder, sealed({**said, **others}))
    return folder
