"""01 baseline: plain DQN. Play one env step, train on 32 transitions, repeat.

The idea: none yet. This is the DQN of the 2017 post, the one that every later script is compared with:
classic wrappers, a list of stacked lazy frames as replay, one update for each env step.
"""

import startup  # noqa: F401 - first: the clock, and Ctrl-C during the imports below

from dataclasses import dataclass

from fastdqn import build
from fastdqn.algorithms.dqn import PROGRESS
from fastdqn.algorithms.exploration import epsilon_at
from fastdqn.cli.scripts import start
from fastdqn.options import DQNOptions, GameOptions, RunOptions
from fastdqn.replay.transitions import collate
from fastdqn.runs.run import Run
from fastdqn.schedules import target_sync_due


@dataclass(frozen=True)
class Options:
    run: RunOptions
    game: GameOptions
    dqn: DQNOptions


def train(options: Options) -> Run:
    dqn = options.dqn
    device, learner, replay, player, notes = build.one_game(options.run, options.game, dqn, "classic")

    with Run(__file__, options, device, "classic", notes, PROGRESS, dqn.replay_initial) as run:
        run.weights.tensors = learner.network.state_dict()
        run.track(learner=learner, replay=replay, player=player)

        while not run.over():
            epsilon = epsilon_at(run.env_steps + 1, dqn)
            played = player.step(epsilon)
            replay.extend(played.transitions)
            run.played(played, epsilon=epsilon)
            if len(replay) < dqn.replay_initial:
                continue

            batch = collate(replay.sample(dqn.batch_size), device)
            run.updated(learner.update(batch).scalars, dqn.batch_size)
            if target_sync_due(run.env_steps, dqn.target_sync):
                learner.sync_target()
    return run


if __name__ == "__main__":
    start(train, Options, __doc__)
