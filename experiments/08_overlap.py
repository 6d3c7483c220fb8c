"""08 overlap: the emulators play while the learner learns.

The idea: send the actions, make the updates that are due, then receive what came of the actions. No process and no
queue: the emulator's threads work while the GPU (or another core) does.

Differs from 07: the order. The updates that fall due in one step of the games are made during the next one, so that the
actions come from weights that are up to N / steps updates older than the newest (logged as policy lag). The ratio of
updates to env steps and the period of the target network stay exact.
"""

import startup  # noqa: F401 - first: the clock, and Ctrl-C during the imports below

from dataclasses import dataclass

from fastdqn import build
from fastdqn.algorithms.dqn import PROGRESS
from fastdqn.algorithms.exploration import epsilons_at
from fastdqn.cli.scripts import start
from fastdqn.options import DQNOptions, GameOptions, PaceOptions, RunOptions, VectorOptions
from fastdqn.runs.run import Run
from fastdqn.schedules import target_sync_due


@dataclass(frozen=True)
class Options:
    run: RunOptions
    game: GameOptions
    dqn: DQNOptions
    pace: PaceOptions
    vector: VectorOptions


def train(options: Options) -> Run:
    dqn, steps = options.dqn, options.pace.steps
    device, games, learner, replay, policy, _, _, notes = build.games_on_device(
        options.run, options.game, dqn, options.pace, options.vector
    )
    batch_size = dqn.batch_size * steps

    with Run(__file__, options, device, "vector", notes, PROGRESS, dqn.replay_initial) as run:
        run.weights.tensors = learner.network.state_dict()
        run.timed.enable(options.vector.profile)
        replay.reset(games.reset())
        run.track(learner=learner, games=games, replay=replay, policy=policy)

        while not run.over():
            env_steps, updates = run.env_steps, run.updates
            epsilon = epsilons_at(env_steps, games.num_envs, dqn)
            with run.timed("acting"):
                actions = policy.act(epsilon)  # for replay.stacks()
            games.send(actions)

            for env_step in run.due(steps, dqn.replay_initial):
                with run.timed("replay"):
                    batch = replay.sample(batch_size)
                with run.timed("update"):
                    run.updated(learner.update(batch).scalars, batch_size)
                if target_sync_due(env_step, dqn.target_sync, steps):
                    learner.sync_target()

            with run.timed("emulator"):
                step = games.recv()
            with run.timed("replay"):
                replay.add(actions, step)
            run.played_vector(step, policy_lag=run.updates - updates, epsilon=epsilon[-1])
    return run


if __name__ == "__main__":
    start(train, Options, __doc__)
