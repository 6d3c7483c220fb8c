"""42 in an environment whose games end when chance has it, by each rank's seed. Pendulum's all end after 200 steps, in
both ranks at once.

With TOY_OWN=1 every rank counts its own env steps instead of those of all: the control.
"""

import os
import runpy
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "experiments"), str(ROOT)]

import startup  # noqa: E402, F401 - first: the clock, and Ctrl-C during the imports below

import gymnasium  # noqa: E402
import numpy as np  # noqa: E402
from gymnasium.spaces import Box  # noqa: E402

from fastdqn.cli.scripts import start  # noqa: E402
from fastdqn.execution.exchange import Exchanges  # noqa: E402
from fastdqn.execution.ranks import Ranks  # noqa: E402
from fastdqn.options import GameOptions, RanksOptions, RunOptions, SACOptions, VectorOptions  # noqa: E402


class Wander(gymnasium.Env[Any, Any]):
    """Shows a number between -1 and 1; a game is over with a probability of 0.2 after each step."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012 - as Gymnasium has it
    observation_space = Box(-1.0, 1.0, (1,), np.float32)
    action_space = Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, render_mode: str | None = None) -> None: ...

    def _seen(self) -> Any:
        return self.np_random.uniform(-1.0, 1.0, 1).astype(np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        return self._seen(), float(action[0]), bool(self.np_random.random() < 0.2), False, {}


def _own(self: Ranks, env_steps: int, episodes: Any, at_once: int) -> Any:
    _, ends = gathered(self, env_steps, episodes, at_once)
    return env_steps * self.world, ends


if "Wander-v0" not in gymnasium.registry:  # a child runs this file twice, as its parent's and for its rank
    gymnasium.register("Wander-v0", Wander)
gathered = Exchanges.gathered
if os.environ.get("TOY_OWN"):
    Ranks.gathered = _own  # type: ignore[method-assign]
script = runpy.run_path(str(ROOT / "experiments" / "42_sac_ranks.py"), run_name="fastdqn_rank")


@dataclass(frozen=True)
class Options:
    run: RunOptions
    game: GameOptions
    sac: SACOptions
    vector: VectorOptions
    ranks: RanksOptions


def train(options: Any) -> Any:
    """Train as 42 does."""
    return script["train"](options)


if __name__ == "__main__":
    start(train, Options, __doc__, game="Wander-v0")
