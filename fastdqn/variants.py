"""Variants: which networks, learner, replay and policy the options stand for, chosen once, at construction."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fastdqn.acting import VectorEpsilonGreedy, greedy_actions
from fastdqn.config import AgentOptions, FastOptions, Options, RecordOptions, VectorOptions
from fastdqn.device import env_threads_of, num_envs_of, wants_bf16
from fastdqn.envs.vector import VectorEnv, check_num_envs, make_vector_env
from fastdqn.errors import UserError
from fastdqn.learner import PLAIN, DQNLearner, Form, Graphed, GraphedActions
from fastdqn.networks import NATURE, SIZES, HeadParts, QNetwork
from fastdqn.objectives import CategoricalObjective, Objective, ValueObjective
from fastdqn.replay.frames import FrameReplay
from fastdqn.replay.prioritized import DeviceReplay, PrioritizedReplay
from fastdqn.replay.transitions import TransitionList, check_memory
from fastdqn.reports import Reporter
from fastdqn.schedules import linear
from fastdqn.seeding import as_int, seeds_of, torch_generator
from fastdqn.threads import SideBySide
from fastdqn.types import Metrics, parts_of


def make_network(options: Options, obs_shape: tuple[int, int, int], num_actions: int) -> nn.Module:
    """Return the network on the CPU; the same seed gives the same weights."""
    generator = torch_generator(seeds_of(options.run.seed).network)
    if not isinstance(options, FastOptions):
        return QNetwork(obs_shape, num_actions, generator)
    head, size = HeadParts(), NATURE
    if isinstance(options, AgentOptions):
        parts, size = options.parts, SIZES[options.network]
        head = HeadParts(
            parts.dueling,
            parts.noise if parts.noisy else None,
            parts.noisy_sigma,
            parts.atoms if parts.distributional else None,
        )
    return QNetwork(
        obs_shape,
        num_actions,
        generator,
        options.frame_scale,
        options.center_frames,
        head,
        size,
        options.pixel_floor,
    )


def make_learner(
    options: Options, obs_shape: tuple[int, int, int], num_actions: int, device: torch.device, form: Form = PLAIN
) -> DQNLearner:
    """Return the learner that `options` describe, with its networks on `device`."""

    def network() -> nn.Module:
        return make_network(options, obs_shape, num_actions)

    agent = options if isinstance(options, AgentOptions) else AgentOptions()
    threads = _threads_of(agent, device)
    noise = torch.Generator(device).manual_seed(as_int(seeds_of(options.run.seed).noise))
    return DQNLearner(
        network().to(device),
        network,
        options.dqn,
        form,
        _objective_of(options, device),
        noise,
        agent.target_average,
        agent.act_with,
        threads,
        options.hold_average if isinstance(options, RecordOptions) else None,
    )


def _threads_of(agent: AgentOptions, device: torch.device) -> SideBySide | None:
    """Return where gradients are computed side by side; None to compute one at a time, as always on a GPU, all of which
    one gradient has already.
    """
    count = agent.gradient_threads
    if count == 1 or device.type != "cpu":
        return None
    return SideBySide(count, max(1, torch.get_num_threads() // count))


def _objective_of(options: Options, device: torch.device) -> Objective:
    if not isinstance(options, AgentOptions) or not options.parts.distributional:
        return ValueObjective()
    parts = options.parts
    return CategoricalObjective(torch.linspace(parts.value_min, parts.value_max, parts.atoms, device=device))


def make_replay(options: Options) -> TransitionList:
    """Return the empty replay.

    Raises:
        UserError: it will not fit into the memory that is available now.
    """
    check_memory(options.dqn.replay_size)
    return TransitionList(options.dqn.replay_size, np.random.default_rng(seeds_of(options.run.seed).replay))


def make_frame_replay(options: VectorOptions, device: torch.device) -> FrameReplay:
    """Return the empty replay of frames on `device`.

    Raises:
        UserError: it will not fit, or is too small for so many games.
    """
    dqn = options.dqn
    return FrameReplay(
        dqn.replay_size,
        num_envs_of(options),
        (options.frame_size, options.frame_size),
        options.protocol.frame_stack,
        dqn.n_step,
        dqn.gamma,
        device,
        as_int(seeds_of(options.run.seed).replay),
        isinstance(options, AgentOptions) and options.end_at_reward,
        channels_last=isinstance(options, FastOptions),
    )


def make_rainbow_replay(options: AgentOptions, device: torch.device) -> DeviceReplay:
    """Return the empty replay of frames on `device`, drawn from uniformly or by priority.

    Raises:
        UserError: it will not fit, or is too small for so many games.
    """
    replay, parts = make_frame_replay(options, device), options.parts
    if not parts.prioritized:
        return replay
    return PrioritizedReplay(replay, parts.priority_exponent, parts.priority_floor)


def make_reporter(options: AgentOptions, learner: DQNLearner, replay: DeviceReplay) -> Reporter:
    """Return what looks into the learner every now and then."""
    seed = as_int(seeds_of(options.run.seed).reports)
    return Reporter(learner, replay, options.report_env_steps, options.held_out, seed)


def describe_variant(options: AgentOptions) -> str:
    """Return one line that names the parts that are on, with their settings."""
    dqn, parts = options.dqn, options.parts
    said = [
        f"{dqn.n_step}-step returns" if dqn.n_step > 1 else "",
        "double" if dqn.double else "",
        "dueling" if parts.dueling else "",
        f"{parts.noise} noise" if parts.noisy else "",
        f"prioritized (alpha {parts.priority_exponent:g}, beta from {parts.importance_exponent:g} to 1 over "
        f"{parts.importance_decay:,} env steps)"
        if parts.prioritized
        else "",
        f"epsilon from {dqn.epsilon_start:g} to {dqn.epsilon_final:g}" if dqn.epsilon_start > 0 else "no epsilon",
        f"{parts.atoms} atoms from {parts.value_min:g} to {parts.value_max:g}" if parts.distributional else "",
        "returns that end at a reward" if options.end_at_reward else "",
    ]
    return f"agent: {options.network} network, {', '.join(part for part in said if part)}"


def make_games(options: VectorOptions) -> VectorEnv:
    """Return the games that `options` ask for.

    Raises:
        UserError: there is no such game, not memory enough for so many, or the run is too short for so many.
    """
    count, dqn, most = num_envs_of(options), options.dqn, options.run.max_env_steps
    check_num_envs(count)
    if dqn.replay_initial < dqn.n_step * count:
        raise UserError(
            f"--replay-initial {dqn.replay_initial} is too little for {count} games at once, whose windows of "
            f"{dqn.n_step} env steps must be complete before the first update; it must be at least "
            f"{dqn.n_step * count}."
        )
    if most is not None and most <= dqn.replay_initial + options.steps + count:
        raise UserError(
            f"--max-env-steps {most} ends the run of {count} games before its first update, which waits for "
            f"--replay-initial {dqn.replay_initial} transitions; raise the first or lower the second."
        )
    return make_vector_env(
        options.run.game,
        options.protocol,
        count,
        seeds_of(options.run.seed).env,
        env_threads_of(options),
        options.frame_size,
    )


def make_policy(
    options: VectorOptions, greedy: Callable[[], NDArray[np.int64]], num_actions: int
) -> VectorEpsilonGreedy:
    """Return the epsilon-greedy policy for all games; `greedy` yields the actions of largest value."""
    rng = np.random.default_rng(seeds_of(options.run.seed).policy)
    return VectorEpsilonGreedy(greedy, num_envs_of(options), num_actions, rng)


def fastest_form(options: FastOptions, device: torch.device) -> Form:
    """Return the form in which an update is fastest on `device`, in the precision that `options` ask for."""
    return Form(channels_last=True, fused=True, bf16=wants_bf16(options, device), graphed=graphs_on(device))


def graphs_on(device: torch.device) -> bool:
    """Tell whether updates and greedy actions are graphs on `device`."""
    return device.type == "cuda"


def describe_arithmetic(form: Form, device: torch.device) -> str:
    """Return one line about the precision of an update in `form` on `device`."""
    if form.bf16:
        return "arithmetic: bf16 with a float32 last layer"
    rounded = device.type == "cuda" and torch.backends.cudnn.allow_tf32
    return f"arithmetic: float32{', TF32 in convolutions' if rounded else ''}"


def fastest_update(learner: DQNLearner, replay: DeviceReplay, batch_size: int) -> Callable[[], Metrics]:
    """Return what draws a batch, trains on it and writes its priorities back where there are any.

    It is a CUDA graph of all that, or on the CPU one after the other.
    """
    once = update_of(learner, replay, batch_size)
    if graphs_on(replay.device):
        return Graphed(once, replay.generator, learner.noise)
    return once


def fastest_updates(learner: DQNLearner, replay: DeviceReplay, batch_size: int) -> Callable[[int], list[Metrics]]:
    """Return what makes so many updates, at most `learner.at_once`, and on the CPU computes their gradients at once."""
    if graphs_on(replay.device):
        once = fastest_update(learner, replay, batch_size)
        return lambda count: [once() for _ in range(count)]
    return updates_of(learner, replay, batch_size)


def update_of(learner: DQNLearner, replay: DeviceReplay, batch_size: int) -> Callable[[], Metrics]:
    """Return what `fastest_update` says, one operation after the other."""
    updates = updates_of(learner, replay, batch_size)
    return lambda: updates(1)[0]


def updates_of(learner: DQNLearner, replay: DeviceReplay, batch_size: int) -> Callable[[int], list[Metrics]]:
    """Return what draws so many batches, trains on them, and writes their priorities back where there are any."""
    if isinstance(replay, FrameReplay):

        def updates_together(count: int) -> list[Metrics]:
            drawn = replay.sample(count * batch_size)  # at once, which costs little more than one batch
            return learner.update_all([(part, None) for part in parts_of(drawn, count)])

        return updates_together

    def updates(count: int) -> list[Metrics]:
        drawn = [replay.sample(batch_size) for _ in range(count)]
        made = learner.update_all([(batch, weight) for batch, weight, _ in drawn])
        for (_, _, slot), metrics in zip(drawn, made, strict=True):
            replay.write_back(slot, metrics.priority)
        return made

    return updates


def fastest_greedy(learner: DQNLearner, replay: DeviceReplay) -> Callable[[], NDArray[np.int64]]:
    """Return what chooses the greedy actions for the newest observations: a CUDA graph, or on the CPU the plain way."""
    if graphs_on(replay.device):
        return GraphedActions(learner, replay.stacks)
    return lambda: greedy_actions(learner.greedy, replay.stacks())


def scheduled(options: FastOptions, learner: DQNLearner, replay: DeviceReplay) -> Callable[[int], None]:
    """Return what sets, at an env step, all that changes with env steps: the step size, and beta with priorities."""
    dqn, final = options.dqn, options.final_learning_rate
    settings: list[Callable[[int], None]] = []
    if final is not None:
        settings.append(
            lambda env_steps: learner.set_learning_rate(
                linear(env_steps, dqn.learning_rate, final, options.learning_rate_decay)
            )
        )
    if isinstance(options, AgentOptions) and isinstance(replay, PrioritizedReplay):
        parts = options.parts
        settings.append(
            lambda env_steps: replay.set_beta(linear(env_steps, parts.importance_exponent, 1.0, parts.importance_decay))
        )

    def set_all(env_steps: int) -> None:
        for setting in settings:
            setting(env_steps)

    return set_all
