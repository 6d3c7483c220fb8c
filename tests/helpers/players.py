"""Players of one game: in a process of their own, and the same in this one."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastdqn.build import PlayerElsewhere, build_network, build_player, player_elsewhere
from fastdqn.envs.build import build_env, spaces_of
from fastdqn.execution.player import PlayerProcess
from fastdqn.options.dqn import DQNOptions, PaceOptions
from fastdqn.options.game import GameOptions, PlayerOptions
from fastdqn.options.groups import Groups
from fastdqn.options.run import RunOptions
from fastdqn.runs.limits import Limits, StopTest
from fastdqn.seeds import seeds_of
from fastdqn.types import PlayedStep

TOY_COUNTER = "tests.helpers.toys:Counter"
TOY_FAULTY = "tests.helpers.toys:Faulty"
FOREVER = Limits(None, None, None)


def player_options(
    game: str = TOY_COUNTER,
    steps: int = 4,
    device: str | None = None,
    player: PlayerOptions = PlayerOptions(),  # noqa: B008 - a constant
    **dqn: Any,
) -> Groups:
    """Return the groups that 03 has; the player explores always unless told otherwise."""
    return Groups(
        run=RunOptions(device=device),
        game=GameOptions(name=game, noop_max=3, clip_rewards=False, fire_reset=False),
        dqn=DQNOptions(**({"epsilon_start": 1.0, "epsilon_final": 1.0} | dqn)),
        pace=PaceOptions(steps=steps),
        player=player,
    )


def elsewhere(options: Groups, wrappers: Any = "classic") -> PlayerElsewhere:
    """Return a learner in this process, and what another one needs to play its game."""
    assert options.dqn is not None
    assert options.pace is not None
    assert options.player is not None
    return player_elsewhere(options.run, options.game, options.dqn, options.pace, options.player, wrappers)


def player_process(options: Groups, wrappers: Any = "classic", limits: Limits = FOREVER) -> PlayerProcess:
    """Return a player process that nobody learns beside."""
    made = elsewhere(options, wrappers)
    return PlayerProcess(made.plan, made.weights, StopTest(limits))


def played_here(options: Groups, count: int, wrappers: Any = "classic") -> list[PlayedStep]:
    """Return what a player in this very process plays: the reference."""
    assert options.dqn is not None
    env = build_env(options.game, wrappers)
    network = build_network(seeds_of(options.run.seed), *spaces_of(env))
    player = build_player(env, options.run.seed, options.dqn, network)
    return [player.step(1.0) for _ in range(count)]


def assert_same(ours: PlayedStep, reference: PlayedStep) -> None:
    assert ours.episodes == reference.episodes
    assert len(ours.transitions) == len(reference.transitions)
    for a, b in zip(ours.transitions, reference.transitions, strict=True):
        assert a[1:4] == b[1:4]
        assert (np.asarray(a.obs) == np.asarray(b.obs)).all()
        assert (np.asarray(a.next_obs) == np.asarray(b.next_obs)).all()
