"""32 SAC, Hogwild: sessions that learn side by side, and share weights without a lock.

The idea: one core plays and learns at one core's speed, so let every core do both. Each session is a process with
games, replay, target networks and temperature of its own; actor, critics and Adam's moments are one memory for all.
With --distributed shared every session steps that memory directly (Recht et al. 2011), as SLM Lab's async SAC does
(Keng & Graesser 2017); synced, it computes gradients at a copy of its own, steps the shared weights by them, and copies
these. With none nothing is shared: what several runs side by side would do.

Differs from 31: everything but the update itself happens in the sessions (`ControlSession.piece` in
fastdqn/algorithms/sessions.py); this process counts, and keeps the run. One session repeats 31 with one thread, bit for
bit. No run of several is like another: who steps when is up to the machine.
"""

import startup  # noqa: F401 - first: the clock, and Ctrl-C during the imports below

from dataclasses import dataclass

from fastdqn import build_sac as build
from fastdqn.algorithms.sac import PROGRESS
from fastdqn.cli.scripts import start
from fastdqn.execution.session_crew import Sessions, scalars_of
from fastdqn.options import GameOptions, RunOptions, SACOptions, SessionOptions, VectorOptions
from fastdqn.runs.best import Best
from fastdqn.runs.run import Run
from fastdqn.tools.trial import finish_trial


@dataclass(frozen=True)
class Options:
    run: RunOptions
    game: GameOptions
    sac: SACOptions
    vector: VectorOptions
    sessions: SessionOptions


def train(options: Options) -> Run:
    device, learner, weights, commons, descents, plan, notes = build.sessions_elsewhere(
        *(options.run, options.game, options.sac, options.vector, options.sessions)
    )

    with (
        Run(__file__, options, device, "vector", notes, PROGRESS) as run,
        Sessions(plan, weights, descents) as sessions,
    ):
        run.weights.tensors = learner.network.state_dict()
        run.timed.enable(options.vector.profile)
        best = Best(run.folder, run.weights.tensors)
        run.track(sessions=sessions, commons=commons, best=best)

        while not run.over():
            with run.timed("waiting"):
                said = sessions.take()
            if said is None:  # Ctrl-C
                continue
            session, piece = said
            where = {"session_env_steps": piece.total_env_steps, "session_updates": piece.total_updates}
            run.played_many(piece.env_steps, piece.episodes, sessions.at_once, {"session": session, **where})
            for _ in range(piece.updates):
                run.updated(scalars_of(piece), options.sac.batch_size)
            if piece.done:
                run.stop.leave(sessions.places(session))
            best.look(run.stop)
        best.save()
    finish_trial(run)
    return run


if __name__ == "__main__":
    start(train, Options, __doc__, game="Pendulum-v1")
