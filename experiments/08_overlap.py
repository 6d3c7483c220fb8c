"""08 overlap: the emulators play while the learner learns.

The idea: send the actions, make the updates that are due, then receive what came of the actions. No process and no
queue: the emulator's threads work while the GPU (or another core) does.

Differs from 07: the order. The updates that fall due in one step of the games are made during the next one, so that the
actions come from weights that are up to N / steps updates older than the newest (logged as policy lag). The ratio of
updates to env steps and the period of the target network stay exact.

Measured (2 cores, no GPU, see LOG.md): 32.3 env steps/s, 97% of what the update makes alone.
"""

import fastdqn.startup  # noqa: F401 - first: the clock, and Ctrl-C during the imports below

from fastdqn import cli
from fastdqn.acting import epsilons_at, greedy_actions
from fastdqn.config import VectorOptions
from fastdqn.device import prepare_device
from fastdqn.envs.vector import describe_games
from fastdqn.replay.frames import describe_frame_replay
from fastdqn.run import Run
from fastdqn.schedules import target_sync_due
from fastdqn.variants import make_frame_replay, make_games, make_learner, make_policy


def train(options: VectorOptions) -> int:
    dqn = options.dqn
    device = prepare_device(options.run)
    games = make_games(options)
    learner = make_learner(options, games.obs_shape, games.num_actions, device)
    replay = make_frame_replay(options, device)
    batch_size = dqn.batch_size * options.steps
    notes = (
        describe_games(games, options.run.game, options.protocol),
        describe_frame_replay(dqn.replay_size, device, options.frame_size**2),
    )

    with Run("08_overlap", options, device, notes) as run:
        run.weights = learner.network.state_dict()
        run.where.enable(options.where)
        replay.reset(games.reset())
        policy = make_policy(options, lambda: greedy_actions(learner.greedy, replay.stacks()), games.num_actions)
        run.keep(learner=learner, games=games, replay=replay, policy=policy)

        while not run.over():
            env_steps, updates = run.env_steps, run.updates
            epsilon = epsilons_at(env_steps, games.num_envs, dqn)
            with run.where("acting"):
                actions = policy.act(epsilon)
            games.send(actions)

            for env_step in run.due(options.steps):
                with run.where("replay"):
                    batch = replay.sample(batch_size)
                with run.where("update"):
                    run.updated(learner.update(batch), batch_size)
                if target_sync_due(env_step, dqn.target_sync, options.steps):
                    learner.sync_target()

            with run.where("emulator"):
                step = games.recv()
            with run.where("replay"):
                replay.add(actions, step)
            run.played_vector(step, epsilon[-1], policy_lag=run.updates - updates)

    return 0


if __name__ == "__main__":
    cli.start(train, VectorOptions, __doc__)
