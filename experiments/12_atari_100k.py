"""12 Atari-100k: how well an agent plays after 100,000 env steps.

The idea: two hours of play are all there is (Kaiser et al. 2020), so that what counts is how much is learnt from each
env step. One game is played, one env step at a time; from env step 1,600 on there is an update on 32 transitions after
each. Then the final weights play 100 whole games, raw scores, and summary.json has their mean and how it compares with
random play and a person. --agent names the agent by paper; `der` is Data-efficient Rainbow (van Hasselt et al. 2019).

Differs from 10: agents of Atari-100k and its protocol; the evaluation at the end; and, off unless an agent asks for
them, resets, lambda-returns and an average of the weights. The emulator's thread plays on while the update is computed,
as since 08.
"""

import startup  # noqa: F401 - first: the clock, and Ctrl-C during the imports below

from collections.abc import Callable
from dataclasses import dataclass, replace

from torch import Tensor

from fastdqn import build
from fastdqn.algorithms.average import AveragedWeights
from fastdqn.algorithms.dqn import PROGRESS
from fastdqn.algorithms.exploration import actions_for, epsilons_at
from fastdqn.algorithms.resets import Resets
from fastdqn.cli.scripts import start
from fastdqn.envs.vector import check_num_envs
from fastdqn.execution.background import background_on
from fastdqn.execution.devices import prepare_memory
from fastdqn.execution.graphs import Graphed, GraphedActions, graphs_on
from fastdqn.execution.threads import Threads
from fastdqn.options.dqn import AgentOptions, DQNOptions, PaceOptions, UpdateOptions
from fastdqn.options.evaluation import EvaluationOptions
from fastdqn.options.game import GameOptions, VectorOptions
from fastdqn.options.parts import PartOptions, ReturnOptions
from fastdqn.options.resets import ResetOptions
from fastdqn.options.run import RunOptions
from fastdqn.replay.returns import REFRESHED_AT_ONCE
from fastdqn.replay.stored_returns import StoredReturns
from fastdqn.runs.run import Run
from fastdqn.schedules import target_sync_due
from fastdqn.tools.final import evaluate_final
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
    returns: ReturnOptions
    resets: ResetOptions
    evaluation: EvaluationOptions


def train(options: Options) -> Run:
    dqn, steps, evaluation = options.dqn, options.pace.steps, options.evaluation
    prepare_memory()
    check_num_envs(evaluation.evaluation_envs, option="--evaluation-envs")
    resets = Resets(dqn, options.resets, options.run.seed)
    dqn = replace(dqn, n_step=resets.longest)
    device, games, learner, replay, policy, schedule, diagnostics, notes = build.games_on_device(
        *(options.run, options.game, dqn, options.pace, options.vector),
        *(options.update, options.agent, options.parts, options.returns),
    )
    batch_size = dqn.batch_size * steps
    returns = StoredReturns(replay)
    average = AveragedWeights(learner.actor, evaluation.final_average)
    evaluated = (games.num_envs,) if returns.values is None else (games.num_envs, REFRESHED_AT_ONCE)
    crowded = options.update.crowded_threads
    threads = Threads(learner, games.obs_shape, games.num_actions, batch_size, *evaluated, crowded=crowded)

    def eager() -> Metrics:
        batch = replay.sample(batch_size)
        metrics = learner.update(batch)
        replay.write_back(batch, metrics.priority)
        return metrics

    def act(obs: Tensor) -> Tensor:
        return learner.act(obs, returns.values)

    update: Callable[[], Metrics] = eager
    policy.greedy = lambda: actions_for(act, replay.stacks())
    if graphs_on(device):
        update = Graphed(eager, replay.generator, learner.noise)
        policy.greedy = GraphedActions(lambda: act(replay.stacks()), learner.noise)

    notes = (*notes, *options.resets.describe(options.dqn.n_step, dqn.gamma), evaluation.describe())
    with (
        background_on(device) as background,
        Run(__file__, options, device, "vector", notes, PROGRESS, dqn.replay_initial) as run,
    ):
        run.weights.tensors = average.tensors
        run.timed.enable(options.vector.profile)
        replay.reset(games.reset())
        run.track(learner=learner, games=games, replay=replay, policy=policy, diagnostics=diagnostics, **average.parts)

        while not run.over():
            threads.share(run.neighbours.crowded)
            env_steps, updates = run.env_steps, run.updates
            epsilon = epsilons_at(env_steps, games.num_envs, dqn)
            with run.timed("acting"):
                actions = policy.act(epsilon)
            games.send(actions)

            schedule(env_steps)
            due = run.due(steps, dqn.replay_initial)
            if run.updates == 0 and due:
                learner.center_frames(replay.mean_frame())  # nothing without --center-frames
            if due:
                with run.timed("refresh"):  # nothing without --refresh-env-steps
                    returns.refresh(learner.still_values, background.start)
            for env_step in due:
                with run.timed("update"):
                    resets.before(run.updates, learner, replay.windows)  # nothing unless it is asked for
                    run.updated(update().scalars, batch_size)
                    average.updated(run.updates)  # nothing without --final-average
                if target_sync_due(env_step, dqn.target_sync, steps):
                    learner.sync_target()

            with run.timed("emulator"):
                step = games.recv()
            with run.timed("replay"):
                returns.note()
                replay.add(actions, step)
            run.played_vector(step, policy_lag=run.updates - updates, epsilon=epsilon[-1])
            if run.updates and diagnostics.due(run.env_steps):
                with run.timed("reports"):
                    run.report(*diagnostics.report())
    evaluate_final(run, evaluation.evaluation_games, evaluation.evaluation_envs)
    return run


if __name__ == "__main__":
    start(train, Options, __doc__)
