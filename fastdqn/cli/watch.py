"""`fastdqn watch`: one game of a trained network as a video."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Literal

from fastdqn.cli.folders import RUNS, RunFolder, folder_of
from fastdqn.errors import UserError
from fastdqn.options.fields import at_least, between
from fastdqn.terminal import say


@dataclasses.dataclass(frozen=True)
class Watch:
    """Record one game of a trained network as a video."""

    run: RunFolder
    """Folder of the run, "latest" for the newest in --runs-dir, or "demo" for the network that comes with fastdqn."""
    game: str | None = None
    """The environment of your own that the run was trained in, module:function or module:Id-v0: its code is loaded
    only if it is named here."""
    out: Path = Path("watch.mp4")
    """The video: .mp4 or .gif."""
    values: bool = False
    """Draw the value of each action, or for an actor-critic its probability, or the numbers of a continuous one, beside
    the screen."""
    untrained: bool = False
    """Play with initial weights, as the run began, instead of its trained ones."""
    weights: Literal["newest", "best"] = "newest"
    """newest: of the end or the newest checkpoint; best: of when the mean of 100 games was highest, which runs of
    sessions keep."""
    epsilon: float | None = None
    """Share of random actions; by default the run's final one."""
    seed: int = 0
    """Of the game and of random actions."""
    max_env_steps: int = 27_000
    """Longest video (27,000 env steps are 30 minutes); a GIF has at most 1,500."""
    runs_dir: Path = RUNS
    """Where "latest" looks."""


def watch(options: Watch) -> int:
    """Record the video; return the exit code."""
    at_least(options.seed, 0, "--seed")
    at_least(options.max_env_steps, 1, "--max-env-steps")
    between(options.epsilon, 0.0, 1.0, "--epsilon")
    best = options.weights == "best"
    if best and options.untrained:
        raise UserError("--weights best and --untrained contradict each other; give one of them.")
    run = folder_of(options.run, options.runs_dir)
    from fastdqn import process
    from fastdqn.execution.devices import prepare_device
    from fastdqn.tools.evaluate import load_agent
    from fastdqn.tools.watch import record

    agent = load_agent(run, prepare_device(), options.game, untrained=options.untrained, best=best)
    epsilon = agent.epsilon if options.epsilon is None else options.epsilon
    with process.running():
        watched = record(agent, options.out, options.seed, epsilon, options.values, options.max_env_steps)
    ended = "" if watched.over else ", not to its end"
    which = f"{run}{', untrained' if options.untrained else ', best weights' if best else ''}"
    score = f"score {watched.score:,.10g}"
    say(f"{which}: a game of {watched.env_steps:,} env steps{ended}, {score}; written: {watched.out}")
    return process.exit_code()
