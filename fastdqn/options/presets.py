"""Presets: what the name of a game, of a variant, or the kind of machine implies, by group and field.

A preset changes the groups that a script has, and leaves the others out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from fastdqn.options.dqn import DQNOptions
from fastdqn.options.parts import Variant

OptionsT = TypeVar("OptionsT")
Changes = Mapping[str, Mapping[str, Any]]
"""New values, by group and field."""


def changed(options: OptionsT, changes: Changes) -> OptionsT:
    """Return `options` with other values in those of their groups that `changes` name."""
    composed: Any = options
    groups = {
        group: dataclasses.replace(getattr(composed, group), **values)
        for group, values in changes.items()
        if hasattr(composed, group)
    }
    return dataclasses.replace(composed, **groups)


@dataclass(frozen=True)
class Preset:
    """What a game's name implies."""

    rom: str  # as ale_py spells it
    changes: Changes


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
_PONG_FAST: Changes = {
    "dqn": {
        "replay_size": 300_000,
        "replay_initial": 5_000,
        "batch_size": 2,
        "learning_rate": 5e-4,
        "gamma": 0.98,
        "n_step": 5,
        "target_sync": 3_200,
        "epsilon_final": 0.02,
        "epsilon_decay": 100_000,
    },
    "pace": {"steps": 16},
    "vector": {"num_envs": 16},
    "update": {
        "center_frames": True,
        "frame_scale": 64.0,
        "final_learning_rate": 1e-4,
        "learning_rate_decay": 250_000,
    },
}

_RECORD: Changes = {
    "dqn": {"replay_size": 50_000},
    "parts": {"prioritized": True},
    "update": {"learning_rate_decay": 400_000},
    "freeze": {"freeze_share": 0.88, "freeze_slack": 0.23},
}
_RECORDS: dict[str, tuple[Changes, ...]] = {
    "cpu": (_RECORD, {"dqn": {"batch_size": 4}}),
    "cuda": (_RECORD, {"dqn": {"batch_size": 16}, "vector": {"num_envs": 128}, "pace": {"steps": 32}}),
}
"""What differs from pong-fast, by machine. The one for CUDA has run on CPUs alone, where it solves Pong (LOG.md):
samples are cheap on a GPU, and 16 for each env step need half of the env steps of 8."""


def _with_limits(stop_score: float | None, max_env_steps: int, changes: Changes) -> Changes:
    return {"run": {"stop_score": stop_score, "max_env_steps": max_env_steps}, **changes}


PRESETS = {
    "pong": Preset("pong", _with_limits(18.0, 3_000_000, {"dqn": {}})),
    "pong-fast": Preset("pong", _with_limits(18.0, 3_000_000, _PONG_FAST)),
    "breakout-small": Preset("breakout", _with_limits(500.0, 10_000_000, {"dqn": _BREAKOUT_SMALL})),
    "breakout": Preset("breakout", _with_limits(500.0, 50_000_000, {"dqn": _BREAKOUT})),
    "invaders": Preset("space_invaders", _with_limits(500.0, 50_000_000, {"dqn": _BREAKOUT})),
}
"""The four presets of the 2017 post, and Pong as it is solved soonest on two cores (LOG.md).

50 million env steps are Nature DQN's 200 million frames.
"""


def preset_for(name: str, rom: str) -> Preset:
    """Return the preset called `name` (any case), else the one of the game `rom`.

    A game without a preset gets Breakout's settings, Nature DQN's replay and schedule, and no stop score.
    """
    if name.strip().lower() in PRESETS:
        return PRESETS[name.strip().lower()]
    special = ("breakout-small", "pong-fast")
    of_game = [preset for key, preset in PRESETS.items() if preset.rom == rom and key not in special]
    return of_game[0] if of_game else Preset(rom, _with_limits(None, 50_000_000, {"dqn": _BREAKOUT}))


def with_preset(options: OptionsT, name: str, rom: str) -> OptionsT:
    """Return `options` with everything that the name of the game implies."""
    return changed(changed(options, {"game": {"name": name}}), preset_for(name, rom).changes)


def variant_changes(variant: Variant, dqn: DQNOptions) -> Changes:
    """Return everything that the name of the variant implies, where the game's preset says `dqn`.

    `n-step` and `rainbow` take 2 steps, as the 2017 post's author did, where the game's preset takes 1.
    """
    everything = variant == "rainbow"
    on = {name: variant == name or everything for name in ("dueling", "noisy", "prioritized", "distributional")}
    n_step = max(dqn.n_step, 2) if variant == "n-step" or everything else dqn.n_step
    return {
        "series": {"variant": variant},
        "dqn": {"double": dqn.double or variant == "double" or everything, "n_step": n_step},
        "parts": on,
    }


NO_EPSILON: Changes = {"dqn": {"epsilon_start": 0.0, "epsilon_final": 0.0}}
"""As noisy layers want it (Fortunato et al. 2018, section 3)."""


def record_changes(game: str, small: bool, cuda: bool) -> tuple[Changes, ...]:
    """Return what suits Pong on this kind of machine (LOG.md), one after the other; for other games nothing but the
    network that `small` stands for.
    """
    network: Changes = {"agent": {"network": "narrow"}} if small else {}
    if game.strip().lower() != "pong-fast":
        return (network,)
    one_thread: Changes = {"run": {"threads": 1}} if small and not cuda else {}
    return (network, *_RECORDS["cuda" if cuda else "cpu"], one_thread)
