"""07 device replay: the replay is one tensor on the device that learns.

The idea: stacks, n-step returns and ends of episodes are put together there, by index, a whole batch at a time, without
a Python object for each transition; only new frames cross to the device (fastdqn/replay/ring.py). 01 to 06 keep each
frame once, too, by references to it.

Differs from 06: the replay; also the observations to act on come from it. What is learnt is the same.
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
            env_steps = run.env_steps
            epsilon = epsilons_at(env_steps, games.num_envs, dqn)
            with run.timed("acting"):
                actions = policy.act(epsilon)  # for replay.stacks()
            with run.timed("emulator"):
                games.send(actions)
                step = games.recv()
            with run.timed("replay"):
                replay.add(actions, step)
            run.played_vector(step, epsilon=epsilon[-1])

            for env_step in run.due(steps, dqn.replay_initial):
                with run.timed("replay"):
                    batch = replay.sample(batch_size)
                with run.timed("update"):
                    run.updated(learner.update(batch).scalars, batch_size)
                if target_sync_due(env_step, dqn.target_sync, steps):
                    learner.sync_target()
    return run


if __name__ == "__main__":
    start(train, Options, __doc__)
