"""41 PPO: several updates on the same play, none of which moves the policy far.

The idea: what was played is dear, so learn from it more than once; but the policy that learns must stay near the one
that played, or the samples say nothing about it. An objective that gains nothing beyond a clip keeps it there (Schulman
et al. 2017). Games are rolled out for 128 steps each; the samples are then learnt from four times, in batches.

Differs from 20: advantages by GAE over whole rollouts instead of windows of a few env steps, several epochs, the clip,
and a step size that falls to 0. One process so far.
"""

import startup  # noqa: F401 - first: the clock, and Ctrl-C during the imports below

from dataclasses import dataclass

from fastdqn import build_actor_critic as build
from fastdqn.algorithms.a2c import PROGRESS
from fastdqn.cli.scripts import start
from fastdqn.execution.devices import prepare_memory
from fastdqn.options import GameOptions, PPOOptions, RunOptions, VectorOptions
from fastdqn.runs.run import Run
from fastdqn.schedules import linear


@dataclass(frozen=True)
class Options:
    run: RunOptions
    game: GameOptions
    ppo: PPOOptions
    vector: VectorOptions


def train(options: Options) -> Run:
    ppo = options.ppo
    prepare_memory()
    device, learner, player, notes = build.rollouts_here(options.run, options.game, ppo, options.vector)

    with Run(__file__, options, device, "vector", notes, PROGRESS) as run:
        run.weights.tensors = learner.network.state_dict()
        run.timed.enable(options.vector.profile)
        run.track(learner=learner, player=player)

        while not run.over():
            if ppo.learning_rate_decay is not None:
                learner.set_learning_rate(linear(run.env_steps, ppo.learning_rate, 0.0, ppo.learning_rate_decay))
            with run.timed("playing"):
                rollout = player.rollout()
            run.played_many(rollout.env_steps, rollout.episodes, player.num_envs)

            with run.timed("updates"):
                foreseen = {"explained_variance": rollout.explained_variance()}
                for batch in rollout.minibatches(ppo.batch_size, ppo.epochs, learner.order):
                    scalars = learner.update(batch).scalars
                    if learner.stopped:
                        break
                    run.updated({**scalars, **foreseen}, len(batch.action))
    return run


if __name__ == "__main__":
    start(train, Options, __doc__)
