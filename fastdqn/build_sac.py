"""From groups of options to the nouns of soft actor-critic; the order of events is the scripts'."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import nn

from fastdqn.algorithms.control_work import ControlPlayer, ControlWork
from fastdqn.algorithms.descent import fused_adam_on
from fastdqn.algorithms.sac import ControlPolicy, SACLearner, Settings
from fastdqn.algorithms.sessions import OWN, ControlSession, Owned
from fastdqn.envs.build import build_described, spaces_of
from fastdqn.envs.many import build_games, build_vector_env
from fastdqn.envs.vector import VectorEnv, check_num_envs
from fastdqn.execution.crew import CrewPlan
from fastdqn.execution.devices import check_default_dtype, describe_device, prepare_device, prepare_memory
from fastdqn.execution.hogwild import Common, Commons, Shared, Synced
from fastdqn.execution.player import PlayerWeights
from fastdqn.execution.ranks import ALONE, Ranks
from fastdqn.execution.session_crew import share_of
from fastdqn.execution.trainer_thread import ROOM
from fastdqn.networks.control import GaussianActor, TwinCritic
from fastdqn.nouns import Beside, ControlElsewhere, ControlHere
from fastdqn.options.game import GameOptions, VectorOptions
from fastdqn.options.run import RunOptions
from fastdqn.options.sac import SACOptions, SessionOptions
from fastdqn.options.trainer import TrainerOptions
from fastdqn.replay.boxes import BoxReplay, check_box_memory, check_capacity, describe_box_replay
from fastdqn.seam import Descent
from fastdqn.seeds import Seeds, as_int, player_seeds, seeds_of, torch_generator

PACKED_COPIES, SENT_COPIES = 1, 5
"""Of what a replay of vectors holds: while it is written, and where another process writes it."""


def control_here(
    run: RunOptions, game: GameOptions, sac: SACOptions, vector: VectorOptions, ranks: Ranks = ALONE
) -> ControlHere:
    """Return what plays and learns many games with continuous actions in this process, which is one of `ranks`.

    Raises:
        UserError: there is no such environment or device, its actions cannot be learnt, or there is not memory enough.
    """
    device, seeds, vector = ranks.place(run, vector)
    games, note = build_games(game, vector, seeds.env, continuous=True)
    (obs_size,), num_actions = games.obs_shape, games.num_actions
    copies = _copies(run, ranks.alone)
    check_box_memory(sac.replay_size, obs_size, num_actions, device, replays=ranks.sharing(device), copies=copies)
    ranks.together()
    learner = build_learner(seeds, sac, obs_size, num_actions, device, ranks.descent)
    replay = _build_replay(seeds, sac, games, device)
    policy = ControlPolicy(learner.network, num_actions, sac.replay_initial * ranks.world, _on(device, seeds.policy))
    memory = describe_box_replay(sac.replay_size, obs_size, num_actions, device)
    notes = (*describe_device(device), *ranks.notes, note, sac.describe(), run.describe_end(), memory)
    return ControlHere(device, games, learner, replay, policy, notes)


def control_beside(
    run: RunOptions, game: GameOptions, sac: SACOptions, vector: VectorOptions, trainer: TrainerOptions
) -> Beside:
    """Return what plays many games with continuous actions, and what learns beside them, in this process.

    Raises:
        UserError: there is no such environment or device, its actions cannot be learnt, or there is not memory enough.
    """
    device, games, learner, replay, policy, notes = control_here(run, game, sac, vector)
    actor = policy.with_weights_of_its_own()
    work = ControlWork(learner, replay, sac.batch_size, sac.steps_per_update, sac.replay_initial)
    replay.reset(games.reset())
    player, notes = ControlPlayer(games, policy), (*notes, trainer.describe(game.name))
    learnt, played_with = (list(network.parameters()) for network in (learner.network, actor))
    return Beside(device, learner, player, work, learnt, played_with, sac.replay_initial, ROOM, notes)


def sessions_elsewhere(
    run: RunOptions, game: GameOptions, sac: SACOptions, vector: VectorOptions, sessions: SessionOptions
) -> ControlElsewhere:
    """Return what several sessions share, and what each needs to play and to learn.

    Raises:
        UserError: there is no such environment or device, its actions cannot be learnt, there is not memory enough, or
            weights cannot be shared on this device.
    """
    asked = None if run.device == "auto" else run.device  # a GPU is no choice here
    device, seeds = prepare_device(asked, run.cuda, run.threads), seeds_of(run.seed)
    count, each = sessions.sessions or 1, vector.num_envs or 1
    check_num_envs(count * each, among=count)
    of_each = "one game" if each == 1 else f"{each} games at once"
    who = f"{of_each} in each of {count} session process{'es' if count > 1 else ''}"
    env, note = build_described(game, "opencv", vector.frame_size, who, continuous=True)  # to be asked what it is
    (obs_size,), num_actions = spaces_of(env)
    check_capacity(sac.replay_size, each)
    copies = _copies(run, here=False)
    check_box_memory(sac.replay_size, obs_size, num_actions, device, replays=count, copies=copies)
    learner = build_learner(seeds, sac, obs_size, num_actions, device)
    commons = Commons([Common(learner.groups(), OWN) for _ in range(count if sessions.distributed == "none" else 1)])
    descents = tuple(
        Synced(common, sessions.sync_every) if sessions.distributed == "synced" else Shared(common)
        for common in (commons.commons * count)[:count]
    )
    Shared(commons.commons[0]).bind(learner.groups())  # the run's weights are those of all, or of the first session
    build = partial(_session_of, run, game, sac, vector, count)
    plan = CrewPlan(build, count, each, False, sessions.session_timeout)
    memory = describe_box_replay(sac.replay_size, obs_size, num_actions, device)
    memory = f"{memory} in each session" if count > 1 else memory
    notes = (*describe_device(device), note, sessions.describe(), sac.describe(), run.describe_end(), memory)
    weights = PlayerWeights(learner.network, "same", count)
    return ControlElsewhere(device, learner, weights, commons, descents, plan, notes)


def _session_of(
    run: RunOptions,
    game: GameOptions,
    sac: SACOptions,
    vector: VectorOptions,
    sessions: int,
    network: nn.Module,  # noqa: ARG001 - the weights come with the descent
    number: int,
    begun: int,  # noqa: ARG001 - what it had been counted with, a session hears when it is to load
    descent: Shared | Synced,
) -> ControlSession:
    """Return one of several sessions, in its own process, which builds all that is its own."""
    prepare_memory()
    torch.set_num_threads(run.threads or 1)
    share = share_of(run.max_env_steps, number, sessions)
    return ControlSession(
        *(partial(_own_of, run, game, sac, vector, number, descent), descent),
        *(sac.batch_size, int(sac.steps_per_update), sac.replay_initial, share, run.checkpoint_replay),
    )


def _own_of(
    run: RunOptions,
    game: GameOptions,
    sac: SACOptions,
    vector: VectorOptions,
    number: int,
    descent: Shared | Synced,
    begun: int,
) -> Owned:
    """Return what one of several sessions has for itself; initial weights are those of all."""
    device = torch.device("cpu")
    seeds = player_seeds(run.seed, number, begun)._replace(network=seeds_of(run.seed).network)
    games = build_vector_env(game, vector, seeds.env, continuous=True)
    (obs_size,), num_actions = games.obs_shape, games.num_actions
    learner = build_learner(seeds, sac, obs_size, num_actions, device, descent)
    descent.bind(learner.groups())
    replay = _build_replay(seeds, sac, games, device)
    policy = ControlPolicy(learner.network, num_actions, sac.replay_initial, _on(device, seeds.policy))
    return Owned(games, learner, replay, policy)


def _build_replay(seeds: Seeds, sac: SACOptions, games: VectorEnv, device: torch.device) -> BoxReplay:
    (obs_size,) = games.obs_shape
    return BoxReplay(
        *(sac.replay_size, games.num_envs, obs_size, games.num_actions, sac.gamma, device),
        np.random.default_rng(seeds.replay),
        sac.newest_in_batch,
        newest=lambda: games.newest,
    )


def build_learner(
    seeds: Seeds,
    sac: SACOptions,
    obs_size: int,
    num_actions: int,
    device: torch.device,
    descent: Descent | None = None,
) -> SACLearner:
    """Return the learner, with its networks on `device`; the same seed gives the same weights.

    Raises:
        UserError: PyTorch's default numbers are not float32.
    """
    check_default_dtype()
    generator = torch_generator(seeds.network)
    sizes = obs_size, num_actions
    actor = GaussianActor(*sizes, generator, sac.hidden, orthogonal=sac.orthogonal).to(device)
    critic = TwinCritic(*sizes, generator, sac.hidden, orthogonal=sac.orthogonal).to(device)
    settings = Settings(
        sac.learning_rate,
        sac.adam_epsilon,
        sac.target_average,
        sac.target_entropy,
        sac.initial_temperature,
        sac.temperature,
        max_norm=sac.max_norm,
        fused=fused_adam_on(device),
    )
    return SACLearner(actor, critic, _on(device, seeds.noise), settings, descent)


def _copies(run: RunOptions, here: bool) -> int:
    """Return how many copies of what a replay holds a checkpoint makes, about, before all of it is in the file.

    Args:
        run: says whether there is a checkpoint with the replay.
        here: whether the process that writes it is the one that packs it; that of another is packed, made one piece,
            sent, gathered, and written as one piece.
    """
    if not (run.checkpoints and run.checkpoint_replay):
        return 0
    return PACKED_COPIES if here else SENT_COPIES


def _on(device: torch.device, seed: np.random.SeedSequence) -> torch.Generator:
    return torch.Generator(device).manual_seed(as_int(seed))
