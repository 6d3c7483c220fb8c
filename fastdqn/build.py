"""From groups of options to nouns: environments, learners, replays, policies. The order of events is the scripts'.

A group that a script does not have is None, and what it would ask for is off.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch

from fastdqn import process
from fastdqn.algorithms.diagnostics import Diagnostics
from fastdqn.algorithms.exploration import Player, actions_for, epsilon_at
from fastdqn.algorithms.form import PLAIN
from fastdqn.build_dqn import (
    build_device_replay,
    build_learner,
    build_list_replay,
    build_player,
    build_policy,
    check_games,
    schedule_of,
)
from fastdqn.envs.build import Wrappers, build_described, build_env, spaces_of
from fastdqn.envs.in_flight import InFlight
from fastdqn.envs.many import build_games, num_envs_of
from fastdqn.execution.devices import describe_device, prepare_device
from fastdqn.execution.first_calls import first_calls
from fastdqn.execution.graphs import Graphed
from fastdqn.execution.halves import halves_of
from fastdqn.execution.player import PlayerPlan, PlayerWeights
from fastdqn.execution.ranks import ALONE, Ranks
from fastdqn.execution.wire import window_for
from fastdqn.forms import fastest_form
from fastdqn.networks.torso import describe_unread
from fastdqn.nouns import GamesOnDevice, ManyGames, OneGame, PlayerElsewhere
from fastdqn.options.agents import AGENTS
from fastdqn.options.dqn import AgentOptions, DQNOptions, PaceOptions, UpdateOptions
from fastdqn.options.game import GameOptions, PlayerOptions, VectorOptions
from fastdqn.options.parts import PartOptions, ReturnOptions
from fastdqn.options.run import RunOptions
from fastdqn.replay.memory import (
    describe_frame_replay,
    describe_replay,
)
from fastdqn.replay.prioritized import frames_of
from fastdqn.replay.stacks import GameStacks
from fastdqn.seeds import as_int, seeds_of


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
    of `ranks`. `in_flight` says that there may be a checkpoint while actions are, and with `halves`, an agent on a CPU
    that needs no noise plays Atari's games in halves if it is told to.

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
    replays, last = ranks.sharing(device), update is not None
    replay = build_device_replay(seeds, dqn, envs, device, parts, returns, channels_last=last, replays=replays)
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
    final = None if update is None else update.final_learning_rate
    average = None if agent is None else agent.target_average
    distributional, whole = parts is not None and parts.distributional, None if returns is None else returns.describe()
    last_gamma = None if returns is None else returns.final_gamma
    return dqn.describe(1 if pace is None else pace.steps, final, average, distributional, whole, last_gamma)


def _player_of(
    seed: int, game: GameOptions, dqn: DQNOptions, wrappers: Wrappers, network: Any, env_steps: int
) -> Player:
    """Return the player in a process of its own, which builds its own environment."""
    return build_player(build_env(game, wrappers), seed, dqn, network, env_steps)
