"""04 async copies: host-to-device copies that do not wait.

The idea: a plain copy waits until the device has done all that it was given before, which is the whole previous update.
A copy from page-locked memory with `non_blocking=True` does not wait: the host goes on, here to draw and stack the next
batch. Either half without the other gains nothing. Without a GPU there is nothing to copy, and this is 03.

Differs from 03: AsyncCollator instead of collate; it writes frames straight into page-locked memory, so that the host
copies them once less, too.
"""

import startup  # noqa: F401 - first: the clock, and Ctrl-C during the imports below

from dataclasses import dataclass

from fastdqn import build
from fastdqn.algorithms.dqn import PROGRESS
from fastdqn.cli.scripts import start
from fastdqn.execution.player import PlayerProcess
from fastdqn.options import DQNOptions, GameOptions, PaceOptions, PlayerOptions, RunOptions
from fastdqn.replay.transitions import AsyncCollator
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
    device, learner, replay, weights, plan, obs_shape, notes = build.player_elsewhere(
        options.run, options.game, dqn, options.pace, options.player, "classic"
    )
    batch_size = dqn.batch_size * steps
    collate = AsyncCollator(batch_size, obs_shape, device)

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

                batch = collate(replay.sample(batch_size))
                run.updated(learner.update(batch).scalars, batch_size)
                weights.publish()
                if target_sync_due(run.env_steps, dqn.target_sync, steps):
                    learner.sync_target()
    return run


if __name__ == "__main__":
    start(train, Options, __doc__)
