"""01 baseline: plain DQN. Play one env step, train on 32 transitions, repeat.

The idea: none yet. This is the DQN of the 2017 post, the one that every later script is compared with:
classic wrappers, a list of stacked lazy frames as replay, one update for each env step.

Measured (2 cores, no GPU, see LOG.md): 25.3 env steps/s. In 2017, on a GTX 1080Ti: 154.
"""

import fastdqn.startup  # noqa: F401 - first: the clock, and Ctrl-C during the imports below

from fastdqn import cli
from fastdqn.acting import epsilon_at, make_player
from fastdqn.config import Options
from fastdqn.device import prepare_device
from fastdqn.envs.make import describe, make_env, spaces_of
from fastdqn.replay.transitions import collate, describe_replay
from fastdqn.run import Run
from fastdqn.schedules import target_sync_due
from fastdqn.variants import make_learner, make_replay


def train(options: Options) -> int:
    dqn = options.dqn
    device = prepare_device(options.run)
    env = make_env(options.run.game, options.protocol, "classic")
    obs_shape, num_actions = spaces_of(env)
    learner = make_learner(options, obs_shape, num_actions, device)
    replay = make_replay(options)
    notes = (describe(options.run.game, options.protocol, "classic"), describe_replay(dqn.replay_size))

    with Run("01_baseline", options, device, notes) as run:
        run.weights = learner.network.state_dict()
        player = make_player(env, learner.network, device, options)
        run.keep(learner=learner, replay=replay, player=player)

        while not run.over():
            epsilon = epsilon_at(run.env_steps + 1, dqn)
            played = player.step(epsilon)
            replay.extend(played.transitions)
            run.played(played, epsilon)
            if len(replay) < dqn.replay_initial:
                continue

            batch = collate(replay.sample(dqn.batch_size), device)
            run.updated(learner.update(batch), dqn.batch_size)
            if target_sync_due(run.env_steps, dqn.target_sync):
                learner.sync_target()

    return 0


if __name__ == "__main__":
    cli.start(train, Options, __doc__)
