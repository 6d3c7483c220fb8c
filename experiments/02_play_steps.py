"""02 play steps: play N env steps, then make one update on N times as many transitions.

The idea: one large batch costs less than N small ones. The samples per env step stay the same (32), the
optimiser makes one step where it made N. With `--steps 1` this is 01, bit for bit.

Differs from 01: the inner loop over `--steps`; the batch; the target network is copied when the last N
env steps contain a multiple of `--target-sync`.

Measured (2 cores, no GPU, see LOG.md): 30.4 env steps/s, 1.18 x 01. In 2017, on a GTX 1080Ti: 227.
"""

import fastdqn.startup  # noqa: F401 - first: the clock, and Ctrl-C during the imports below

from fastdqn import cli
from fastdqn.acting import epsilon_at, make_player
from fastdqn.config import PlayStepsOptions
from fastdqn.device import prepare_device
from fastdqn.envs.make import describe, make_env, spaces_of
from fastdqn.replay.transitions import collate, describe_replay
from fastdqn.run import Run
from fastdqn.schedules import target_sync_due
from fastdqn.variants import make_learner, make_replay


def train(options: PlayStepsOptions) -> int:
    dqn = options.dqn
    device = prepare_device(options.run)
    env = make_env(options.run.game, options.protocol, "classic")
    obs_shape, num_actions = spaces_of(env)
    learner = make_learner(options, obs_shape, num_actions, device)
    replay = make_replay(options)
    batch_size = dqn.batch_size * options.steps
    notes = (describe(options.run.game, options.protocol, "classic"), describe_replay(dqn.replay_size))

    with Run("02_play_steps", options, device, notes) as run:
        run.weights = learner.network.state_dict()
        player = make_player(env, learner.network, device, options)
        run.keep(learner=learner, replay=replay, player=player)

        while not run.over():
            epsilon = epsilon_at(run.env_steps + 1, dqn)
            played = player.step(epsilon)
            replay.extend(played.transitions)
            run.played(played, epsilon)
            if run.env_steps % options.steps or len(replay) < dqn.replay_initial:
                continue

            batch = collate(replay.sample(batch_size), device)
            run.updated(learner.update(batch), batch_size)
            if target_sync_due(run.env_steps, dqn.target_sync, options.steps):
                learner.sync_target()

    return 0


if __name__ == "__main__":
    cli.start(train, PlayStepsOptions, __doc__)
