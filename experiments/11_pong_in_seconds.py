"""11 Pong in seconds: everything that pays, put together for one clock.

The idea: the clock runs from the start of the process to the moment when the mean of the last 100 games is above 18. A
hundred good games take many env steps, in which an agent that learns on does not get better, but is now good, now less
so. So one that has won enough of its points is frozen for a trial: it plays, at a multiple of the speed, and learns
nothing until a test of its points says that it loses too many. Meanwhile nothing else goes on: its games do not enter
the replay, and the schedules of epsilon, step size and beta stand still. On two cores half of the games is then played
by a process of its own, many rounds before either looks at the other.

The rest is settings (the agent pong-fast, and fastdqn/options/presets.py). It learns lambda-returns of the values that
an average of the weights gave while it played, all recomputed every 2,048 env steps, on two cores in the background,
so that no target network is asked; four samples for each env step, drawn by priority from the newest 49,152. Frames are
centered, the step size falls, and of Pong's screen the playing area is shown, at 60x60 (--crop).

And all that can wait is done while the emulators play: once there are frames, actions are chosen and sent, and only
then is the step stored, counted and learnt from. Several groups of games (--game-groups) can take turns.

Differs from 10: the freeze trial; lambda-returns; that order; settings of its own for pong-fast, and Pong's frames;
--device is auto.
"""

import startup  # noqa: F401 - first: the clock, and Ctrl-C during the imports below

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fastdqn import build, process
from fastdqn.algorithms.dqn import PROGRESS
from fastdqn.algorithms.exploration import epsilons_at
from fastdqn.algorithms.freeze_trial import FreezeTrial
from fastdqn.cli.scripts import start
from fastdqn.envs.turns import Turns, together
from fastdqn.execution.background import background_on
from fastdqn.execution.devices import prepare_memory
from fastdqn.execution.graphs import Graphed, GraphedActions, graphs_on
from fastdqn.execution.halves import ROUNDS, Halves
from fastdqn.execution.side_by_side import SeveralGradients
from fastdqn.execution.threads import Threads
from fastdqn.options.dqn import AgentOptions, DQNOptions, PaceOptions, UpdateOptions
from fastdqn.options.game import GameOptions, TurnOptions, VectorOptions
from fastdqn.options.parts import FreezeOptions, PartOptions, ReturnOptions
from fastdqn.options.run import RunOptions
from fastdqn.replay.newest import NewestStacks
from fastdqn.replay.recorder import Recorder
from fastdqn.replay.returns import REFRESHED_AT_ONCE
from fastdqn.runs.run import Run
from fastdqn.schedules import groups, target_sync_due
from fastdqn.types import Came, Metrics


@dataclass(frozen=True)
class Options:
    run: RunOptions
    game: GameOptions
    dqn: DQNOptions
    pace: PaceOptions
    vector: VectorOptions
    turns: TurnOptions
    update: UpdateOptions
    agent: AgentOptions
    parts: PartOptions
    returns: ReturnOptions
    freeze: FreezeOptions


def train(options: Options) -> Run:
    dqn, steps, freeze = options.dqn, options.pace.steps, options.freeze
    prepare_memory()
    device, games, learner, replay, policy, schedule, diagnostics, notes = build.games_on_device(
        *(options.run, options.game, dqn, options.pace, options.vector),
        *(options.update, options.agent, options.parts, options.returns, options.turns),
        halves=freeze.freeze_share is not None,
    )
    assert isinstance(games, Turns)
    halves = next((group for group in games.groups if isinstance(group, Halves)), None)
    batch_size = dqn.batch_size * steps
    trainer = SeveralGradients(learner, options.agent.gradient_threads, process.cores())
    threads = Threads(
        *(learner, games.obs_shape, games.num_actions, batch_size, games.groups[0].num_envs, REFRESHED_AT_ONCE),
        crowded=options.update.crowded_threads,
    )
    shown = [
        NewestStacks(
            group.num_envs, games.obs_shape, device, channels_last=True, newest=partial(games.newest_of, number)
        )
        for number, group in enumerate(games.groups)
    ]
    holds = dqn.replay_size // games.num_envs * games.num_envs
    recorder = Recorder(replay, shown, min(dqn.replay_initial, holds))
    trial = FreezeTrial(freeze.freeze_share, freeze.freeze_slack)

    def pause(frozen: bool) -> None:
        trainer.pause_updates(frozen)
        recorder.pause(frozen)
        if halves and frozen:
            halves.act_by(learner.still_values())

    def eager(count: int) -> list[Metrics]:
        batches = replay.sample_each(count, batch_size)
        made = trainer.update(batches)
        for batch, metrics in zip(batches, made, strict=True):
            replay.write_back(batch, metrics.priority)
        return made

    def act(number: int) -> Tensor:
        values = recorder.returns.values
        return trainer.act(recorder.stacks(number), None if values is None else values[games.parts[number]])

    def choose(number: int) -> NDArray[np.int64]:
        return act(number).cpu().numpy()

    update: Callable[[int], list[Metrics]] = eager
    greedy: list[Callable[[], NDArray[np.int64]]] = [partial(choose, number) for number in range(len(shown))]
    if graphs_on(device):
        update = Graphed(eager, replay.generator, learner.noise)
        greedy = [GraphedActions(partial(act, number), learner.noise) for number in range(len(shown))]
        policy.always = True  # what a step shows is put in place by the graph that acts on it

    with (
        halves or nullcontext(),
        background_on(device) as background,
        Run(__file__, options, device, "vector", notes, PROGRESS, dqn.replay_initial) as run,
    ):
        run.weights.tensors = learner.actor.state_dict()
        run.timed.enable(options.vector.profile)
        recorder.reset(games.reset())
        run.track(learner=trainer, games=games, replay=recorder, policy=policy, diagnostics=diagnostics, trial=trial)
        pause(trial.frozen)  # in a run that is resumed

        def epsilons(under_way: int) -> NDArray[np.float64]:
            found = epsilons_at(run.env_steps - trial.env_steps + under_way, games.num_envs, dqn)
            return np.full_like(found, dqn.epsilon_final) if trial.frozen else found  # a frozen one plays as at the end

        updates, epsilon = run.updates, epsilons(0)  # when the actions that are under way were chosen

        def turn() -> list[Came]:
            """Let each group play on once it was looked at; return what came of its actions before, if it had any."""
            came: list[Came] = []
            for number, part in enumerate(games.parts):  # while it is this group's turn, the others play
                drawn = policy.draw(epsilon[part])
                if games.sent(number):  # not in the first round
                    with run.timed("emulator"):
                        came.append(games.recv_from(number))
                    with run.timed("replay"):
                        recorder.show(number, came[-1])
                with run.timed("acting"):
                    actions = policy.chosen(drawn, greedy[number])
                games.send_to(number, actions)
            return [together(came)] if came else []

        def rounds(halves: Halves) -> list[Came]:
            """Let both halves play many rounds by themselves; return what came of them, and first of what was sent."""
            before = [games.recv_from(0)] if games.sent(0) else []
            for came in before:
                recorder.show(0, came)
            played = halves.play(recorder.stacks(), [policy.draw(epsilon) for _ in range(ROUNDS)])
            for came in played:
                recorder.show(0, came)
            return before + played

        while not run.over():
            before, epsilon = epsilon, epsilons(games.num_envs if games.sent(0) else 0)
            if halves and recorder.resting:
                with run.timed("frozen play"):
                    came = rounds(halves)
            else:
                came = turn()

            for one in came:  # all that follows is done while the games play again, but for halves
                with run.timed("replay"):
                    recorder.add(one)
            if run.updates and trial.observe([one.step for one in came]):  # a trial begins or ends
                pause(trial.frozen)
                run.report(trial.report())
            for one in came:
                run.played_vector(one.step, policy_lag=run.updates - updates, epsilon=before[-1])
                before = epsilon
            updates = run.updates
            schedule(run.env_steps - trial.env_steps)
            all_due: Sequence[int] = () if trial.frozen or not came else run.due(steps, dqn.replay_initial)
            if not trial.frozen:
                threads.share(run.neighbours.crowded)
            if run.updates == 0 and all_due:
                learner.center_frames(replay.mean_frame())  # nothing without --center-frames
            if all_due:
                with run.timed("refresh"):  # nothing without --refresh-env-steps
                    recorder.returns.refresh(learner.still_values, background.start)
            for due in groups(all_due, trainer.at_once):
                with run.timed("update"):
                    for metrics in update(len(due)):
                        run.updated(metrics.scalars, batch_size)
                if any(target_sync_due(env_step, dqn.target_sync, steps) for env_step in due):
                    learner.sync_target()
            with run.timed("replay"):
                recorder.note()
            if run.updates and not trial.frozen and diagnostics.due(run.env_steps):
                with run.timed("reports"):
                    run.report(*diagnostics.report())
    return run


if __name__ == "__main__":
    start(train, Options, __doc__, device="auto")
