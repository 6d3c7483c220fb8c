"""04 async copies: host-to-device copies that do not wait.

The idea: a copy from page-locked memory with `non_blocking=True` runs while the host goes on, here to draw and
stack the next batch. Either half without the other gains nothing. Without a GPU there is nothing to copy, and this
is 03.

Differs from 03: AsyncCollator instead of collate.

Measured (2 cores, no GPU, see LOG.md): 32.5 env steps/s, as 03. In 2017, on a GTX 1080Ti: 406.
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
    env = make_env(options.run.game, options.protocol, "classic")
    obs_shape, num_actions = spaces_of(env)
    learner = make_learner(options, obs_shape, num_actions, device)
    weights = PlayerWeights(learner.network, options.player_device)
    replay = make_replay(options)
    batch_size = dqn.batch_size * options.steps
    collate = AsyncCollator(batch_size, obs_shape, device)
    notes = (describe(options.run.game, options.protocol, "classic"), describe_replay(dqn.replay_size))

    with Run("04_cuda_async", options, device, notes) as run:
        run.weights = learner.network.state_dict()
        run.keep(learner=learner, replay=replay)
        weights.publish()

        with PlayerProcess(options, "classic", weights, run.stop, run.begun) as player:
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
