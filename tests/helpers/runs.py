"""Runs of a script that there is not: its options, and what its loop tells the run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fastdqn.options.dqn import DQNOptions, PaceOptions
from fastdqn.options.game import GameOptions
from fastdqn.options.run import RunOptions
from fastdqn.runs.run import Run
from fastdqn.types import EpisodeEnd, PlayedStep

CPU = torch.device("cpu")
NOTHING = PlayedStep((), ())


@dataclass(frozen=True)
class Options:
    """The groups that 02 has."""

    run: RunOptions
    game: GameOptions
    dqn: DQNOptions
    pace: PaceOptions


def options(folder: Path, **run: Any) -> Options:
    return Options(
        RunOptions(runs_dir=folder, **run),
        GameOptions(),
        DQNOptions(replay_initial=10, batch_size=32),
        PaceOptions(steps=2),
    )


def make_run(folder: Path, script: str = "01_baseline", **run: Any) -> Run:
    """Return a run of `script` that leaves its folder in `folder`."""
    return Run(script, options(folder, **run), CPU, "classic")


def scalars(loss: float = 0.5) -> dict[str, Tensor]:
    return {"loss": torch.tensor(loss), "mean_q": torch.tensor(0.25)}


def game(score: float) -> PlayedStep:
    return PlayedStep((), (EpisodeEnd(score, 4000, False),))
