"""11 Pong in seconds: everything that pays, put together for one clock.

The idea: the clock runs from the start of the process to the moment when the mean of the last 100 games is above 18. A
hundred good games take many env steps, in which an agent that learns on does not get better, but is now good, now less
so. So one that has won enough of its points is frozen for a trial: it plays, at a multiple of the speed, and learns
nothing until a test of its points says that it loses too many. Meanwhile nothing else goes on: its games do not enter
the replay, and the schedules of epsilon, learning rate and beta stand still. On two cores half of the games is then
played by a process of its own, many rounds before either looks at the other.

The rest is settings (the agent pong-fast, and fastdqn/options/presets.py). It learns lambda-returns of the values that
an average of the weights gave while it played, all recomputed now and then, on two cores in the background, so that no
target network is asked; samples are drawn by priority, from the newest env steps alone. Frames are centered. Once the
agent wins, the learning rate falls and gamma rises. Of Pong's screen the playing area is shown, at 60x60 (--crop).

And all that can wait is done while the emulators play: once there are frames, actions are chosen and sent, and only
then is the step stored, counted and learnt from. In an update the gradients of weights, for which no other layer waits,
are found by a thread of their own, on the core that the emulators have left by then.

Differs from 10: the freeze trial; lambda-returns; that order; settings of its own for pong-fast, and Pong's frames;
--device is auto.
"""

import startup  # noqa: F401 - first: the clock, and Ctrl-C during the imports below

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fastdqn import build
from fastdqn.algorithms.dqn import PROGRESS
from fastdqn.algorithms.exploration import epsilons_at
from fastdqn.algorithms.freeze_trial import FreezeTrial
from fastdqn.cli.scripts import start
from fastdqn.envs.in_flight import InFlight
from fastdqn.execution.background import background_on
from fastdqn.execution.devices import prepare_memory
from fastdqn.execution.graphs import Graphed, GraphedActions, graphs_on
from fastdqn.execution.halves import ROUNDS, Halves
from fastdqn.execution.threads import Threads
from fastdqn.options.dqn import AgentOptions, DQNOptions, PaceOptions, UpdateOptions
from fastdqn.options.game import GameOptions, VectorOptions
from fastdqn.options.parts import FreezeOptions, PartOptions, ReturnOptions
from fastdqn.options.run import RunOptions
from fastdqn.replay.newest import NewestStacks
from fastdqn.replay.recorder import Recorder
from fastdqn.replay.returns import REFRESHED_AT_ONCE
from fastdqn.runs.run import Run
from fastdqn.schedules import target_sync_due
from fastdqn.types import Came, Metrics


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
    freeze: FreezeOptions


def train(options: Options) -> Run:
    dqn, steps, freeze = options.dqn, options.pace.steps, options.freeze
    prepare_memory()
    device, games, learner, replay, policy, schedule, diagnostics, notes = build.games_on_device(
        *(options.run, options.game, dqn, options.pace, options.vector),
        *(options.update, options.agent, options.parts, options.returns),
        in_flight=True,
        halves=freeze.freeze_share is not None,
    )
    assert isinstance(games, InFlight)
    halves = games if isinstance(games, Halves) else None
    freeze_notes = freeze.describe(options.update.final_learning_rate, options.returns.final_gamma)
    batch_size = dqn.batch_size * steps
    threads = Threads(
        *(learner, games.obs_shape, games.num_actions, batch_size, games.num_envs, REFRESHED_AT_ONCE),
        crowded=options.update.crowded_threads,
    )
    shown = NewestStacks(games.num_envs, games.obs_shape, device, channels_last=True, newest=lambda: games.newest)
    capacity = dqn.replay_size // games.num_envs * games.num_envs
    recorder = Recorder(replay, shown, min(dqn.replay_initial, capacity))
    trial = FreezeTrial(freeze.freeze_share, freeze.freeze_slack, freeze.decay_share)

    def pause(frozen: bool) -> None:
        recorder.pause(frozen)
        if halves and frozen:
            halves.act_by(learner.still_values())

    def eager() -> Metrics:
        batch = replay.sample(batch_size)
        metrics = learner.update(batch)
        replay.write_back(batch, metrics.priority)
        return metrics

    def act() -> Tensor:
        return learner.act(recorder.stacks(), recorder.returns.values)

    update: Callable[[], Metrics] = eager
    policy.greedy = lambda: act().cpu().numpy()
    if graphs_on(device):
        update = Graphed(eager, replay.generator, learner.noise)
        policy.greedy = GraphedActions(act, learner.noise)
        policy.always = True  # what a step shows is put in place by the graph that acts on it

    with (
        halves or nullcontext(),
        background_on(device) as background,
        background_on(device) as aside,  # a thread of its own: the other one's pieces take long
        Run(__file__, options, device, "vector", (*notes, *freeze_notes), PROGRESS, dqn.replay_initial) as run,
    ):
        run.weights.tensors = learner.actor.state_dict()
        learner.aside = aside.start
        run.timed.enable(options.vector.profile)
        recorder.reset(games.reset())
        run.track(learner=learner, games=games, replay=recorder, policy=policy, diagnostics=diagnostics, trial=trial)
        pause(trial.frozen)  # in a run that is resumed

        def epsilons(in_flight: int) -> NDArray[np.float64]:
            found = epsilons_at(run.env_steps - trial.frozen_env_steps + in_flight, games.num_envs, dqn)
            return np.full_like(found, dqn.epsilon_final) if trial.frozen else found  # a frozen one plays as at the end

        updates, epsilon = run.updates, epsilons(0)  # when the actions that are in flight were chosen

        def received() -> list[Came]:
            """Return what came of the actions in flight, if there are any; it is shown to the agent."""
            came: list[Came] = []
            if games.sent:  # not in the first round
                with run.timed("emulator"):
                    came.append(games.came())
                with run.timed("replay"):
                    recorder.show(came[0])
            return came

        def turn() -> list[Came]:
            """Let the games play on once they were looked at; return what came of their actions before."""
            came = received()
            with run.timed("acting"):
                actions = policy.act(epsilon)
            games.send(actions)
            return came

        def rounds(halves: Halves) -> list[Came]:
            """Let both halves play many rounds by themselves; return what came of them, and first of what was sent."""
            before = received()
            with run.timed("frozen play"):
                played = halves.play(recorder.stacks(), [policy.draw(epsilon) for _ in range(ROUNDS)])
                for came in played:
                    recorder.show(came)
            return before + played

        while not run.over():
            epsilon_before, epsilon = epsilon, epsilons(games.num_envs if games.sent else 0)
            came = rounds(halves) if halves and recorder.resting else turn()
            for one in came:  # all that follows is done while the games play again, but for halves
                with run.timed("replay"):
                    recorder.add(one)
            if run.updates and trial.observe([one.step for one in came]):  # a trial begins or ends
                pause(trial.frozen)
                run.report(trial.report())
            for one in came:
                run.played_vector(one.step, policy_lag=run.updates - updates, epsilon=epsilon_before[-1])
                epsilon_before = epsilon  # of the first alone the actions were chosen before this round
            updates = run.updates
            learnt = run.env_steps - trial.frozen_env_steps
            schedule(learnt, trial.decay.elapsed(learnt))
            due = range(0) if trial.frozen or not came else run.due(steps, dqn.replay_initial)
            if not trial.frozen:
                threads.share(run.neighbours.crowded)
            if run.updates == 0 and due:
                learner.center_frames(replay.mean_frame())  # nothing without --center-frames
            if due:
                with run.timed("refresh"):  # nothing without --refresh-env-steps
                    recorder.returns.refresh(learner.still_values, background.start)
            for env_step in due:
                with run.timed("update"):
                    run.updated(update().scalars, batch_size)
                if target_sync_due(env_step, dqn.target_sync, steps):
                    learner.sync_target()
            with run.timed("replay"):
                recorder.note()
            if run.updates and not trial.frozen and diagnostics.due(run.env_steps):
                with run.timed("reports"):
                    run.report(*diagnostics.report())
    return run


if __name__ == "__main__":
    start(train, Options, __doc__, device="auto")
