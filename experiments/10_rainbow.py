"""10 Rainbow: all eight systems, and any mix of their parts, at 09's speed.

The idea: every part of Rainbow is a choice made before the loop begins. `--variant` names one of dqn, n-step, double,
noisy, prioritized, dueling, distributional and rainbow; --double, --n-step, --noisy, --prioritized, --dueling and
--distributional mix them as one likes, and --no-... (--n-step 1) takes one out. Priorities live on the device and are
drawn from and written back inside the same graph as the update.

Differs from 09: what is learnt, with other parts than dqn (--variant dqn learns exactly what 09 learns); priorities are
written back; diagnostics; the weights of the network that plays are saved; no ranks.
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
from fastdqn.execution.threads import Threads
from fastdqn.options.dqn import AgentOptions, DQNOptions, PaceOptions, UpdateOptions
from fastdqn.options.game import GameOptions, VectorOptions
from fastdqn.options.parts import PartOptions, VariantOptions
from fastdqn.options.run import RunOptions
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
    agent: AgentOptions
    parts: PartOptions
    variant: VariantOptions


def train(options: Options) -> Run:
    dqn, steps = options.dqn, options.pace.steps
    prepare_memory()
    device, games, learner, replay, policy, schedule, diagnostics, notes = build.games_on_device(
        *(options.run, options.game, dqn, options.pace, options.vector, options.update, options.agent, options.parts)
    )
    batch_size = dqn.batch_size * steps
    threads = Threads(
        learner, games.obs_shape, games.num_actions, batch_size, games.num_envs, crowded=options.update.crowded_threads
    )

    def eager() -> Metrics:
        batch = replay.sample(batch_size)
        metrics = learner.update(batch)
        replay.write_back(batch, metrics.priority)
        return metrics

    update: Callable[[], Metrics] = eager
    if graphs_on(device):
        update = Graphed(eager, replay.generator, learner.noise)
        policy.greedy = GraphedActions(lambda: learner.act(replay.stacks()), learner.noise)

    with Run(__file__, options, device, "vector", notes, PROGRESS, dqn.replay_initial) as run:
        run.weights.tensors = learner.actor.state_dict()
        run.timed.enable(options.vector.profile)
        replay.reset(games.reset())
        run.track(learner=learner, games=games, replay=replay, policy=policy, diagnostics=diagnostics)

        while not run.over():
            threads.share(run.neighbours.crowded)
            env_steps, updates = run.env_steps, run.updates
            epsilon = epsilons_at(env_steps, games.num_envs, dqn)
            with run.timed("acting"):
                actions = policy.act(epsilon)
            games.send(actions)

            schedule(env_steps)
            if run.updates == 0 and run.due(steps, dqn.replay_initial):
                learner.center_frames(replay.mean_frame())  # nothing without --center-frames
            for env_step in run.due(steps, dqn.replay_initial):
                with run.timed("update"):
                    run.updated(update().scalars, batch_size)
                if target_sync_due(env_step, dqn.target_sync, steps):
                    learner.sync_target()

            with run.timed("emulator"):
                step = games.recv()
            with run.timed("replay"):
                replay.add(actions, step)
            run.played_vector(step, policy_lag=run.updates - updates, epsilon=epsilon[-1])
            if run.updates and diagnostics.due(run.env_steps):
                with run.timed("reports"):
                    run.report(*diagnostics.report())

    return run


if __name__ == "__main__":
    start(train, Options, __doc__)
