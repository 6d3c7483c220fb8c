"""41 PPO: several updates on the same play, none of which moves the policy far; and one batch from many processes.

The idea: what was played is dear, so learn from it more than once; but the policy that learns must stay near the one
that played, or the samples say nothing about it. An objective that gains nothing beyond a clip keeps it there (Schulman
et al. 2017). Games are rolled out for 128 steps each; the samples are then learnt from four times, in batches.

With --processes N, torchrun or --engine, N ranks do so side by side, each from games of its own. All begin with the
weights of rank 0, and each update steps by the mean of their gradients, so they stay equal. Rank 0 counts, logs and
saves for all.

Differs from 20: advantages by GAE over whole rollouts instead of windows of a few env steps, several epochs, the clip,
a learning rate that falls to 0; and what the ranks say to each other: `ranks`, and whatever waits for all of them.
"""

import startup  # noqa: F401 - first: the clock, and Ctrl-C during the imports below

from dataclasses import dataclass

from fastdqn import build_actor_critic as build
from fastdqn.algorithms.a2c import PROGRESS
from fastdqn.cli.scripts import start
from fastdqn.execution.devices import prepare_memory
from fastdqn.execution.ranks import Ranks
from fastdqn.options import GameOptions, PPOOptions, RanksOptions, RunOptions, VectorOptions
from fastdqn.runs.ranked import FollowingRun, run_of
from fastdqn.runs.run import Run
from fastdqn.schedules import linear


@dataclass(frozen=True)
class Options:
    run: RunOptions
    game: GameOptions
    ppo: PPOOptions
    vector: VectorOptions
    ranks: RanksOptions


def train(options: Options) -> Run | FollowingRun:
    ppo = options.ppo
    prepare_memory()
    with Ranks(options.ranks) as ranks:
        device, learner, player, notes = build.rollouts_here(options.run, options.game, ppo, options.vector, ranks)

        with run_of(ranks, __file__, options, device, "vector", notes, PROGRESS) as run:
            run.weights.tensors = learner.network.state_dict()
            run.timed.enable(options.vector.profile)
            run.track(learner=learner, player=player)
            ranks.begin(learner)  # all have what rank 0 has

            while not run.over():  # for all or for none
                if ppo.learning_rate_decay:
                    learner.set_learning_rate(linear(run.env_steps, ppo.learning_rate, 0.0, ppo.learning_rate_decay))
                with run.timed("playing"):
                    rollout = player.rollout()
                run.played_many(rollout.env_steps, rollout.episodes, player.num_envs)  # gathers: env steps are of all

                with run.timed("updates"):
                    foreseen = {"explained_variance": rollout.explained_variance()}
                    for batch in rollout.minibatches(ppo.batch_size, ppo.epochs, learner.order):
                        scalars = learner.update(batch).scalars  # by the mean of all gradients
                        if learner.stopped:  # all are, or none
                            break
                        run.updated({**scalars, **foreseen}, len(batch.action))
    return run


if __name__ == "__main__":
    start(train, Options, __doc__)
