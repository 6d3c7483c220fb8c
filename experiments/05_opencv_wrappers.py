"""05 OpenCV wrappers: the game in one fast environment instead of nine nested wrappers.

The idea: uint8 all the way (`cv2.cvtColor`, `cv2.resize` by area to the full 84x84), the screen read only for the
two frames whose maximum is shown. On a GPU the player is what limits 04, so this is where its time goes.

Differs from 04: the wrappers, and with them the picture: the full screen, uncropped.

Measured (2 cores, no GPU, see LOG.md): 32.6 env steps/s, as 03, for the arithmetic is the limit there; the
environment alone is 1.48 x as fast as the classic one. In 2017, on a GTX 1080Ti: 484.
"""

import fastdqn.startup  # noqa: F401 - first: the clock, and Ctrl-C during the imports below

from fastdqn import cli
from fastdqn.config import ParallelOptions
from fastdqn.device import prepare_device
from fastdqn.envs.make import describe, make_env, spaces_of
from fastdqn.parallel.player import PlayerProcess, PlayerWeights
from fastdqn.replay.transitions import AsyncCollator, describe_replay
from fastdqn.run import Run
from fastdqn.schedules import target_sync_due
from fastdqn.variants import make_learner, make_replay


def train(options: ParallelOptions) -> int:
    dqn = options.dqn
    device = prepare_device(options.run)
    env = make_env(options.run.game, options.protocol, "opencv")
    obs_shape, num_actions = spaces_of(env)
    learner = make_learner(options, obs_shape, num_actions, device)
    weights = PlayerWeights(learner.network, options.player_device)
    replay = make_replay(options)
    batch_size = dqn.batch_size * options.steps
    collate = AsyncCollator(batch_size, obs_shape, device)
    notes = (describe(options.run.game, options.protocol, "opencv"), describe_replay(dqn.replay_size))

    with Run("05_opencv_wrappers", options, device, notes) as run:
        run.weights = learner.network.state_dict()
        run.keep(learner=learner, replay=replay)
        weights.publish()

        with PlayerProcess(options, "opencv", weights, run.stop, run.begun) as player:
            while not run.ended_by(player.reason):
                for message in player.take(options.steps - run.env_steps % options.steps):
                    replay.extend(message.played.transitions)
                    run.played(message.played, message.epsilon)
                if run.env_steps % options.steps or len(replay) < dqn.replay_initial:
                    continue

                batch = collate(replay.sample(batch_size))
                run.updated(learner.update(batch), batch_size)
                weights.publish()
                if target_sync_due(run.env_steps, dqn.target_sync, options.steps):
                    learner.sync_target()

    return 0


if __name__ == "__main__":
    cli.start(train, ParallelOptions, __doc__)
