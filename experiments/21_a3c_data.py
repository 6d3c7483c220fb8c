"""21 A3C, data-parallel: players send samples, one trainer learns from them.

The idea: playing is shared out. Each player process has games of its own, acts with the trainer's weights in shared
memory, where every update is seen at once, and sends pieces of 32 samples, whose returns it has bootstrapped. The
trainer learns once it has four, whoever sent them (Lapan 2020, chapter 13, after Mnih et al. 2016). As many pieces may
wait as there are players, so that none grows old.

Differs from 20: where the pieces come from (`PiecePlayer.piece` in fastdqn/algorithms/pieces.py). Players play on while
the trainer learns, so that samples are up to a few updates old; with --synchronous they wait, and one such player's run
is 20's, bit for bit (with one thread, as here).

Deviates from the book: a queue of one piece for each player instead of one for all, so that a killed player harms
nobody else's.
"""

import startup  # noqa: F401 - first: the clock, and Ctrl-C during the imports below

from dataclasses import dataclass

from fastdqn import build_actor_critic as build
from fastdqn.algorithms.a2c import PROGRESS
from fastdqn.algorithms.pieces import samples_of
from fastdqn.cli.scripts import start
from fastdqn.execution.experience import Experience
from fastdqn.options import (
    A2COptions,
    GameOptions,
    PieceOptions,
    PlayerOptions,
    PlayersOptions,
    RunOptions,
    VectorOptions,
)
from fastdqn.runs.run import Run


@dataclass(frozen=True)
class Options:
    run: RunOptions
    game: GameOptions
    a2c: A2COptions
    pieces: PieceOptions
    vector: VectorOptions
    player: PlayerOptions
    players: PlayersOptions


def train(options: Options) -> Run:
    count = options.pieces.pieces
    device, learner, weights, plan, notes = build.experience_elsewhere(
        *(options.run, options.game, options.a2c, options.pieces, options.vector, options.player, options.players)
    )

    with (
        Run(__file__, options, device, "vector", notes, PROGRESS) as run,
        Experience(plan, weights, run.begun) as players,
    ):
        run.weights.tensors = learner.network.state_dict()
        run.timed.enable(options.vector.profile)
        run.track(learner=learner, players=players)
        weights.publish()

        while not run.over():
            with run.timed("waiting"):
                pieces = players.take(count)
            for piece in pieces:
                run.played_many(piece.env_steps, piece.episodes, players.at_once)
            if len(pieces) < count:  # Ctrl-C
                continue

            with run.timed("update"):
                samples = samples_of(pieces, device)
                run.updated(learner.update(samples).scalars, len(samples.action))
            weights.publish()
    return run


if __name__ == "__main__":
    start(train, Options, __doc__)
