"""42 SAC over ranks: many processes play and store, and every update steps by the mean of their gradients.

The idea: an update of soft actor-critic costs far more than the env step that it learns from, and a larger batch costs
more still. So N ranks have games and a replay each, draw a batch each, and step by the mean of their gradients: one
update for N env steps, on N batches at the price of one. All begin with the weights, targets and temperature of rank 0
and make the same steps, so they stay equal; what they see differs.

Differs from 31: what the ranks say to each other. Env steps are those of all; one rank alone is 31, bit for bit. Unlike
in 32 no step is lost: an update waits for the slowest rank, and a run repeats itself.
"""

import startup  # noqa: F401 - first: the clock, and Ctrl-C during the imports below

from dataclasses import dataclass

from fastdqn import build_sac as build
from fastdqn.algorithms.sac import PROGRESS
from fastdqn.cli.scripts import start
from fastdqn.execution.devices import prepare_memory
from fastdqn.execution.ranks import Ranks
from fastdqn.options import GameOptions, RanksOptions, RunOptions, SACOptions, VectorOptions
from fastdqn.runs.ranked import FollowingRun, run_of
from fastdqn.runs.run import Run


@dataclass(frozen=True)
class Options:
    run: RunOptions
    game: GameOptions
    sac: SACOptions
    vector: VectorOptions
    ranks: RanksOptions


def train(options: Options) -> Run | FollowingRun:
    sac = options.sac
    prepare_memory()
    with Ranks(options.ranks) as ranks:
        device, games, learner, replay, policy, notes = build.control_here(
            options.run, options.game, sac, options.vector, ranks
        )
        every, initial = int(sac.steps_per_update) * ranks.world, sac.replay_initial * ranks.world  # env steps of all

        with run_of(ranks, __file__, options, device, "vector", notes, PROGRESS, sac.replay_initial) as run:
            run.weights.tensors = learner.network.state_dict()
            run.timed.enable(options.vector.profile)
            replay.reset(games.reset())
            run.track(learner=learner, games=games, replay=replay, policy=policy)
            ranks.begin(learner)  # all have what rank 0 has

            while not run.over():  # for all or for none
                with run.timed("acting"):
                    actions = policy.act(games.newest, run.env_steps)
                with run.timed("environment"):
                    games.send(actions)
                    step = games.recv()
                with run.timed("replay"):
                    replay.add(actions, step)
                run.played_vector(step)  # gathers: env steps are those of all ranks, and the same for all

                for _ in run.due(every, initial):
                    with run.timed("replay"):
                        batch = replay.sample(sac.batch_size)
                    with run.timed("update"):
                        run.updated(learner.update(batch).scalars, sac.batch_size)  # by the mean of all gradients
    return run


if __name__ == "__main__":
    start(train, Options, __doc__, game="Pendulum-v1")
