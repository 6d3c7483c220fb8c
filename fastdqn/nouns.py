"""What scripts are made of: the nouns that `build` returns, a tuple for each way to play."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from fastdqn.algorithms.a2c import A2CLearner
from fastdqn.algorithms.diagnostics import Diagnostics
from fastdqn.algorithms.dqn import DQNLearner
from fastdqn.algorithms.exploration import Player, VectorEpsilonGreedy
from fastdqn.algorithms.pieces import PiecePlayer
from fastdqn.algorithms.ppo import PPOLearner
from fastdqn.algorithms.rollouts import RolloutPlayer
from fastdqn.algorithms.sac import ControlPolicy, SACLearner
from fastdqn.envs.vector import VectorEnv
from fastdqn.execution.crew import CrewPlan
from fastdqn.execution.player import PlayerPlan, PlayerWeights
from fastdqn.replay.boxes import BoxReplay
from fastdqn.replay.prioritized import DeviceReplay
from fastdqn.replay.stacks import GameStacks
from fastdqn.replay.transitions import TransitionList


class OneGame(NamedTuple):
    """One game, played in this process."""

    device: torch.device
    learner: DQNLearner
    replay: TransitionList
    player: Player
    notes: tuple[str, ...]


class PlayerElsewhere(NamedTuple):
    """One game, played in a process of its own."""

    device: torch.device
    learner: DQNLearner
    replay: TransitionList
    weights: PlayerWeights
    plan: PlayerPlan
    obs_shape: tuple[int, int, int]  # (C, H, W)
    notes: tuple[str, ...]


class ManyGames(NamedTuple):
    """Many games at once, and a list replay."""

    device: torch.device
    games: VectorEnv
    learner: DQNLearner
    replay: TransitionList
    stacks: GameStacks
    policy: VectorEpsilonGreedy
    notes: tuple[str, ...]


class GamesOnDevice(NamedTuple):
    """Many games at once, and a replay of frames on the device."""

    device: torch.device
    games: VectorEnv
    learner: DQNLearner
    replay: DeviceReplay
    policy: VectorEpsilonGreedy
    schedule: Callable[[int], None]  # sets, at an env step, all that changes with env steps
    diagnostics: Diagnostics
    notes: tuple[str, ...]


class ActorCriticHere(NamedTuple):
    """Many games at once, played by an actor-critic in this process."""

    device: torch.device
    learner: A2CLearner
    player: PiecePlayer
    notes: tuple[str, ...]


class RolloutsHere(NamedTuple):
    """Many games at once, rolled out in this process for proximal policy optimisation."""

    device: torch.device
    learner: PPOLearner
    player: RolloutPlayer
    notes: tuple[str, ...]


class ActorCriticElsewhere(NamedTuple):
    """Many games at once, played by an actor-critic in several other processes."""

    device: torch.device
    learner: A2CLearner
    weights: PlayerWeights
    plan: CrewPlan
    notes: tuple[str, ...]


class ControlHere(NamedTuple):
    """Many games at once with continuous actions, and a replay of their vectors, all in this process."""

    device: torch.device
    games: VectorEnv
    learner: SACLearner
    replay: BoxReplay
    policy: ControlPolicy
    notes: tuple[str, ...]
