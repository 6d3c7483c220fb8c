"""07 device replay: the replay lives where the learning happens, and holds every frame once.

The idea: one tensor of frames on the training device. Stacks, n-step returns and ends of episodes are put together
there, by index, a whole batch at a time; only new frames, 7 KB an env step, cross to the device. A million frames
need 7.1 GB.

Differs from 06: the replay; also the observations to act on come from it. What is learnt is the same.

Measured (2 cores, no GPU, see LOG.md): 30.2 env steps/s; drawing and gathering a batch of 32 takes 0.6 ms. The gain is
for GPUs.
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

    with Run("07_device_replay", options, device, notes) as run:
        run.weights = learner.network.state_dict()
        run.where.enable(options.where)
        replay.reset(games.reset())
        policy = make_policy(options, lambda: greedy_actions(learner.greedy, replay.stacks()), games.num_actions)
        run.keep(learner=learner, games=games, replay=replay, policy=policy)

        while not run.over():
            env_steps = run.env_steps
            epsilon = epsilons_at(env_steps, games.num_envs, dqn)
            with run.where("acting"):
                actions = policy.act(epsilon)
            with run.where("emulator"):
                games.send(actions)
                step = games.recv()
            with run.where("replay"):
                replay.add(actions, step)
            run.played_vector(step, epsilon[-1])

            for env_step in run.due(options.steps):
                with run.where("replay"):
                    batch = replay.sample(batch_size)
                with run.where("update"):
                    run.updated(learner.update(batch), batch_size)
                if target_sync_due(env_step, dqn.target_sync, options.steps):
                    learner.sync_target()

    return 0


if __name__ == "__main__":
    cli.start(train, VectorOptions, __doc__)
