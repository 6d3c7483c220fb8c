"""33 Trainer thread: the trainer advances in a thread of its own, beside the loop that steps the environments.

The idea: while an environment computes, or waits for something else, PyTorch can learn, and the other way round. The
loop puts what it plays into a queue with room for 20 steps, or one rollout, and waits while it is full; the trainer
takes what waits until an update is due, makes it, and publishes the policy (as Unity's ML-Agents did, pull request
3690). What is due follows from counters of what the trainer has taken, so that the first env steps end in no burst.

Differs from 31, and with --algorithm ppo from 41: who learns when. --steps-per-update, 10 by default, may be below 1.
With --no-trainer-thread the loop advances the trainer itself; it is then 41, or with --steps-per-update 1 it is 31, bit
for bit. A thread pays where an environment takes long without Python: Python's lock lets one thread run at a time, and
PyTorch's small operations hold it often. So by default there is one for environments that are none of Gymnasium's own,
and with soft actor-critic alone.
"""

import startup  # noqa: F401 - first: the clock, and Ctrl-C during the imports below

from dataclasses import dataclass
from typing import Any

from fastdqn import build_actor_critic, build_sac
from fastdqn.algorithms.a2c import PROGRESS as PPO_PROGRESS
from fastdqn.algorithms.sac import PROGRESS
from fastdqn.cli.scripts import start
from fastdqn.execution.devices import prepare_memory
from fastdqn.execution.trainer_thread import Trainer
from fastdqn.options import GameOptions, PPOOptions, RunOptions, SACOptions, TrainerOptions, VectorOptions
from fastdqn.runs.run import Run


@dataclass(frozen=True)
class Options:
    run: RunOptions
    game: GameOptions
    sac: SACOptions
    vector: VectorOptions
    trainer: TrainerOptions


@dataclass(frozen=True)
class WithPPO:
    run: RunOptions
    game: GameOptions
    ppo: PPOOptions
    vector: VectorOptions
    trainer: TrainerOptions


def train(options: Any) -> Run:  # Options, or WithPPO
    run, game, vector, trained = options.run, options.game, options.vector, options.trainer
    prepare_memory()
    if trained.algorithm == "ppo":
        made, progress = build_actor_critic.rollouts_beside(run, game, options.ppo, vector, trained), PPO_PROGRESS
    else:
        made, progress = build_sac.control_beside(run, game, options.sac, vector, trained), PROGRESS
    learner, player = made.learner, made.player
    trainer = Trainer(made.work, made.learnt, made.played_with, trained.trainer_thread, made.room)

    with Run(__file__, options, made.device, "vector", made.notes, progress, made.warm_up) as run:
        run.weights.tensors = learner.network.state_dict()
        run.timed.enable(vector.profile)
        run.track(trainer=trainer, learner=learner, player=player, **{made.work.name: made.work})

        try:
            with trainer:
                while not run.over():
                    trainer.renew()
                    with run.timed("playing"):
                        played = player.play(run.env_steps, trainer.version)
                    with run.timed("waiting"):
                        trainer.put(played)
                    with run.timed("updates"):
                        while trainer.advance():  # nothing, if it has a thread
                            pass
                    run.played_many(played.env_steps, played.episodes, player.num_envs)
                    count(run, trainer)
        finally:
            count(run, trainer)  # those that it was still to finish
    return run


def count(run: Run, trainer: Trainer[Any]) -> None:
    for update in trainer.said():
        run.updated(update.scalars, update.samples)


if __name__ == "__main__":
    start(train, Options, __doc__, game="Pendulum-v1", others={"ppo": (WithPPO, "CartPole-v1")})
