"""22 A3C, gradient-parallel: players send gradients, one trainer steps by their sum.

The idea: learning is shared out, too. Each player process has games of its own and the trainer's weights in shared
memory, computes the gradient of 64 samples at these weights, clips it, and leaves it in shared memory, in one of two
slots. The trainer sums two gradients (four for Breakout), clips the sum, and steps (Lapan 2020, chapter 13, after Mnih
et al. 2016, whose threads step by themselves).

Differs from 21: what is sent, and where it is computed (`GradientPlayer.piece` in fastdqn/algorithms/pieces.py); a
player learns from its own samples alone, and the sum of clipped gradients is stepped by instead of the mean over all
samples. With --synchronous and --gradients 1, one player's run is that of 20 with --batch-size 64 --pieces 1, but for
the rounding of a second clip.
"""

import startup  # noqa: F401 - first: the clock, and Ctrl-C during the imports below

from dataclasses import dataclass

from fastdqn import build_actor_critic as build
from fastdqn.algorithms.a2c import PROGRESS
from fastdqn.cli.scripts import start
from fastdqn.execution.gradients import Gradients, mean_scalars
from fastdqn.options import (
    A2COptions,
    GameOptions,
    GradientOptions,
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
    gradients: GradientOptions
    vector: VectorOptions
    player: PlayerOptions
    players: PlayersOptions


def train(options: Options) -> Run:
    count = options.gradients.gradients
    device, learner, weights, plan, notes = build.gradients_elsewhere(
        *(options.run, options.game, options.a2c, options.gradients, options.vector, options.player, options.players)
    )
    (group,) = learner.groups()

    with (
        Run(__file__, options, device, "vector", notes, PROGRESS) as run,
        Gradients(plan, weights, group, run.begun) as players,
    ):
        run.weights.tensors = learner.network.state_dict()
        run.timed.enable(options.vector.profile)
        run.track(learner=learner, players=players)
        weights.publish()

        while not run.over():
            with run.timed("waiting"):
                sent = players.take(count)  # sums what is in the slots
            for gradient in sent:
                run.played_many(gradient.env_steps, gradient.episodes, players.at_once)
            if len(sent) < count:  # Ctrl-C
                continue

            with run.timed("step"):
                players.lend(group)
                learner.descent.step(group)
                learner.stepped(group)
                run.updated(mean_scalars(sent), count * options.gradients.batch_size)
            weights.publish()
    return run


if __name__ == "__main__":
    start(train, Options, __doc__)
