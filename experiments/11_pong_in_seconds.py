"""11 Pong in seconds: everything that pays, put together for one clock.

The idea: the clock runs from the start of the process to the moment when the mean of the last 100 games is above 18.
Without a GPU an env step costs half of a trained sample or less, so the run trains on few samples for each env step,
makes the most of each (centered frames, 5-step returns, a step size that falls). A hundred good games take 170,000 env
steps, in which an agent that learns on does not get better, but is now good, now less so. So one that has won three of
four points is held for a trial: it plays, at two to four times the speed, and learns nothing until a test of its points
says that it loses more than one of ten.
Each second trial may be of an average of the weights (--hold-average).
What it learns from are the newest 50,000 env steps alone, drawn by priority, four samples for each env step (on a GPU,
where they are cheap, 16).
--small does the same with half of all filters and hidden units, a third of the arithmetic, in one thread beside the
games.

Measured (2 cores of Zen 5 with bf16 instructions, no GPU, see LOG.md): solved in 3.8, 3.5, 4.4 and 5.9 minutes (seeds 0
to 3), after 303,992 to 436,591 env steps. --small: in 4.5 and 3.0 minutes (446,949 and 343,166 env steps).

Differs from 10: presets, one for each kind of machine (--device is auto), --small, --hold-share and --hold-average.
"""

import fastdqn.startup  # noqa: F401 - first: the clock, and Ctrl-C during the imports below

import numpy as np

from fastdqn import cli
from fastdqn.acting import epsilons_at
from fastdqn.config import RecordOptions
from fastdqn.device import keep_freed_memory, prepare_device
from fastdqn.envs.vector import describe_games
from fastdqn.holding import Hold
from fastdqn.replay.frames import describe_frame_replay
from fastdqn.run import Run
from fastdqn.schedules import groups, target_sync_due
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


def train(options: RecordOptions) -> int:
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

    with Run("11_pong_in_seconds", options, device, notes) as run:
        run.weights = learner.actor.state_dict()
        run.where.enable(options.where)
        replay.reset(games.reset())
        policy = make_policy(options, fastest_greedy(learner, replay), games.num_actions)
        hold = Hold(options.hold_share, options.hold_slack)
        run.keep(learner=learner, games=games, replay=replay, policy=policy, reporter=reporter, hold=hold)
        learner.rest(hold.on)  # a run that is gone on with

        while not run.over():
            env_steps, updates = run.env_steps, run.updates
            epsilon = epsilons_at(env_steps, games.num_envs, dqn)
            if hold.on:
                epsilon = np.minimum(epsilon, options.hold_epsilon)
            with run.where("acting"):
                actions = policy.act(epsilon)
            games.send(actions)

            schedule(env_steps)
            if run.updates == 0 and run.due(options.steps):
                learner.see(*replay.pixels())  # nothing without --center-frames or --pixel-floor
            # While it is held, copies of the target are left out with the updates.
            for due in groups(() if hold.on else run.due(options.steps), learner.at_once):
                with run.where("update"):
                    for metrics in make_updates(len(due)):
                        run.updated(metrics, batch_size)
                if any(target_sync_due(env_step, dqn.target_sync, options.steps) for env_step in due):
                    learner.sync_target()

            with run.where("emulator"):
                step = games.recv()
            with run.where("replay"):
                replay.add(actions, step)
            if run.updates and hold.see(step.reward):
                learner.rest(hold.on)
                if hold.averaged:
                    learner.swap_average()  # nothing without --hold-average
                run.report(hold.report(), {})
            run.played_vector(step, epsilon[-1], policy_lag=run.updates - updates)
            if run.updates and reporter.due(run.env_steps):
                with run.where("reports"):
                    run.report(*reporter.report())

    return 0


if __name__ == "__main__":
    cli.start(train, RecordOptions, __doc__)
