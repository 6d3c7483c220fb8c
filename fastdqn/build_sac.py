"""From groups of options to the nouns of soft actor-critic; the order of events is the scripts'."""

from __future__ import annotations

import numpy as np
import torch

from fastdqn.algorithms.descent import fused_adam_on
from fastdqn.algorithms.sac import ControlPolicy, SACLearner, Settings
from fastdqn.envs.many import build_games
from fastdqn.execution.devices import describe_device, prepare_device
from fastdqn.networks.control import GaussianActor, TwinCritic
from fastdqn.nouns import ControlHere
from fastdqn.options.game import GameOptions, VectorOptions
from fastdqn.options.run import RunOptions
from fastdqn.options.sac import SACOptions
from fastdqn.replay.boxes import BoxReplay, describe_box_replay
from fastdqn.seam import Descent
from fastdqn.seeds import Seeds, as_int, seeds_of, torch_generator


def control_here(run: RunOptions, game: GameOptions, sac: SACOptions, vector: VectorOptions) -> ControlHere:
    """Return what plays and learns many games with continuous actions in this process.

    Raises:
        UserError: there is no such environment or device, its actions cannot be learnt, or there is not memory enough.
    """
    device, seeds = prepare_device(run.device, run.cuda, run.threads), seeds_of(run.seed)
    games, note = build_games(game, vector, seeds.env, continuous=True)
    (obs_size,), num_actions = games.obs_shape, games.num_actions
    learner = build_learner(seeds, sac, obs_size, num_actions, device)
    replay = BoxReplay(
        *(sac.replay_size, games.num_envs, obs_size, num_actions, sac.gamma, device),
        np.random.default_rng(seeds.replay),
        sac.newest_in_batch,
        newest=lambda: games.newest,
    )
    policy = ControlPolicy(learner.network, num_actions, sac.replay_initial, _on(device, seeds.policy))
    memory = describe_box_replay(sac.replay_size, obs_size, num_actions, device)
    notes = (*describe_device(device), note, sac.describe(), run.describe_end(), memory)
    return ControlHere(device, games, learner, replay, policy, notes)


def build_learner(
    seeds: Seeds,
    sac: SACOptions,
    obs_size: int,
    num_actions: int,
    device: torch.device,
    descent: Descent | None = None,
) -> SACLearner:
    """Return the learner, with its networks on `device`; the same seed gives the same weights."""
    generator = torch_generator(seeds.network)
    actor = GaussianActor(obs_size, num_actions, generator).to(device)
    critic = TwinCritic(obs_size, num_actions, generator).to(device)
    settings = Settings(
        sac.learning_rate,
        sac.adam_epsilon,
        sac.target_average,
        sac.target_entropy,
        sac.initial_temperature,
        fused=fused_adam_on(device),
    )
    return SACLearner(actor, critic, _on(device, seeds.noise), settings, descent)


def _on(device: torch.device, seed: np.random.SeedSequence) -> torch.Generator:
    return torch.Generator(device).manual_seed(as_int(seed))
