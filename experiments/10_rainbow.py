"""10 Rainbow: all eight systems, and any mix of their parts, at 09's speed.

The idea: every part of Rainbow is a choice made before the loop begins. `--variant` names one of dqn, n-step, double,
noisy, prioritized, dueling, distributional and rainbow; --double, --n-step, --noisy, --prioritized, --dueling and
--distributional mix them as one likes, and --no-... takes one out. Priorities live on the device and are drawn from and
written back inside the same graph as the update. `--variant all` runs the eight one after the other, each for as many
--seeds as asked for, and draws their learning curves into one picture.

Measured (2 cores, no GPU, see LOG.md): prioritized makes 0.94 x the env steps/s of dqn, rainbow 0.56 x; an update of
rainbow takes 1.55 x the time of dqn's.

Differs from 09: what is learnt, with other parts than dqn. --variant dqn learns exactly what 09 learns.
"""

import fastdqn.startup  # noqa: F401 - first: the clock, and Ctrl-C during the imports below

import sys
from pathlib import Path

from fastdqn import cli
from fastdqn.acting import epsilons_at
from fastdqn.config import RainbowOptions
from fastdqn.device import keep_freed_memory, prepare_device
from fastdqn.envs.vector import describe_games
from fastdqn.replay.frames import describe_frame_replay
from fastdqn.run import Run
from fastdqn.schedules import groups, target_sync_due
from fastdqn.series import is_series, run_series
from fastdqn.threads import flush_denormals
from fastdqn.variants import (
    describe_arithmetic,
    describe_variant,
    fastest_form,
    fastest_greedy,
    fastest_updates,
    make_games,
    make_learner,
    make_policy,
    make_rainbow_replay,
    make_reporter,
    scheduled,
)


def train(options: RainbowOptions) -> int:
    if is_series(options):
        return run_series(Path(__file__), options, sys.argv[1:])
    dqn = options.dqn
    device = prepare_device(options.run)
    keep_freed_memory()
    flush_denormals()
    games = make_games(options)
    form = fastest_form(options, device)
    learner = make_learner(options, games.obs_shape, games.num_actions, device, form)
    replay = make_rainbow_replay(options, device)
    batch_size = dqn.batch_size * options.steps
    make_updates = fastest_updates(learner, replay, batch_size)
    schedule = scheduled(options, learner, replay)
    reporter = make_reporter(options, learner, replay)
    notes = (
        describe_games(games, options.run.game, options.protocol),
        describe_frame_replay(dqn.replay_size, device, options.frame_size**2),
        describe_variant(options),
        describe_arithmetic(form, device),
    )

    with Run("10_rainbow", options, device, notes) as run:
        run.weights = learner.actor.state_dict()
        run.where.enable(options.where)
        replay.reset(games.reset())
        policy = make_policy(options, fastest_greedy(learner, replay), games.num_actions)
        run.keep(learner=learner, games=games, replay=replay, policy=policy, reporter=reporter)

        while not run.over():
            env_steps, updates = run.env_steps, run.updates
            epsilon = epsilons_at(env_steps, games.num_envs, dqn)
            with run.where("acting"):
                actions = policy.act(epsilon)
            games.send(actions)

            schedule(env_steps)
            if run.updates == 0 and run.due(options.steps):
                learner.see(*replay.pixels())  # nothing without --center-frames or --pixel-floor
            for due in groups(run.due(options.steps), learner.at_once):
                with run.where("update"):
                    for metrics in make_updates(len(due)):
                        run.updated(metrics, batch_size)
                if any(target_sync_due(env_step, dqn.target_sync, options.steps) for env_step in due):
                    learner.sync_target()

            with run.where("emulator"):
                step = games.recv()
            with run.where("replay"):
                replay.add(actions, step)
            run.played_vector(step, epsilon[-1], policy_lag=run.updates - updates)
            if run.updates and reporter.due(run.env_steps):
                with run.where("reports"):
                    run.report(*reporter.report())

    return 0


if __name__ == "__main__":
    cli.start(train, RainbowOptions, __doc__)
