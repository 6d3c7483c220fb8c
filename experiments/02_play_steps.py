"""02 play steps: play N env steps, then make one update on N times as many transitions.

The idea: one large batch costs less than N small ones. The samples per env step stay the same (32), the
optimiser makes one step where it made N. With `--steps 1` this is 01, bit for bit.

Differs from 01: the inner loop over `--steps`; the batch; the target network is copied when the last N
env steps contain a multiple of `--target-sync`.
"""

import startup  # noqa: F401 - first: the clock, and Ctrl-C during the imports below

from dataclasses import dataclass

from fastdqn import build
from fastdqn.algorithms.dqn import PROGRESS
from fastdqn.algorithms.exploration import epsilon_at
from fastdqn.cli.scripts import start
from fastdqn.options import DQNOptions, GameOptions, PaceOptions, RunOptions
from fastdqn.replay.transitions import collate
from fastdqn.runs.run import Run
from fastdqn.schedules import target_sync_due


@dataclass(frozen=True)
class Options:
    run: RunOptions
    game: GameOptions
    dqn: DQNOptions
    pace: PaceOptions


def train(options: Options) -> Run:
    dqn, steps = options.dqn, options.pace.steps
    device, learner, replay, player, notes = build.one_game(options.run, options.game, dqn, "classic", options.pace)
    batch_size = dqn.batch_size * steps

    with Run(__file__, options, device, "classic", notes, PROGRESS, dqn.replay_initial) as run:
        run.weights.tensors = learner.network.state_dict()
        run.track(learner=learner, replay=replay, player=player)

        while not run.over():
            epsilon = epsilon_at(run.env_steps + 1, dqn)
            played = player.step(epsilon)
            replay.extend(played.transitions)
            run.played(played, epsilon=epsilon)
            if run.env_steps % steps or len(replay) < dqn.replay_initial:
                continue

            batch = collate(replay.sample(batch_size), device)
            run.updated(learner.update(batch).scalars, batch_size)
            if target_sync_due(run.env_steps, dqn.target_sync, steps):
                learner.sync_target()
    return run


if __name__ == "__main__":
    start(train, Options, __doc__)
