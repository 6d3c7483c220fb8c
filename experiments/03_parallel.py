"""03 parallel: one process plays, another trains.

The idea: the emulator and the optimiser need not wait for each other. The player process owns the environment, epsilon
and the stop test; a queue of at most 2N env steps leads from it to the trainer, which takes exactly N of them for each
update, and so the ratio of updates to env steps never depends on the machine. Both use the same weights, in shared
memory and without a lock: an action may be chosen in the middle of an update, and no two runs are alike.

Differs from 02: where the env steps come from. The other process runs `_play` in fastdqn/execution/player.py.
"""

import startup  # noqa: F401 - first: the clock, and Ctrl-C during the imports below

from dataclasses import dataclass

from fastdqn import build
from fastdqn.algorithms.dqn import PROGRESS
from fastdqn.cli.scripts import start
from fastdqn.execution.player import PlayerProcess
from fastdqn.options import DQNOptions, GameOptions, PaceOptions, PlayerOptions, RunOptions
from fastdqn.replay.transitions import collate
from fastdqn.runs.run import Run
from fastdqn.schedules import target_sync_due


@dataclass(frozen=True)
class Options:
    run: RunOptions
    game: GameOptions
    dqn: DQNOptions
    pace: PaceOptions
    player: PlayerOptions


def train(options: Options) -> Run:
    dqn, steps = options.dqn, options.pace.steps
    device, learner, replay, weights, plan, _, notes = build.player_elsewhere(
        options.run, options.game, dqn, options.pace, options.player, "classic"
    )
    batch_size = dqn.batch_size * steps

    with Run(__file__, options, device, "classic", notes, PROGRESS, dqn.replay_initial) as run:
        run.weights.tensors = learner.network.state_dict()
        run.track(learner=learner, replay=replay)
        weights.publish()

        with PlayerProcess(plan, weights, run.stop, run.begun) as player:
            while not run.ended_by(player.reason):
                messages = player.take(steps - run.env_steps % steps)  # a resumed run may stand between two updates
                for message in messages:
                    replay.extend(message.played.transitions)
                    run.played(message.played, epsilon=message.epsilon)
                if not messages or run.env_steps % steps or len(replay) < dqn.replay_initial:  # none at Ctrl-C
                    continue

                batch = collate(replay.sample(batch_size), device)
                run.updated(learner.update(batch).scalars, batch_size)
                weights.publish()
                if target_sync_due(run.env_steps, dqn.target_sync, steps):
                    learner.sync_target()
    return run


if __name__ == "__main__":
    start(train, Options, __doc__)
