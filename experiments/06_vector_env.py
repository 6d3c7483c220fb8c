"""06 vector env: many games at once.

The idea: the emulators play N games in threads of their own, and one evaluation of the network chooses all N
actions. No second process, no queue, no pickling.

Differs from 05: the games and who chooses for them. The picture is 05's but for rounding; a lost life no longer
presses FIRE; frames before a game's first are zero. Updates fall due at the same env steps as in 02, whatever N is
(with n-step returns 02's first ones come n - 1 env steps later).
"""

import startup  # noqa: F401 - first: the clock, and Ctrl-C during the imports below

from dataclasses import dataclass

from fastdqn import build
from fastdqn.algorithms.dqn import PROGRESS
from fastdqn.algorithms.exploration import epsilons_at
from fastdqn.cli.scripts import start
from fastdqn.options import DQNOptions, GameOptions, PaceOptions, RunOptions, VectorOptions
from fastdqn.replay.transitions import AsyncCollator
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
    device, games, learner, replay, stacks, policy, notes = build.many_games(
        options.run, options.game, dqn, options.pace, options.vector
    )
    batch_size = dqn.batch_size * steps
    collate = AsyncCollator(batch_size, games.obs_shape, device)

    with Run(__file__, options, device, "vector", notes, PROGRESS, dqn.replay_initial) as run:
        run.weights.tensors = learner.network.state_dict()
        run.timed.enable(options.vector.profile)
        stacks.reset(games.reset())
        run.track(learner=learner, games=games, stacks=stacks, replay=replay, policy=policy)

        while not run.over():
            env_steps = run.env_steps
            epsilon = epsilons_at(env_steps, games.num_envs, dqn)
            with run.timed("acting"):
                actions = policy.act(epsilon)  # for stacks.obs()
            with run.timed("emulator"):
                games.send(actions)
                step = games.recv()
            with run.timed("replay"):
                replay.extend(stacks.add(actions, step))
            run.played_vector(step, epsilon=epsilon[-1])

            for env_step in run.due(steps, dqn.replay_initial):
                with run.timed("replay"):
                    batch = collate(replay.sample(batch_size))
                with run.timed("update"):
                    run.updated(learner.update(batch).scalars, batch_size)
                if target_sync_due(env_step, dqn.target_sync, steps):
                    learner.sync_target()
    return run


if __name__ == "__main__":
    start(train, Options, __doc__)
