"""From groups of options to the nouns of actor-critics; the order of events is the scripts'."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fastdqn.algorithms.a2c import A2CLearner, Policy, Settings
from fastdqn.algorithms.distributions import Categorical, DiagonalGaussian
from fastdqn.algorithms.form import PLAIN
from fastdqn.algorithms.pieces import GradientPlayer, PiecePlayer
from fastdqn.algorithms.ppo import PPOLearner
from fastdqn.algorithms.rollout_work import RolloutSender, RolloutWork
from fastdqn.algorithms.rollouts import RolloutPlayer
from fastdqn.envs import games as atari
from fastdqn.envs.build import build_described, spaces_of
from fastdqn.envs.many import build_centred, build_vector_env, mean_frame
from fastdqn.envs.vector import VectorEnv, check_num_envs
from fastdqn.execution.crew import CrewPlan, Plays
from fastdqn.execution.devices import check_default_dtype, describe_device, prepare_device
from fastdqn.execution.player import PlayerWeights
from fastdqn.execution.ranks import ALONE, Ranks
from fastdqn.forms import fastest_form
from fastdqn.networks.actor_critic import actor_critic
from fastdqn.networks.torso import describe_unread, torsos
from fastdqn.nouns import ActorCriticElsewhere, ActorCriticHere, Beside, RolloutsHere
from fastdqn.options.actor_critic import (
    GAMES,
    A2COptions,
    GradientOptions,
    PieceOptions,
    PlayersOptions,
    PPOOptions,
)
from fastdqn.options.game import GameOptions, PlayerOptions, VectorOptions
from fastdqn.options.run import RunOptions
from fastdqn.options.trainer import TrainerOptions
from fastdqn.replay.memory import check_rollout_memory
from fastdqn.replay.newest import NewestStacks
from fastdqn.replay.stacks import GameStacks, GameVectors
from fastdqn.seam import Descent
from fastdqn.seeds import Seeds, as_int, player_seeds, seeds_of, torch_generator


def played_here(
    run: RunOptions, game: GameOptions, a2c: A2COptions, pieces: PieceOptions, vector: VectorOptions
) -> ActorCriticHere:
    """Return what plays and learns many games in this process.

    Raises:
        UserError: there is no such game or device, or not memory enough for so many games.
    """
    device, seeds = prepare_device(run.device, run.cuda, run.threads), seeds_of(run.seed)
    games, note, mean = build_centred(game, vector, seeds.env, a2c.center_frames)
    learner = build_learner(seeds, a2c, games.obs_shape, games.num_actions, device)
    _center(learner, mean)
    player = _player(games, game, a2c, learner.policy, pieces.batch_size)
    unread = describe_unread(learner.network)
    notes = (*describe_device(device), note, *unread, a2c.describe(pieces.describe()), run.describe_end())
    return ActorCriticHere(device, learner, player, notes)


def rollouts_here(
    run: RunOptions, game: GameOptions, ppo: PPOOptions, vector: VectorOptions, ranks: Ranks
) -> RolloutsHere:
    """Return what plays and learns many games in this process, rollout by rollout; this process is one of `ranks`.

    Raises:
        UserError: there is no such game or device, or not memory enough for so many games.
    """
    device, learner, player, _, notes = _rollouts(run, game, ppo, vector, own_weights=False, ranks=ranks)
    return RolloutsHere(device, learner, player, notes)


def rollouts_beside(
    run: RunOptions, game: GameOptions, ppo: PPOOptions, vector: VectorOptions, trainer: TrainerOptions
) -> Beside:
    """Return what plays many games rollout by rollout, and what learns beside them, in this process.

    Raises:
        UserError: there is no such game or device, or not memory enough for so many games.
    """
    device, learner, player, policy, notes = _rollouts(run, game, ppo, vector, own_weights=True)
    work = RolloutWork(learner, ppo.batch_size, ppo.epochs, ppo.learning_rate, ppo.learning_rate_decay)
    learnt, played_with = ([*net.parameters(), *net.buffers()] for net in (learner.network, policy.network))
    notes = (*notes, trainer.describe(game.name))
    room = 1  # rollout: of more the policy would be too old
    return Beside(device, learner, RolloutSender(player), work, learnt, played_with, 0, room, notes)


def _rollouts(
    run: RunOptions,
    game: GameOptions,
    ppo: PPOOptions,
    vector: VectorOptions,
    own_weights: bool,
    ranks: Ranks = ALONE,
) -> tuple[torch.device, PPOLearner, RolloutPlayer, Policy, tuple[str, ...]]:
    """Return what plays and learns; with weights of its own, whoever plays has a copy."""
    device, seeds, vector = ranks.place(run, vector)
    games, note, mean = build_centred(game, vector, seeds.env, ppo.center_frames, continuous=None)
    shapes = games.obs_shape, games.num_actions, device
    obs_bytes = math.prod(games.obs_shape) * (4 if len(games.obs_shape) == 1 else 1)
    check_rollout_memory(ppo.rollout_steps, games.num_envs * ranks.sharing(torch.device("cpu")), obs_bytes)
    learner = build_ppo(seeds, ppo, *shapes, ranks.descent, numbered=games.numbered)
    _center(learner, mean)
    if len(games.obs_shape) == 1:
        stacks = GameVectors(games.num_envs, 1, ppo.gamma)
        newest = partial(_vectors, stacks, device)
    else:
        stacks = NewestStacks(games.num_envs, games.obs_shape, device, channels_last=learner.form.channels_last)
        newest = stacks.stacks
    policy = learner.policy_of_its_own() if own_weights else learner.policy
    player = RolloutPlayer(games, stacks, newest, policy, ppo.rollout_steps, ppo.gamma, ppo.trace_decay, ranks.look)
    arithmetic = learner.form.describe(device)
    unread = describe_unread(learner.network)
    notes = (*describe_device(device), *ranks.notes, note, *unread, ppo.describe(), run.describe_end(), arithmetic)
    return device, learner, player, policy, notes


def experience_elsewhere(
    run: RunOptions,
    game: GameOptions,
    a2c: A2COptions,
    pieces: PieceOptions,
    vector: VectorOptions,
    player: PlayerOptions,
    players: PlayersOptions,
) -> ActorCriticElsewhere:
    """Return what learns in this process, and what others need to play and to send pieces of samples.

    Raises:
        UserError: there is no such game or device, or not memory enough for so many games.
    """
    size, said = pieces.batch_size, pieces.describe()
    return _elsewhere(run, game, a2c, vector, player, players, _experience_of, size, said)


def gradients_elsewhere(
    run: RunOptions,
    game: GameOptions,
    a2c: A2COptions,
    gradients: GradientOptions,
    vector: VectorOptions,
    player: PlayerOptions,
    players: PlayersOptions,
) -> ActorCriticElsewhere:
    """Return what steps in this process, and what others need to play and to send gradients.

    Raises:
        UserError: there is no such game or device, or not memory enough for so many games.
    """
    size, said = gradients.batch_size, gradients.describe()
    return _elsewhere(run, game, a2c, vector, player, players, _gradients_of, size, said)


def _center(learner: A2CLearner, mean: NDArray[np.float32] | None) -> None:
    """Let the network subtract a mean frame, if there is one."""
    if mean is not None:
        for torso in torsos(learner.network):
            torso.center_frames(torch.from_numpy(mean).to(learner.device))


def build_learner(
    seeds: Seeds, a2c: A2COptions, obs_shape: tuple[int, ...], num_actions: int, device: torch.device
) -> A2CLearner:
    """Return the learner, with its network on `device`.

    Raises:
        UserError: PyTorch's default numbers are not float32.
    """
    check_default_dtype()
    network = actor_critic(
        *(obs_shape, num_actions, torch_generator(seeds.network)),
        frame_scale=a2c.frame_scale,
        center_frames=a2c.center_frames,
    )
    return _learner_of(network.to(device), seeds, a2c)


def build_ppo(
    seeds: Seeds,
    ppo: PPOOptions,
    obs_shape: tuple[int, ...],
    num_actions: int,
    device: torch.device,
    descent: Descent | None = None,
    numbered: bool = True,
) -> PPOLearner:
    """Return the learner of proximal policy optimisation, with its network on `device`; an action is one of A, or if
    not `numbered` a vector of A numbers.

    Raises:
        UserError: PyTorch's default numbers are not float32.
    """
    check_default_dtype()
    frames = len(obs_shape) == 3
    network = actor_critic(
        *(obs_shape, num_actions, torch_generator(seeds.network)),
        one_stream=frames,
        frame_scale=ppo.frame_scale,
        center_frames=ppo.center_frames,
        numbered=numbered,
        hidden=ppo.hidden,
        orthogonal=ppo.orthogonal,
    ).to(device)
    settings = Settings(ppo.learning_rate, ppo.adam_epsilon, ppo.entropy_weight, ppo.value_weight, ppo.max_norm)
    order, form = torch_generator(seeds.replay), fastest_form(ppo.precision, device) if frames else PLAIN
    distribution = Categorical if numbered else DiagonalGaussian
    noise, target_kl = _noise(seeds, network), ppo.target_kl
    return PPOLearner(network, noise, settings, ppo.clip, order, descent, form, distribution, target_kl)


def _elsewhere(
    run: RunOptions,
    game: GameOptions,
    a2c: A2COptions,
    vector: VectorOptions,
    player: PlayerOptions,
    players: PlayersOptions,
    build: Callable[..., Plays],
    size: int,
    update: str,
) -> ActorCriticElsewhere:
    """Return what learns here; `build` makes a player there, with so many samples a piece."""
    count, each = players.players or 1, vector.num_envs or GAMES
    check_num_envs(count * each, among=count)
    device, seeds = prepare_device(run.device, run.cuda, run.threads), seeds_of(run.seed)
    turns = "which wait for updates" if players.synchronous else "which play on during updates"
    who = f"{each} games at once in each of {count} player process{'es' if count > 1 else ''}, {turns}"
    fewest = 0 if atari.is_atari(game.name) else 1  # players have them from ale-py, which begins at 0
    env, note = build_described(game, "opencv", vector.frame_size, who, fewest=fewest)  # to be asked what it is
    learner = build_learner(seeds, a2c, *spaces_of(env), device)
    vector = dataclasses.replace(vector, num_envs=each)
    _center(learner, mean_frame(game, vector, seeds.env) if a2c.center_frames else None)
    weights = PlayerWeights(learner.network, player.player_device, count)
    build = partial(build, run.seed, game, a2c, vector, size)
    plan = CrewPlan(build, count, each, players.synchronous, player.player_timeout)
    unread = describe_unread(learner.network)
    notes = (*describe_device(device), note, *unread, a2c.describe(update), run.describe_end())
    return ActorCriticElsewhere(device, learner, weights, plan, notes)


def _experience_of(
    seed: int,
    game: GameOptions,
    a2c: A2COptions,
    vector: VectorOptions,
    batch_size: int,
    network: nn.Module,
    number: int,
    begun: int,
) -> PiecePlayer:
    """Return one of several players, in its own process, which builds its own games."""
    seeds = player_seeds(seed, number, begun)
    games = build_vector_env(game, vector, seeds.env)
    return _player(games, game, a2c, Policy(network, _noise(seeds, network)), batch_size)


def _gradients_of(
    seed: int,
    game: GameOptions,
    a2c: A2COptions,
    vector: VectorOptions,
    batch_size: int,
    network: nn.Module,
    number: int,
    begun: int,
    descent: Descent,
) -> GradientPlayer:
    """Return one of several players that compute gradients, in its own process, which builds its own games."""
    seeds = player_seeds(seed, number, begun)
    games = build_vector_env(game, vector, seeds.env)
    learner = _learner_of(network, seeds, a2c, descent)
    return GradientPlayer(_player(games, game, a2c, learner.policy, batch_size), learner)


def _player(games: VectorEnv, game: GameOptions, a2c: A2COptions, policy: Policy, batch_size: int) -> PiecePlayer:
    return PiecePlayer(games, _stacks(games, game, a2c.n_step, a2c.gamma), policy, batch_size)


def _stacks(games: VectorEnv, game: GameOptions, n_step: int, gamma: float) -> GameStacks:
    """Return what makes observations and windows of what `games` show."""
    if len(games.obs_shape) == 1:
        return GameVectors(games.num_envs, n_step, gamma)
    return GameStacks(games.num_envs, games.obs_shape[1:], game.frame_stack, n_step, gamma)


def _learner_of(network: nn.Module, seeds: Seeds, a2c: A2COptions, descent: Descent | None = None) -> A2CLearner:
    settings = Settings(a2c.learning_rate, a2c.adam_epsilon, a2c.entropy_weight, a2c.value_weight, a2c.max_norm)
    return A2CLearner(network, _noise(seeds, network), settings, descent)


def _vectors(stacks: GameVectors, device: torch.device) -> Tensor:
    return torch.from_numpy(stacks.obs()).to(device)


def _noise(seeds: Seeds, network: nn.Module) -> torch.Generator:
    """Return the random numbers of the actions, where the network is."""
    device = next(network.parameters()).device
    return torch.Generator(device).manual_seed(as_int(seeds.policy))
