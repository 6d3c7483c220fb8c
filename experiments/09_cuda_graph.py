"""09 CUDA graph: one launch for a whole update.

The idea: on a small network a GPU waits for the host, which launches a hundred kernels for each update. So drawing the
indices, putting stacks together, forward, backward and Adam are recorded once and replayed as one graph, as often as
updates are due, between send and recv; acting is a second graph, and putting new frames in place a third
(fastdqn/build.py). bf16 body, channels last, fused Adam. On the CPU the same update runs without a graph, in the
fastest form that was measured.

Differs from 08: how the arithmetic is carried out, not what is computed, but for rounding. The idea is in
`prepare_memory`, `Graphed`, `GraphedActions` and the group `update`. The rest is not about speed: `threads`, one of
PyTorch's while other processes want the cores (fastdqn/execution/threads.py); `schedule` and `center_frames`, which do
nothing unless asked (by --final-learning-rate, --center-frames, --frame-scale, as the agent pong-fast does); and
`ranks`, several processes that play and update by the mean of their gradients, as in 41 (--processes), without the
graphs, into which what they say to each other does not fit.
"""

import startup  # noqa: F401 - first: the clock, and Ctrl-C during the imports below

from collections.abc import Callable
from dataclasses import dataclass

from fastdqn import build
from fastdqn.algorithms.dqn import PROGRESS
from fastdqn.algorithms.exploration import epsilons_at
from fastdqn.cli.scripts import start
from fastdqn.execution.devices import prepare_memory
from fastdqn.execution.graphs import Graphed, GraphedActions, graphs_on
from fastdqn.execution.ranks import Ranks
from fastdqn.execution.threads import Threads
from fastdqn.options import DQNOptions, GameOptions, PaceOptions, RanksOptions, RunOptions, UpdateOptions, VectorOptions
from fastdqn.runs.ranked import FollowingRun, run_of
from fastdqn.runs.run import Run
from fastdqn.schedules import target_sync_due
from fastdqn.types import Metrics


@dataclass(frozen=True)
class Options:
    run: RunOptions
    game: GameOptions
    dqn: DQNOptions
    pace: PaceOptions
    vector: VectorOptions
    update: UpdateOptions
    ranks: RanksOptions


def train(options: Options) -> Run | FollowingRun:
    dqn, steps = options.dqn, options.pace.steps
    prepare_memory()
    with Ranks(options.ranks) as ranks:
        device, games, learner, replay, policy, schedule, _, notes = build.games_on_device(
            options.run, options.game, dqn, options.pace, options.vector, options.update, ranks=ranks
        )
        batch_size, every, initial = dqn.batch_size * steps, steps * ranks.world, dqn.replay_initial * ranks.world
        threads = Threads(
            *(learner, games.obs_shape, games.num_actions, batch_size, games.num_envs),
            crowded=options.update.crowded_threads,
        )

        update: Callable[[], Metrics] = lambda: learner.update(replay.sample(batch_size))  # noqa: E731
        if graphs_on(device) and ranks.alone:
            update = Graphed(update, replay.generator, learner.noise)
            policy.greedy = GraphedActions(lambda: learner.act(replay.stacks()), learner.noise)

        with run_of(ranks, __file__, options, device, "vector", notes, PROGRESS, dqn.replay_initial) as run:
            run.weights.tensors = learner.network.state_dict()
            run.timed.enable(options.vector.profile)
            replay.reset(games.reset())
            run.track(learner=learner, games=games, replay=replay, policy=policy)
            ranks.begin(learner)

            while not run.over():
                threads.share(run.neighbours.crowded)
                env_steps, updates = run.env_steps, run.updates
                epsilon = epsilons_at(env_steps, games.num_envs, dqn)
                with run.timed("acting"):
                    actions = policy.act(epsilon)  # for replay.stacks()
                games.send(actions)

                schedule(env_steps)
                if run.updates == 0 and run.due(every, initial):
                    learner.center_frames(learner.descent.mean(replay.mean_frame()))  # nothing without --center-frames
                for env_step in run.due(every, initial):
                    with run.timed("update"):
                        run.updated(update().scalars, batch_size)
                    if target_sync_due(env_step, dqn.target_sync, every):
                        learner.sync_target()

                with run.timed("emulator"):
                    step = games.recv()
                with run.timed("replay"):
                    replay.add(actions, step)
                run.played_vector(step, policy_lag=run.updates - updates, epsilon=epsilon[-1])
    return run


if __name__ == "__main__":
    start(train, Options, __doc__)
