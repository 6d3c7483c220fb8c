"""What a run has learnt and counted, to be compared with that of another one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import safetensors.numpy

from tests.helpers.scripts import records, summary

CLOCK = ("elapsed", "env_steps_per_s", "rss_bytes", "neighbour_cores")


def weights_of(run: Path) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in safetensors.numpy.load_file(run / "weights.safetensors").items()}


def learnt(run: Path) -> tuple[Any, ...]:
    """Everything about a run that must repeat: weights, games, counters, metrics of the last update."""
    episodes = [{k: v for k, v in line.items() if k != "elapsed"} for line in records(run, "episodes.jsonl")]
    last = {k: v for k, v in records(run, "speed.jsonl")[-1].items() if k not in CLOCK}
    return weights_of(run), episodes, last


def learnt_by_any_script(run: Path) -> tuple[Any, ...]:
    """What must be the same in a run of another script: weights, scores, and what was counted in all."""
    scores = [(line["score"], line["frames"]) for line in records(run, "episodes.jsonl")]
    found = summary(run)
    return weights_of(run), scores, [found[name] for name in ("env_steps", "updates", "samples", "episodes")]
