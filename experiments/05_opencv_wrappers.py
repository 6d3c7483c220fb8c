"""05 OpenCV wrappers: the game in one fast environment instead of nine nested wrappers.

The idea: uint8 all the way (`cv2.cvtColor`, `cv2.resize` by area to the full 84x84), the screen read only for the
two frames whose maximum is shown. On a GPU the player is what limits 04, so this is where its time goes.

Differs from 04: the wrappers, and with them the picture: the full screen, uncropped.
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
        options.run, options.game, dqn, options.pace, options.player, "opencv"
    )
    batch_size = dqn.batch_size * steps
    collate = AsyncCollator(batch_size, obs_shape, device)

    with Run(__file__, options, device, "opencv", notes, PROGRESS, dqn.replay_initial) as run:
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
