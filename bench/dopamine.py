"""Learning curves that Dopamine published for its own agents, in bench/dopamine.json."""

from __future__ import annotations

import json
from pathlib import Path

Curves = dict[str, dict[str, list[list[float]]]]
"""By game and agent: for each million frames the mean score of the games that ended in it, of each seed."""


def published() -> Curves:
    return json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))["games"]
