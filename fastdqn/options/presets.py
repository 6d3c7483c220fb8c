"""Presets: what the names of a game, an agent and a variant imply, by group and field.

A preset changes the groups that a script has, and leaves the others out.
"""

from __future__ import annotations

from fastdqn.process import cores

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from fastdqn.options.actor_critic import actor_critic_changes
from fastdqn.options.agents import AGENTS, DQN_100K, RUN_100K, Changes
from fastdqn.options.dqn import AgentName, DQNOptions
from fastdqn.options.groups import Groups, groups_of
from fastdqn.options.parts import Variant
from fastdqn.options.sac import sac_changes
from fastdqn.options.trainer import trainer_changes

OptionsT = TypeVar("OptionsT")


def changed(options: OptionsT, changes: Changes) -> OptionsT:
    """Return `options` with other values in those groups that `changes` name and that they have."""
    composed: Any = options
    groups = {
        group: dataclasses.replace(getattr(composed, group), **values)
        for group, values in changes.items()
        if getattr(composed, group, None) is not None
    }
    return dataclasses.replace(composed, **groups)


@dataclass(frozen=True)
class Preset:
    """What a game's name implies."""

    rom: str  # as ale_py spells it
    stop_score: float | None
    post2017: Changes  # the hyper-parameters of the agent of that name


_BREAKOUT: Mapping[str, Any] = {
    "replay_size": 1_000_000,
    "replay_initial": 50_000,
    "epsilon_final": 0.1,
    "epsilon_decay": 1_000_000,
    "learning_rate": 2.5e-4,
    "target_sync": 10_000,
}
_BREAKOUT_SMALL: Mapping[str, Any] = {
    **_BREAKOUT,
    "replay_size": 300_000,
    "replay_initial": 20_000,
    "learning_rate": 1e-4,
    "target_sync": 1_000,
    "batch_size": 64,
}


def _post2017(max_env_steps: int, dqn: Mapping[str, Any]) -> Changes:
    return {"run": {"max_env_steps": max_env_steps}, "dqn": dqn}


PRESETS = {
    "pong": Preset("pong", 18.0, _post2017(3_000_000, {})),
    "breakout-small": Preset("breakout", 500.0, _post2017(10_000_000, _BREAKOUT_SMALL)),
    "breakout": Preset("breakout", 500.0, _post2017(50_000_000, _BREAKOUT)),
    "invaders": Preset("space_invaders", 500.0, _post2017(50_000_000, _BREAKOUT)),
}
"""The four presets of the 2017 post. 50 million env steps are Nature DQN's 200 million frames."""

_RECORD: Changes = {
    "dqn": {"replay_size": 49_152, "batch_size": 4, "n_step": 1, "learning_rate": 7e-4, "epsilon_decay": 40_000},
    "parts": {"prioritized": True, "importance_exponent": 0.0, "importance_final": 0.0, "priority_floor": 1e-3},
    "agent": {"target_average": 0.01, "act_with": "target"},
    "returns": {"trace_decay": 0.9, "refresh_env_steps": 2_048, "refresh_turns": 4},
    "freeze": {"freeze_share": 0.87, "freeze_slack": 0.05},
    "update": {"learning_rate_decay": 150_000},
}
"""What differs from pong-fast where Pong is solved for the clock (LOG.md)."""

_PLAYING_AREA: Changes = {"game": {"crop": True}, "vector": {"frame_size": 60}}
"""Pong's screen has all that matters in its playing area, and above it the score. Nature's convolutions read all of a
side of 60, 68, 76 or 84; of one of 64 they leave out the last four pixels, and with them the paddle where it is low."""

_TWO_CORES: Changes = {"run": {"threads": 1}, "returns": {"refresh_delay": 0.5}}
"""On two cores the emulators have the other one, with time left for the values of a refresh. With frames this small two
threads are no faster than one, and wait for each other as soon as somebody else wants a core."""

_CPU: Changes = {
    "agent": {"init": "xavier"},
    "freeze": {"decay_share": 0.75},
    "returns": {"final_gamma": 0.99},
    "update": {"learning_rate_decay": 40_000, "learning_rate_restart": 100_000},
}
"""With Xavier's initial weights an agent begins to win sooner (by the clock nothing of it was left). A learning rate
that falls before a slow run wins makes it slower still. Once the agent wins, a low gamma makes it hasty, as a point
that is won later counts for little: so gamma rises. A run that is not solved soon after the learning rate has fallen
often stays just below what is asked for, until it learns faster once more. On a GPU none of it has been tried."""

_GPU: Changes = {
    "dqn": {"batch_size": 8},
    "agent": {"network": "wide"},
    "returns": {"refresh_env_steps": 1_024},
    "update": {"learning_rate_decay": 100_000},
}
"""What a GPU has time for while it waits for the games: a network twice as wide, twice as many samples, and returns
that are computed anew twice as often, with which fewer env steps lead to policies as good; so the learning rate falls
sooner."""

NO_EPSILON: Changes = {"dqn": {"epsilon_start": 0.0, "epsilon_final": 0.0}}
"""As noisy layers want it (Fortunato et al. 2018, section 3)."""


def preset_for(name: str, rom: str) -> Preset:
    """Return the preset called `name` (any case), else the one of the game `rom`.

    A game without a preset has no stop score, and Breakout's settings where the 2017 post's are asked for.
    """
    if name.strip().lower() in PRESETS:
        return PRESETS[name.strip().lower()]
    of_game = [preset for key, preset in PRESETS.items() if preset.rom == rom and key != "breakout-small"]
    return of_game[0] if of_game else Preset(rom, None, PRESETS["breakout"].post2017)


def default_agent(groups: Groups, name: str, rom: str, variant: str | None = None) -> AgentName:
    """Return the agent that a script with these groups has where none is named.

    Scripts that play one game at once repeat the 2017 post with its games; where many are played, the post is the
    default on Pong alone, and Rainbow by name is its paper's on all other games. Scripts with an evaluation have `der`,
    those with freeze trials `pong-fast` on Pong, and `breakout-small` by name has the post's.
    """
    if groups.evaluation is not None:
        return "der"
    if rom == "pong":
        return "post2017" if groups.freeze is None else "pong-fast"
    by_name = name.strip().lower() == "breakout-small"
    if by_name or (groups.vector is None and any(preset.rom == rom for preset in PRESETS.values())):
        return "post2017"
    return "rainbow" if variant == "rainbow" else "nature"


def agents_of(groups: Groups) -> list[AgentName]:
    """Return the agents that a script with these groups can have; the others are made of parts that it lacks."""
    if groups.dqn is None:
        return list(AGENTS)
    return [name for name, one in AGENTS.items() if one.needs is None or getattr(groups, one.needs) is not None]


def with_names(
    options: OptionsT, name: str, rom: str, agent: AgentName | None = None, variant: Variant | None = None
) -> OptionsT:
    """Return `options` with everything that the names of the game, the agent and the variant imply.

    Args:
        options: the groups of a script, each with its own defaults.
        name: of the game, as it was given.
        rom: its ROM.
        agent: None for the script's default.
        variant: its parts instead of the agent's; None for the agent's.
    """
    groups, preset = groups_of(options), preset_for(name, rom)
    options = changed(options, {"game": {"name": name}})
    if groups.actor_critic:
        elsewhere, beside = groups.sessions is not None, groups.trainer is not None
        implied = sac_changes(rom, elsewhere, beside) if groups.sac is not None else None
        for changes in implied or actor_critic_changes(rom, elsewhere=groups.players is not None):
            options = changed(options, changes)
        return changed(options, trainer_changes(rom, groups.ppo is not None))
    if groups.dqn is None:  # the agent is the script's own
        return changed(options, {"run": {"stop_score": preset.stop_score, **preset.post2017["run"]}})
    agent = agent or default_agent(groups, name, rom, variant)
    chosen = AGENTS[agent]
    stop: Changes = {"run": {"stop_score": preset.stop_score if chosen.stops else None}, "dqn": {"agent": agent}}
    for changes in (preset.post2017 if agent == "post2017" else chosen.settings, stop):
        options = changed(options, changes)
    if groups.evaluation is not None:
        options = changed(options, _atari_100k(groups_of(options).dqn or groups.dqn))
    if variant is None:
        return changed(options, chosen.parts)
    most = chosen.parts.get("dqn", {}).get("n_step", 2)
    return changed(options, variant_changes(variant, groups_of(options).dqn or groups.dqn, most))


def _atari_100k(dqn: DQNOptions) -> Changes:
    """Return what Atari-100k is, whoever learns it: 100,000 env steps of one game, all of them, in a replay that holds
    no more.
    """
    room = {"replay_size": min(dqn.replay_size, DQN_100K["replay_size"])}
    return {"run": {**RUN_100K, "stop_score": None}, "vector": {"num_envs": 1}, "dqn": room}


def variant_changes(variant: Variant, dqn: DQNOptions, steps: int = 2) -> Changes:
    """Return everything that the name of the variant implies, where the agent's settings say `dqn`.

    `n-step` and `rainbow` raise n to `steps` where `dqn` has less: 2 as the 2017 post's author did, or the agent's own.
    """
    everything = variant == "rainbow"
    on = {name: variant == name or everything for name in ("dueling", "noisy", "prioritized", "distributional")}
    n_step = max(dqn.n_step, steps) if variant == "n-step" or everything else dqn.n_step
    return {
        "variant": {"variant": variant},
        "dqn": {"double": dqn.double or variant == "double" or everything, "n_step": n_step},
        "parts": on,
    }


def record_changes(agent: AgentName, rom: str, gpu: bool) -> list[Changes]:
    """Return what the run for the clock changes in pong-fast, on a GPU or not, and how it shows Pong; nothing for other
    agents.
    """
    if agent != "pong-fast":
        return []
    if rom != "pong":
        return [_RECORD]
    there = [_GPU] if gpu else [_CPU, _TWO_CORES] if cores() <= 2 else [_CPU]
    return [_RECORD, _PLAYING_AREA, *there]
