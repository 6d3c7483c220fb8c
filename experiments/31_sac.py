"""31 SAC: continuous actions, learnt off-policy, by a policy that is rewarded for being random.

The idea: actions are numbers instead of choices, so the best of them cannot be looked up. An actor learns where it
lies, by the gradient of the lower of two critics. It is also rewarded for its entropy, weighted by a temperature that
is learnt, so that it explores as long as nothing speaks against it (Haarnoja et al. 2018a, 2018b).

Differs from 07: vectors are observed and actions are continuous; there is no epsilon, and the target networks follow
the critics at every update. One update for each env step, by Stable-Baselines3's formulas. Evaluations, and the fresh
games of a solved run, are played with the mean action, as Stable-Baselines3 does.
"""

import startup  # noqa: F401 - first: the clock, and Ctrl-C during the imports below

from dataclasses import dataclass

from fastdqn import build_sac as build
from fastdqn.algorithms.sac import PROGRESS
from fastdqn.cli.scripts import start
from fastdqn.execution.devices import prepare_memory
from fastdqn.options import GameOptions, RunOptions, SACOptions, VectorOptions
from fastdqn.runs.run import Run


@dataclass(frozen=True)
class Options:
    run: RunOptions
    game: GameOptions
    sac: SACOptions
    vector: VectorOptions


def train(options: Options) -> Run:
    sac = options.sac
    prepare_memory()
    device, games, learner, replay, policy, notes = build.control_here(options.run, options.game, sac, options.vector)

    with Run(__file__, options, device, "vector", notes, PROGRESS, sac.replay_initial) as run:
        run.weights.tensors = learner.network.state_dict()
        run.timed.enable(options.vector.profile)
        replay.reset(games.reset())
        run.track(learner=learner, games=games, replay=replay, policy=policy)

        while not run.over():
            with run.timed("acting"):
                actions = policy.act(games.newest, run.env_steps)
            with run.timed("environment"):
                games.send(actions)
                step = games.recv()
            with run.timed("replay"):
                replay.add(actions, step)
            run.played_vector(step)

            for _ in run.due(int(sac.steps_per_update), sac.replay_initial):
                with run.timed("replay"):
                    batch = replay.sample(sac.batch_size)
                with run.timed("update"):
                    run.updated(learner.update(batch).scalars, sac.batch_size)
    return run


if __name__ == "__main__":
    start(train, Options, __doc__, game="Pendulum-v1")
