"""From groups of options to nouns: environments, learners, replays, policies. The order of events is the scripts'.

A group that a script does not have is None, and what it would ask for is off.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fastdqn import process
from fastdqn.algorithms.augmentation import Augmentation
from fastdqn.algorithms.diagnostics import Diagnostics
from fastdqn.algorithms.dqn import DQNLearner, Settings
from fastdqn.algorithms.exploration import EpsilonGreedy, Player, VectorEpsilonGreedy, actions_for, epsilon_at
from fastdqn.algorithms.form import PLAIN, Form
from fastdqn.algorithms.losses import clipped_td_errors, rescaled, squared_td_errors
from fastdqn.algorithms.objectives import CategoricalObjective, HistogramObjective, Objective, ValueObjective
from fastdqn.envs.build import PlayEnv, Wrappers, build_described, build_env, spaces_of
from fastdqn.envs.in_flight import InFlight
from fastdqn.envs.many import build_games, num_envs_of
from fastdqn.envs.vector import VectorEnv, check_num_envs
from fastdqn.errors import UserError, counted
from fastdqn.execution.devices import check_default_dtype, describe_device, prepare_device
from fastdqn.execution.first_calls import first_calls
from fastdqn.execution.graphs import Graphed
from fastdqn.execution.halves import halves_of
from fastdqn.execution.player import PlayerPlan, PlayerWeights
from fastdqn.execution.ranks import ALONE, Ranks
from fastdqn.execution.wire import window_for
from fastdqn.forms import fastest_form
from fastdqn.networks.qnetwork import HeadParts, QNetwork
from fastdqn.networks.torso import SIZES, describe_unread
from fastdqn.nouns import GamesOnDevice, ManyGames, OneGame, PlayerElsewhere, Schedule
from fastdqn.options.agents import AGENTS
from fastdqn.options.dqn import AgentOptions, DQNOptions, PaceOptions, UpdateOptions
from fastdqn.options.game import GameOptions, PlayerOptions, VectorOptions
from fastdqn.options.parts import PartOptions, ReturnOptions
from fastdqn.options.run import RunOptions
from fastdqn.replay.memory import (
    check_device_memory,
    check_memory,
    describe_frame_replay,
    describe_replay,
    replay_device,
)
from fastdqn.replay.nstep import NStep
from fastdqn.replay.prioritized import DeviceReplay, PrioritizedReplay, frames_of
from fastdqn.replay.returns import ReturnReplay
from fastdqn.replay.ring import MOST_ACTIONS, FrameReplay
from fastdqn.replay.stacks import GameStacks
from fastdqn.replay.transitions import TransitionList
from fastdqn.schedules import geometric, linear
from fastdqn.seam import Descent
from fastdqn.seeds import Seeds, as_int, seeds_of, torch_generator


def one_game(
    run: RunOptions, game: GameOptions, dqn: DQNOptions, wrappers: Wrappers, pace: PaceOptions | None = None
) -> OneGame:
    """Return what plays and learns one game in this process.

    Raises:
        UserError: there is no such game or device, or the replay does not fit into the memory.
    """
    device, seeds = prepare_device(run.device, run.cuda, run.threads), seeds_of(run.seed)
    env, note = build_described(game, wrappers)
    shape, num_actions = spaces_of(env)
    learner = build_learner(seeds, dqn, shape, num_actions, device)
    replay = build_list_replay(seeds, dqn, shape)
    player = build_player(env, run.seed, dqn, learner.network)
    notes = [*describe_device(device), note, *describe_unread(learner.network), _learning(dqn, pace)]
    notes += [run.describe_end(), _describe_list(dqn, shape)]
    every = AGENTS[dqn.agent].settings.get("pace", {}).get("steps", 1)
    if pace is None and every > 1:
        by_paper = f"those of {dqn.agent} are on {every * dqn.batch_size} every {every}"
        notes.insert(-2, f"updates are on {dqn.batch_size} transitions after each env step; {by_paper}")
    return OneGame(device, learner, replay, player, tuple(notes))


def player_elsewhere(
    run: RunOptions, game: GameOptions, dqn: DQNOptions, pace: PaceOptions, player: PlayerOptions, wrappers: Wrappers
) -> PlayerElsewhere:
    """Return what learns one game in this process, and what another one needs to play it.

    Raises:
        UserError: there is no such game or device, or the replay does not fit into the memory.
    """
    device, seeds = prepare_device(run.device, run.cuda, run.threads), seeds_of(run.seed)
    env, note = build_described(game, wrappers)
    shape, num_actions = spaces_of(env)
    learner = build_learner(seeds, dqn, shape, num_actions, device)
    weights = PlayerWeights(learner.network, player.player_device)
    plan = PlayerPlan(
        partial(_player_of, run.seed, game, dqn, wrappers),
        partial(epsilon_at, dqn=dqn),
        window_for(game.frame_stack, dqn.n_step),
        2 * pace.steps,
        player.player_timeout,
    )
    notes = (*describe_device(device), note, *describe_unread(learner.network), _learning(dqn, pace))
    notes += (run.describe_end(), _describe_list(dqn, shape))
    return PlayerElsewhere(device, learner, build_list_replay(seeds, dqn, shape), weights, plan, shape, notes)


def many_games(
    run: RunOptions, game: GameOptions, dqn: DQNOptions, pace: PaceOptions, vector: VectorOptions
) -> ManyGames:
    """Return what plays and learns many games at once, with a list replay.

    Raises:
        UserError: there is no such game or device, or games or replay do not fit.
    """
    device, seeds = prepare_device(run.device, run.cuda, run.threads), seeds_of(run.seed)
    check_games(num_envs_of(vector), run, dqn, pace)  # before memory is taken for them
    envs, note = build_games(game, vector, seeds.env)
    learner = build_learner(seeds, dqn, envs.obs_shape, envs.num_actions, device)
    replay = build_list_replay(seeds, dqn, envs.obs_shape)
    stacks = GameStacks(envs.num_envs, envs.obs_shape[1:], game.frame_stack, dqn.n_step, dqn.gamma)
    policy = build_policy(lambda: actions_for(learner.act, torch.from_numpy(stacks.obs()).to(device)), envs, seeds)
    notes = (
        *describe_device(device),
        note,
        *describe_unread(learner.network),
        _learning(dqn, pace),
        run.describe_end(),
        _describe_list(dqn, envs.obs_shape),
    )
    return ManyGames(device, envs, learner, replay, stacks, policy, notes)


def games_on_device(
    run: RunOptions,
    game: GameOptions,
    dqn: DQNOptions,
    pace: PaceOptions,
    vector: VectorOptions,
    update: UpdateOptions | None = None,
    agent: AgentOptions | None = None,
    parts: PartOptions | None = None,
    returns: ReturnOptions | None = None,
    ranks: Ranks = ALONE,
    in_flight: bool = False,
    halves: bool = False,
) -> GamesOnDevice:
    """Return what plays and learns many games at once, with the replay on the device that trains; this process is one
    of `ranks`. With `in_flight` a checkpoint may be made while actions are in flight. With `halves` an agent without
    noise on a CPU may be told to play Atari's games in two halves.

    Raises:
        UserError: there is no such game or device, or games or replay do not fit.
    """
    device, seeds, vector = ranks.place(run, vector)
    returns = None if returns is None or returns.trace_decay is None else returns
    count = num_envs_of(vector)
    check_games(count, run, dqn, pace, returns, game.frame_stack, ranks.world)  # before memory is taken for them
    apart = halves and device.type == "cpu" and not (parts is not None and parts.noisy)
    elsewhere = process.cores() > 1 and vector.env_threads != 1
    halve = partial(halves_of, elsewhere=elsewhere) if apart else None
    wait = first_calls(device)
    try:
        envs, note = build_games(game, vector, seeds.env, halve=halve)
    finally:
        wait()
    if in_flight and not isinstance(envs, InFlight):
        envs = InFlight((envs,))
    form = PLAIN if update is None else fastest_form(update.precision, device)
    learner = build_learner(
        *(seeds, dqn, envs.obs_shape, envs.num_actions, device, form, update, agent, parts),
        returns=returns,
        descent=ranks.descent,
    )
    last = update is not None
    replay = build_device_replay(seeds, dqn, envs, device, parts, returns, channels_last=last, ranks=ranks)
    if form.capturable and ranks.alone:
        frames = frames_of(replay)
        frames.landing = Graphed(frames.land)
    policy = build_policy(lambda: actions_for(learner.act, replay.stacks()), envs, seeds)
    policy.always = returns is not None
    reported = agent or AgentOptions()
    notes = [*describe_device(device), *ranks.notes, note, *describe_unread(learner.network)]
    notes.append(_learning(dqn, pace, update, agent, parts, returns))
    if parts is not None:
        notes.append(parts.describe(reported.describe(), dqn.double))
    notes += [run.describe_end(), describe_frame_replay(dqn.replay_size, device, vector.frame_size**2)]
    if update is not None:
        notes.append(form.describe(device))
    return GamesOnDevice(
        device,
        envs,
        learner,
        replay,
        policy,
        schedule_of(dqn, update, parts, learner, replay, returns),
        Diagnostics(learner, replay, reported.report_env_steps, reported.held_out, as_int(seeds.reports)),
        tuple(notes),
    )


def build_network(
    seeds: Seeds,
    obs_shape: tuple[int, int, int],
    num_actions: int,
    update: UpdateOptions | None = None,
    agent: AgentOptions | None = None,
    parts: PartOptions | None = None,
) -> nn.Module:
    """Return the network on the CPU; the same seed gives the same weights."""
    entering, parts = update or UpdateOptions(), parts or PartOptions()
    head = HeadParts(
        parts.dueling,
        parts.noise if parts.noisy else None,
        parts.noisy_sigma,
        parts.atoms if parts.distributional else None,
    )
    agent, generator = agent or AgentOptions(), torch_generator(seeds.network)
    entered = entering.frame_scale, entering.center_frames
    size = SIZES[agent.network]
    return QNetwork(obs_shape, num_actions, generator, *entered, head, size, agent.init)


def build_learner(
    seeds: Seeds,
    dqn: DQNOptions,
    obs_shape: tuple[int, int, int],
    num_actions: int,
    device: torch.device,
    form: Form = PLAIN,
    update: UpdateOptions | None = None,
    agent: AgentOptions | None = None,
    parts: PartOptions | None = None,
    returns: ReturnOptions | None = None,
    descent: Descent | None = None,
) -> DQNLearner:
    """Return the learner, with its networks on `device`; one that learns whole returns needs no target network.

    Raises:
        UserError: PyTorch's default numbers are not float32.
    """
    check_default_dtype()
    bootstrap = returns is None or returns.trace_decay is None
    network = partial(build_network, seeds, obs_shape, num_actions, update, agent, parts)
    agent = agent or AgentOptions()
    rmsprop = dqn.rmsprop_epsilon if dqn.optimizer == "rmsprop" else None
    settings = Settings(
        *(dqn.learning_rate, dqn.adam_epsilon, rmsprop, dqn.double, agent.target_average),
        *(bootstrap and dqn.target_sync == 1, agent.act_with, dqn.max_norm, dqn.weight_decay, bootstrap),
    )
    noise = torch.Generator(device).manual_seed(as_int(seeds.noise))
    augmentation = None
    if update is not None and (update.random_shift or update.random_intensity):
        augmentation = Augmentation(update.random_shift, update.random_intensity)
    objective = _objective_of(dqn, parts, device, bootstrap)
    online = network().to(device)
    return DQNLearner(online, network, settings, form, objective, noise, descent, augmentation)


def build_list_replay(seeds: Seeds, dqn: DQNOptions, obs_shape: tuple[int, int, int]) -> TransitionList:
    """Return the empty replay of observations (C, H, W).

    Raises:
        UserError: it will not fit into the memory that is available now.
    """
    check_memory(dqn.replay_size, frame_bytes=math.prod(obs_shape[1:]))
    return TransitionList(dqn.replay_size, np.random.default_rng(seeds.replay))


def build_device_replay(
    seeds: Seeds,
    dqn: DQNOptions,
    envs: VectorEnv,
    device: torch.device,
    parts: PartOptions | None = None,
    returns: ReturnOptions | None = None,
    channels_last: bool = False,
    ranks: Ranks = ALONE,
) -> DeviceReplay:
    """Return the empty replay of frames on `device`, drawn from uniformly or by priority, with or without returns; that
    of one of `ranks`, which may share the memory.

    Raises:
        UserError: it will not fit, is too small for so many games, or cannot hold so many actions.
    """
    if envs.num_actions > MOST_ACTIONS:
        raise UserError(
            f"The game has {envs.num_actions} actions, and a replay on the device that trains holds at most "
            f"{MOST_ACTIONS}; the scripts without one take more."
        )
    replays, frame_bytes = ranks.sharing(device), math.prod(envs.obs_shape[1:])
    check_device_memory(dqn.replay_size, replay_device(device), frame_bytes, replays=replays)
    ranks.together()
    size = (dqn.replay_size, envs.num_envs, envs.obs_shape[1:], envs.obs_shape[0])
    rest = (dqn.gamma, device, as_int(seeds.replay), channels_last, lambda: envs.newest)
    if returns is not None and returns.trace_decay is not None:
        many = (returns.trace_decay, returns.block_steps, returns.refresh_env_steps)
        limits = (-math.inf, math.inf)
        if parts is not None and parts.distributional:
            limits = (parts.value_min, parts.value_max)
        when = (limits, returns.refresh_turns, returns.delay)
        frames = ReturnReplay(*many, *size, *rest, *when)
    else:
        frames = FrameReplay(*size, dqn.n_step, *rest)
    if parts is None or not parts.prioritized:
        return frames
    return PrioritizedReplay(frames, parts.priority_exponent, parts.priority_floor)


def build_player(env: PlayEnv, seed: int, dqn: DQNOptions, network: nn.Module, env_steps: int = 0) -> Player:
    """Return the epsilon-greedy player of `env`.

    A player that takes over after `env_steps` of another has other random numbers.
    """
    seeds = seeds_of(seed, env_steps)
    device = next(network.parameters()).device
    policy = EpsilonGreedy(network, spaces_of(env)[1], device, np.random.default_rng(seeds.policy))
    return Player(env, policy, NStep(dqn.n_step, dqn.gamma), as_int(seeds.env))


def build_policy(greedy: Callable[[], NDArray[np.int64]], envs: VectorEnv, seeds: Seeds) -> VectorEpsilonGreedy:
    """Return the epsilon-greedy policy for all games; `greedy` yields the actions (N,) of largest value."""
    return VectorEpsilonGreedy(greedy, envs.num_actions, np.random.default_rng(seeds.policy))


def check_games(
    count: int,
    run: RunOptions,
    dqn: DQNOptions,
    pace: PaceOptions,
    returns: ReturnOptions | None = None,
    frame_stack: int = 4,
    world: int = 1,
) -> None:
    """Refuse more games at once than the memory holds, and a run or a replay that is too short for so many.

    Raises:
        UserError: with what to change.
    """
    check_num_envs(count)
    most = run.max_env_steps
    if dqn.replay_initial < dqn.n_step * count:
        raise UserError(
            f"--replay-initial {dqn.replay_initial} is too little for {counted(count, 'game')} at once, whose windows "
            f"of {dqn.n_step} env steps must be complete before the first update; it must be at least "
            f"{dqn.n_step * count}."
        )
    if returns is not None:
        block = returns.block_steps
        # With whole stacks and returns that are known two of each game are left, one of which is of no reset.
        least_rows = max(3 * block, block + frame_stack + 3)
        for name, size, rows in (("initial", dqn.replay_initial, block + 1), ("size", dqn.replay_size, least_rows)):
            least = rows * count
            if size < least:
                raise UserError(
                    f"--replay-{name} {size} is too small for blocks of {returns.block_steps} env steps of {count} "
                    f"games; it must be at least {least}."
                )
    first = -(-dqn.replay_initial // pace.steps) * pace.steps  # made once the games' step in which it falls is over
    if most is not None and most < world * (first + count):  # env steps are those of all ranks
        raise UserError(
            f"--max-env-steps {most} ends the run of {world * count} games by its first update, which waits for "
            f"--replay-initial {dqn.replay_initial} transitions; raise the first or lower the second."
        )


def schedule_of(
    dqn: DQNOptions,
    update: UpdateOptions | None,
    parts: PartOptions | None,
    learner: DQNLearner,
    replay: DeviceReplay,
    returns: ReturnOptions | None = None,
) -> Schedule:
    """Return what sets, at an env step, all that changes with env steps: the learning rate, gamma, and priorities'
    beta.
    """
    update = update or UpdateOptions()
    final, over, anew = update.final_learning_rate, update.learning_rate_decay, update.learning_rate_restart
    last_gamma = None if returns is None else returns.final_gamma
    frames = frames_of(replay)
    written: dict[str, float] = {}  # writing to a device costs a part of a step, even what is there already

    def write(name: str, value: float, to: Callable[[float], None]) -> None:
        if written.get(name) != value:
            to(value)
            written[name] = value

    def schedule(env_steps: int, decaying: int | None = None) -> None:
        since = env_steps if decaying is None else decaying
        if final is not None:
            fallen = since if anew is None else since % anew
            write("learning rate", linear(fallen, dqn.learning_rate, final, over), learner.set_learning_rate)
        if last_gamma is not None and isinstance(frames, ReturnReplay):
            write("gamma", 1.0 - geometric(since, 1.0 - dqn.gamma, 1.0 - last_gamma, over), frames.set_gamma)
        if parts is not None and isinstance(replay, PrioritizedReplay):
            first, last, rising = parts.importance_exponent, parts.importance_final, parts.importance_decay
            beta = first if rising is None else linear(env_steps, first, last, rising)
            write("beta", beta, replay.set_beta)

    return schedule


def _describe_list(dqn: DQNOptions, obs_shape: tuple[int, int, int]) -> str:
    """Return one line about the list replay of observations (C, H, W)."""
    return describe_replay(dqn.replay_size, math.prod(obs_shape[1:]))


def _learning(
    dqn: DQNOptions,
    pace: PaceOptions | None,
    update: UpdateOptions | None = None,
    agent: AgentOptions | None = None,
    parts: PartOptions | None = None,
    returns: ReturnOptions | None = None,
) -> str:
    """Return one line that says by which hyper-parameters a script with these groups learns."""
    moving = "" if update is None else update.moving()
    average = None if agent is None else agent.target_average
    distributional, whole = parts is not None and parts.distributional, None if returns is None else returns.describe()
    last_gamma = None if returns is None else returns.final_gamma
    return dqn.describe(1 if pace is None else pace.steps, moving, average, distributional, whole, last_gamma)


def _player_of(
    seed: int, game: GameOptions, dqn: DQNOptions, wrappers: Wrappers, network: Any, env_steps: int
) -> Player:
    """Return the player in a process of its own, which builds its own environment."""
    return build_player(build_env(game, wrappers), seed, dqn, network, env_steps)


def _objective_of(dqn: DQNOptions, parts: PartOptions | None, device: torch.device, bootstrap: bool) -> Objective:
    if parts is None or not parts.distributional:
        return ValueObjective(clipped_td_errors if dqn.loss == "clipped" else squared_td_errors)
    if bootstrap:
        atoms = torch.linspace(parts.value_min, parts.value_max, parts.atoms, device=device)
        return CategoricalObjective(atoms, parts.priority_measure == "cross-entropy")
    ends = rescaled(torch.tensor([parts.value_min, parts.value_max]))
    return HistogramObjective(torch.linspace(float(ends[0]), float(ends[1]), parts.atoms, device=device))
