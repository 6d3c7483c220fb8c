"""Runs that are stopped and resumed: short settings for each kind of script, and resuming as a user does."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import numpy as np
import torch

from tests.helpers import forks
from tests.helpers.scripts import ROOT, here

SMALL = ("--game", "breakout", "--replay-initial", "60", "--batch-size", "4", "--target-sync", "40", "--n-step", "3")
PLAIN = (*SMALL, "--replay-size", "150", "--epsilon-decay", "200", "--checkpoint-minutes", "None")
VECTOR = (*PLAIN, "--num-envs", "3", "--env-threads", "2", "--steps", "4", "--frame-size", "42")
NARROW = ("--network", "narrow", "--frame-size", "42")
QUIET = ("--threads", "1", "--checkpoint-minutes", "None", "--log-seconds", "1000")
FEW = (*QUIET, "--batch-size", "8", "--replay-initial", "20", "--replay-size", "150")
"""Of soft actor-critic."""
RAINBOW = (
    *(*PLAIN, "--num-envs", "3", "--env-threads", "2", "--steps", "1"),
    *("--variant", "rainbow", *NARROW, "--report-env-steps", "50", "--held-out", "20", "--importance-decay", "260"),
)


def resume(script: str, run: Path, *words: str, code: int = 0) -> str:
    """Resume `run` and return what was printed; in this process if it is to end well.

    Random numbers of the whole process, which a new one would have anew, are others than where the run stopped. An
    environment of one's own is named, as one has to.
    """
    torch.manual_seed(os.getpid())
    np.random.seed()
    random.seed()
    game = json.loads((run / "config.json").read_text())["game"]["name"]
    words = (*words, *(("--game", game) if ":" in game and "--game" not in words else ()))
    if not code:
        return here(script, "--resume", str(run), *words)
    words = (str(ROOT / "experiments" / f"{script}.py"), "--resume", str(run), *words)
    done = forks.run(words)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr
