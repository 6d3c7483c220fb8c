"""09 CUDA graph: one launch for a whole update.

The idea: on a small network a GPU waits for the host, which launches a hundred kernels for each update. So
drawing the indices, putting stacks together, forward, backward and Adam are recorded once and replayed as one graph, as
often as updates are due, between send and recv; acting is a second graph. bf16 body, channels last, fused
Adam. On the CPU the same update runs without a graph, in the fastest form that was measured.

Differs from 08: how the arithmetic is carried out, not what is computed. (Three options that change what is learnt live
here, off unless asked for: --center-frames, --frame-scale, --final-learning-rate; the preset pong-fast asks for them.)

Measured (2 cores, no GPU, see LOG.md): 42.5 env steps/s, 1.75 x 01. Pong, with the preset pong-fast: solved in 17.5
and 20.4 minutes (seeds 0 and 1).
"""

import fastdqn.startup  # noqa: F401 - first: the clock, and Ctrl-C during the imports below

from fastdqn import cli
from fastdqn.acting import epsilons_at
from fastdqn.config import FastOptions
from fastdqn.device import keep_freed_memory, prepare_device
from fastdqn.envs.vector import describe_games
from fastdqn.replay.frames import describe_frame_replay
from fastdqn.run import Run
from fastdqn.schedules import target_sync_due
from fastdqn.threads import flush_denormals
from fastdqn.variants import (
    describe_arithmetic,
    fastest_form,
    fastest_greedy,
    fastest_update,
    make_frame_replay,
    make_games,
    make_learner,
    make_policy,
    scheduled,
)


def train(options: FastOptions) -> int:
    dqn = options.dqn
    device = prepare_device(options.run)
    keep_freed_memory()
    flush_denormals()
    games = make_games(options)
    form = fastest_form(options, device)
    learner = make_learner(options, games.obs_shape, games.num_actions, device, form)
    replay = make_frame_replay(options, device)
    batch_size = dqn.batch_size * options.steps
    update = fastest_update(learner, replay, batch_size)
    schedule = scheduled(options, learner, replay)
    notes = (
        describe_games(games, options.run.game, options.protocol),
        describe_frame_replay(dqn.replay_size, device, options.frame_size**2),
        describe_arithmetic(form, device),
    )

    with Run("09_cuda_graph", options, device, notes) as run:
        run.weights = learner.network.state_dict()
        run.where.enable(options.where)
        replay.reset(games.reset())
        policy = make_policy(options, fastest_greedy(learner, replay), games.num_actions)
        run.keep(learner=learner, games=games, replay=replay, policy=policy)

        while not run.over():
            env_steps, updates = run.env_steps, run.updates
            epsilon = epsilons_at(env_steps, games.num_envs, dqn)
            with run.where("acting"):
                actions = policy.act(epsilon)
            games.send(actions)

            schedule(env_steps)
            if run.updates == 0 and run.due(options.steps):
                learner.see(*replay.pixels())  # nothing without --center-frames or --pixel-floor
            for env_step in run.due(options.steps):
                with run.where("update"):
                    run.updated(update(), batch_size)
                if target_sync_due(env_step, dqn.target_sync, options.steps):
                    learner.sync_target()

            with run.where("emulator"):
                step = games.recv()
            with run.where("replay"):
                replay.add(actions, step)
            run.played_vector(step, epsilon[-1], policy_lag=run.updates - updates)

    return 0


if __name__ == "__main__":
    cli.start(train, FastOptions, __doc__)
