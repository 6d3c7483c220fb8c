"""20 A2C: an actor-critic in one process, the reference for 21 and 22.

The idea: the network that plays says how good its position is, too. What came of an action in the next few steps is
compared with that, and the policy moves towards what was better than expected (Mnih et al. 2016; here as Lapan 2020,
chapter 13, without the other processes). There is no replay: what was learnt from is thrown away.

Differs from 06: what is learnt, and that samples are of the newest weights. Pieces of 32 samples have their returns
bootstrapped as they come; four of them make an update.
"""

import startup  # noqa: F401 - first: the clock, and Ctrl-C during the imports below

from dataclasses import dataclass

from fastdqn import build_actor_critic as build
from fastdqn.algorithms.a2c import PROGRESS
from fastdqn.algorithms.pieces import samples_of
from fastdqn.cli.scripts import start
from fastdqn.options import A2COptions, GameOptions, PieceOptions, RunOptions, VectorOptions
from fastdqn.runs.run import Run


@dataclass(frozen=True)
class Options:
    run: RunOptions
    game: GameOptions
    a2c: A2COptions
    pieces: PieceOptions
    vector: VectorOptions


def train(options: Options) -> Run:
    count = options.pieces.pieces
    device, learner, player, notes = build.played_here(
        options.run, options.game, options.a2c, options.pieces, options.vector
    )

    with Run(__file__, options, device, "vector", notes, PROGRESS) as run:
        run.weights.tensors = learner.network.state_dict()
        run.timed.enable(options.vector.profile)
        run.track(learner=learner, player=player)

        while not run.over():
            with run.timed("playing"):
                pieces = [player.piece() for _ in range(count)]
            for piece in pieces:
                run.played_many(piece.env_steps, piece.episodes, player.num_envs)

            with run.timed("update"):
                samples = samples_of(pieces, device)
                run.updated(learner.update(samples).scalars, len(samples.action))
    return run


if __name__ == "__main__":
    start(train, Options, __doc__)
