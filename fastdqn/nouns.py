"""What scripts are made of: the nouns that `build` returns, a tuple for each way to play."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

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
from fastdqn.execution.hogwild import Commons, Shared, Synced
from fastdqn.execution.player import PlayerPlan, PlayerWeights
from fastdqn.execution.trainer_thread import Work
from fastdqn.replay.boxes import BoxReplay
from fastdqn.replay.prioritized import DeviceReplay
from fastdqn.replay.stacks import GameStacks
from fastdqn.replay.transitions import TransitionList
from fastdqn.states import Part
from fastdqn.types import EpisodeEnd


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


class Schedule(Protocol):
    """Sets all that changes with env steps."""

    def __call__(self, env_steps: int, decaying: int | None = None) -> None:
        """Set what is due after `env_steps`, of which the learning rate and gamma have been moving for `decaying`; by
        default for all.
        """
        ...


class GamesOnDevice(NamedTuple):
    """Many games at once, and a replay of frames on the device."""

    device: torch.device
    games: VectorEnv
    learner: DQNLearner
    replay: DeviceReplay
    policy: VectorEpsilonGreedy
    schedule: Schedule
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


class Played(Protocol):
    """What was played at a time."""

    @property
    def env_steps(self) -> int: ...
    @property
    def episodes(self) -> tuple[EpisodeEnd, ...]: ...


class PlaysBeside(Part, Protocol):
    """Who plays beside a trainer."""

    num_envs: int

    def play(self, env_steps: int, version: int) -> Played:
        """Play, after so many env steps, with weights of this version."""
        ...


class WorksBeside(Part, Work[Any], Protocol):
    """What a trainer does; `name` is that of this part in checkpoints."""

    name: str


class Beside(NamedTuple):
    """Many games at once, and a trainer beside them in this process."""

    device: torch.device
    learner: SACLearner | PPOLearner
    player: PlaysBeside  # with weights of its own
    work: WorksBeside
    learnt: Sequence[Tensor]  # the learner's weights
    played_with: Sequence[Tensor]  # the player's
    warm_up: int  # env steps before the first update
    room: int  # pieces of what was played that may wait for the trainer
    notes: tuple[str, ...]


class ControlElsewhere(NamedTuple):
    """Sessions that play and learn in several other processes; the learner's weights are those of the run."""

    device: torch.device
    learner: SACLearner
    weights: PlayerWeights
    commons: Commons
    descents: tuple[Shared | Synced, ...]  # of each session
    plan: CrewPlan
    notes: tuple[str, ...]
