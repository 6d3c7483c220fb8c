"""Times a checkpoint while a run is going on: how long it stands still, how long the file takes, how large it is.

    python bench/checkpoint.py
    python bench/checkpoint.py --game breakout --replay-size 300000

The replay is filled with real frames of random play, which are repeated until it is full; then 09's loop runs, and
three checkpoints are taken in it, one after the other.
"""

import startup  # noqa: F401 - first: Ctrl-C during the imports below

import dataclasses
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fastdqn.build import games_on_device
from fastdqn.cli.parser import parsed
from fastdqn.errors import UserError
from fastdqn.execution.devices import prepare_memory
from fastdqn.execution.graphs import Graphed, GraphedActions, graphs_on
from fastdqn.options.dqn import DQNOptions, PaceOptions, UpdateOptions
from fastdqn.options.game import GameOptions, VectorOptions
from fastdqn.options.run import RunOptions
from fastdqn.runs.checkpoint import Checkpoints, newest, read
from fastdqn.types import Metrics, VectorStep


@dataclasses.dataclass(frozen=True)
class CheckpointOptions:
    game: str = "pong"
    """The game whose frames fill the replay."""
    replay_size: int = 1_000_000
    """Frames in the replay."""
    played: int = 20_000
    """Env steps that are really played; their frames are repeated."""
    num_envs: int = 16
    """Games at once."""
    device: str = "cpu"
    """Where the learner and the replay are."""
    repeats: int = 3
    """Checkpoints."""
    seconds: float = 5.0
    """How long the loop runs before the first and between two."""


def measure(options: CheckpointOptions) -> None:
    """Print a sentence and a line of JSON for each checkpoint."""
    dqn = DQNOptions(replay_size=options.replay_size, replay_initial=1_000)
    run, game = RunOptions(device=options.device), GameOptions(name=options.game)
    prepare_memory()
    device, games, learner, replay, policy, *_ = games_on_device(
        run, game, dqn, PaceOptions(), VectorOptions(num_envs=options.num_envs), UpdateOptions()
    )
    update: Callable[[], Metrics] = lambda: learner.update(replay.sample(128))  # noqa: E731
    if graphs_on(device):
        update = Graphed(update, replay.generator, learner.noise)
        policy.greedy = GraphedActions(lambda: learner.act(replay.stacks()), learner.noise)
    rng = np.random.default_rng(0)

    replay.reset(games.reset())
    steps: list[tuple[np.ndarray, VectorStep]] = []
    for _ in range(options.played // games.num_envs):
        actions = rng.integers(games.num_actions, size=games.num_envs)
        games.send(actions)
        step = games.recv()
        steps.append((actions, VectorStep(step.frames.copy(), *step[1:])))
        replay.add(*steps[-1])
    for i in range(options.replay_size // games.num_envs + 5):
        replay.add(*steps[i % len(steps)])

    def round_of_the_loop() -> float:
        begin = time.perf_counter()
        actions = policy.act(np.full(games.num_envs, 0.05))
        games.send(actions)
        float(update().scalars["loss"])
        replay.add(actions, games.recv())
        return time.perf_counter() - begin

    def rounds(seconds: float) -> list[float]:
        took: list[float] = []
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            took.append(round_of_the_loop())
        return took

    rounds(1.0)
    parts = {"learner": learner, "games": games, "replay": replay, "policy": policy}
    usual = statistics.median(rounds(options.seconds))
    lines: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        config = {"script": "bench", "game": {"name": options.game}}
        checkpoints = Checkpoints(Path(folder), {"script": "bench", "game": options.game, "config": config})
        for i in range(options.repeats):
            begin = time.perf_counter()
            checkpoints.begin(i, lambda: {name: part.state() for name, part in parts.items()})
            began = time.perf_counter() - begin
            meanwhile: list[float] = []
            while (saved := checkpoints.ended()) is None:
                meanwhile.append(round_of_the_loop())
            begin = time.perf_counter()
            replay.load(read(newest(Path(folder)))["replay"])
            loaded = time.perf_counter() - begin
            lines.append(
                {
                    "frames": len(replay),
                    "megabytes": saved.size / 1e6,
                    "begin_s": began,
                    "longest_round_s": max(meanwhile, default=0.0),
                    "usual_round_s": usual,
                    "rounds_meanwhile": len(meanwhile),
                    "written_s": saved.written,
                    "loaded_s": loaded,
                }
            )
            rounds(options.seconds)
    print(f"{options.game}, {len(replay):,} frames ({len(replay) * 7056 / 1e9:.2f} GB) on {device}")
    for line in lines:
        stood = line["begin_s"] + max(0.0, line["longest_round_s"] - usual)
        print(
            f"stood still {stood:.2f} s; written in {line['written_s']:.1f} s, {line['megabytes']:.0f} MB; a round "
            f"{1e3 * usual:.0f} ms, meanwhile at most {1e3 * line['longest_round_s']:.0f} ms; read in "
            f"{line['loaded_s']:.1f} s"
        )
        print(json.dumps({name: round(value, 4) for name, value in line.items()}))


def main() -> int:
    try:
        options = parsed(CheckpointOptions, sys.argv[1:], CheckpointOptions(), __doc__ or "")
        if min(options.played, options.replay_size) < 100 * options.num_envs:
            raise UserError("--played and --replay-size must be at least 100 for each game.")
        if options.seconds <= 0 or options.repeats < 1:
            raise UserError("--seconds must be more than 0 and --repeats at least 1.")
        measure(options)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
