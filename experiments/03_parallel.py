"""03 parallel: one process plays, another trains.

The idea: the emulator and the optimiser need not wait for each other. The player process owns the
environment, epsilon and the stop test; a queue of at most 2N env steps leads from it to the trainer, which takes
exactly N of them for each update, and so the ratio of updates to env steps never depends on the machine. Both use
the same weights, in shared memory.

Differs from 02: where the env steps come from.

Measured (2 cores, no GPU, see LOG.md): 32.8 env steps/s, 1.10 x 02 and 1.30 x 01. In 2017, on a GTX 1080Ti: 395.
"""

import fastdqn.startup  # noqa: F401 - first: the clock, and Ctrl-C during the imports below

from fastdqn import cli
from fastdqn.config import ParallelOptions
from fastdqn.device import prepare_device
from fastdqn.envs.make import describe, make_env, spaces_of
from fastdqn.parallel.player import PlayerProcess, PlayerWeights
from fastdqn.replay.transitions import collate, describe_replay
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
    notes = (describe(options.run.game, options.protocol, "classic"), describe_replay(dqn.replay_size))

    with Run("03_parallel", options, device, notes) as run:
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

                batch = collate(replay.sample(batch_size), device)
                run.updated(learner.update(batch), batch_size)
                weights.publish()
                if target_sync_due(run.env_steps, dqn.target_sync, options.steps):
                    learner.sync_target()

    return 0


if __name__ == "__main__":
    cli.start(train, ParallelOptions, __doc__)
