"""41 whose ranks exchange by Gloo, as those of several machines do, although they are on one."""

import runpy
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "experiments"), str(ROOT)]

import startup  # noqa: E402, F401 - first: the clock, and Ctrl-C during the imports below

from fastdqn.cli.scripts import start  # noqa: E402
from fastdqn.execution import exchange  # noqa: E402
from fastdqn.options import GameOptions, PPOOptions, RanksOptions, RunOptions, VectorOptions  # noqa: E402

exchange.network_here = lambda: 0
script = runpy.run_path(str(ROOT / "experiments" / "41_ppo_ranks.py"), run_name="fastdqn_rank")


@dataclass(frozen=True)
class Options:
    run: RunOptions
    game: GameOptions
    ppo: PPOOptions
    vector: VectorOptions
    ranks: RanksOptions


def train(options: Any) -> Any:
    """Train as 41 does."""
    return script["train"](options)


if __name__ == "__main__":
    start(train, Options, __doc__)
