"""Agents: hyper-parameters by paper, as data.

`batch_size` is for each env step: a paper's batch of 32 every 4 env steps is `batch_size` 8 and `steps` 4, and a batch
of 8 after each env step in a script that has no `steps`. Where a paper counts frames, an env step is 4 of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastdqn.options.dqn import AgentName

Changes = Mapping[str, Mapping[str, Any]]
"""New values, by group and field."""


@dataclass(frozen=True)
class Agent:
    """Hyper-parameters by paper."""

    source: str
    settings: Changes  # those of groups that a script does not have are left out
    parts: Changes  # Rainbow's parts that are on, instead of which a variant may be named
    needs: str | None = None  # the group without which a script cannot have the agent
    explores: bool = False  # by its epsilon, beside its noise
    stops: bool = False  # at the stop score of the game's preset


_REPLAY: Mapping[str, Any] = {"replay_size": 1_000_000, "batch_size": 8, "gamma": 0.99, "n_step": 1}
_ADAM: Mapping[str, Any] = {"optimizer": "adam", "learning_rate": 6.25e-5, "adam_epsilon": 1.5e-4, "loss": "squared"}
_PACE: Mapping[str, Any] = {"steps": 4}
_RUN: Mapping[str, Any] = {"max_env_steps": 50_000_000}  # 200 million frames
_ATOMS: Mapping[str, Any] = {"atoms": 51, "value_min": -10.0, "value_max": 10.0}
_DOPAMINE: Mapping[str, Any] = {
    **_REPLAY,
    **_ADAM,
    "replay_initial": 20_000,
    "target_sync": 8_000,
    "epsilon_start": 1.0,
    "epsilon_final": 0.01,
    "epsilon_decay": 252_525,  # 0.99 in 250,000 env steps
    "epsilon_delay": 20_000,
}
RUN_100K: Mapping[str, Any] = {"max_env_steps": 100_000}
DQN_100K: Mapping[str, Any] = {
    "replay_size": 120_000,  # all env steps, and the resets between games
    "replay_initial": 1_600,
    "batch_size": 32,
    "gamma": 0.99,
    "optimizer": "adam",
    "learning_rate": 1e-4,
    "adam_epsilon": 1.5e-4,
    "loss": "squared",
}
"""Those of Atari-100k: an update on 32 after each env step of one game."""

_FALLING_100K: Mapping[str, Any] = {
    "epsilon_start": 1.0,
    "epsilon_final": 0.01,
    "epsilon_decay": 5_051,  # 0.99 in 5,000 env steps
    "epsilon_delay": 1_600,
}
"""Epsilon of those without noise."""

AGENTS: Mapping[AgentName, Agent] = {
    "post2017": Agent(
        "the post of 2017 on Pong, Breakout and Space Invaders (fastdqn/options/presets.py: each has its own)",
        {},
        {},
        stops=True,
    ),
    "nature": Agent(
        "Mnih et al. 2015, extended data table 1, which counts target copies in updates: 10,000 are 40,000 env steps. "
        "(The authors' code counts 10,000 env steps, and lets epsilon fall from env step 50,000 on.)",
        {
            "run": _RUN,
            "dqn": {
                **_REPLAY,
                "replay_initial": 50_000,
                "optimizer": "rmsprop",
                "learning_rate": 2.5e-4,
                "rmsprop_epsilon": 0.01 / 32**2,
                "loss": "clipped",
                "target_sync": 40_000,
                "epsilon_start": 1.0,
                "epsilon_final": 0.1,
                "epsilon_decay": 1_111_111,  # 0.9 in a million env steps
            },
            "pace": _PACE,
            "parts": {"importance_decay": None},  # Schaul et al. 2016, for --prioritized
        },
        {},
    ),
    "rainbow": Agent(
        "Hessel et al. 2017, table 1 and the section on hyper-parameters, whose agents without noise take epsilon to "
        "0.01 in 250,000 frames; the gradient's norm and the priorities are those of google-deepmind/dqn_zoo, "
        "dqn_zoo/rainbow",
        {
            "run": _RUN,
            "dqn": {
                **_REPLAY,
                **_ADAM,
                "replay_initial": 20_000,
                "target_sync": 8_000,
                "epsilon_start": 1.0,
                "epsilon_final": 0.01,
                "epsilon_decay": 63_131,  # 0.99 in 62,500 env steps
                "max_norm": 10.0,
            },
            "pace": _PACE,
            "parts": {
                **_ATOMS,
                "priority_measure": "cross-entropy",
                "noise": "factorised",
                "noisy_sigma": 0.5,
                "priority_exponent": 0.5,
                "importance_exponent": 0.4,
                "importance_final": 1.0,
                "importance_decay": None,
            },
        },
        {
            "dqn": {"double": True, "n_step": 3},
            "parts": {"dueling": True, "noisy": True, "prioritized": True, "distributional": True},
        },
        needs="parts",
    ),
    "dopamine-dqn": Agent(
        "google/dopamine, dopamine/jax/agents/dqn/configs/dqn.gin and dqn_agent.py (those of 2018 had RMSProp and "
        "clipped errors)",
        {
            "run": _RUN,
            "dqn": _DOPAMINE,
            "pace": _PACE,
            "agent": {"network": "dopamine", "init": "xavier"},
            "parts": {"importance_decay": None},
        },
        {},
        needs="agent",
    ),
    "dopamine-rainbow": Agent(
        "google/dopamine, dopamine/jax/agents/rainbow/configs/rainbow.gin and rainbow_agent.py: C51, 3 steps and "
        "priorities alone, with a beta that stays 0.5",
        {
            "run": _RUN,
            "dqn": _DOPAMINE,
            "pace": _PACE,
            "agent": {"network": "dopamine", "init": "dopamine"},
            "parts": {
                **_ATOMS,
                "priority_exponent": 0.5,
                "priority_floor": 1e-10,
                "priority_measure": "cross-entropy",
                "importance_exponent": 0.5,
                "importance_final": 0.5,
                "importance_decay": None,
            },
        },
        {"dqn": {"n_step": 3}, "parts": {"prioritized": True, "distributional": True}},
        needs="parts",
    ),
    "der": Agent(
        "van Hasselt et al. 2019 (Data-efficient Rainbow), the appendix, with the gradient's norm, the noise and the "
        "priorities of Kaixhin/Rainbow and its options for it",
        {
            "run": RUN_100K,
            "dqn": {
                **DQN_100K,
                **_FALLING_100K,
                "n_step": 20,
                "target_sync": 2_000,
                "max_norm": 10.0,
            },
            "pace": {"steps": 1},
            "vector": {"num_envs": 1},
            "agent": {"network": "der"},
            "parts": {
                **_ATOMS,
                "noise": "factorised",
                "noisy_sigma": 0.1,
                "priority_exponent": 0.5,
                "priority_measure": "cross-entropy",
                "importance_exponent": 0.4,
                "importance_final": 1.0,
                "importance_decay": None,
            },
        },
        {
            "dqn": {"double": True},
            "parts": {"dueling": True, "noisy": True, "prioritized": True, "distributional": True},
        },
        needs="parts",
    ),
    "der-2021": Agent(
        "Agarwal et al. 2021: google/dopamine of 2021-11-03 (c67e2c3), dopamine/labs/atari_100k/configs/DER.gin, whose "
        "epsilon stays 0.01 beside the noise (full_rainbow_agent.py: identity_epsilon)",
        {
            "run": RUN_100K,
            "dqn": {
                **DQN_100K,
                "n_step": 10,
                "target_sync": 2_000,
                "epsilon_start": 0.01,
                "epsilon_final": 0.01,
            },
            "pace": {"steps": 1},
            "vector": {"num_envs": 1},
            "agent": {"network": "dopamine", "init": "xavier"},
            "parts": {
                **_ATOMS,
                "noise": "factorised",
                "noisy_sigma": 0.1,
                "priority_exponent": 0.5,
                "priority_floor": 1e-10,
                "priority_measure": "cross-entropy",
                "importance_exponent": 0.5,
                "importance_final": 0.5,
                "importance_decay": None,
            },
        },
        {
            "dqn": {"double": True},
            "parts": {"dueling": True, "noisy": True, "prioritized": True, "distributional": True},
        },
        needs="parts",
        explores=True,
    ),
    "drq-eps": Agent(
        "Kostrikov et al. 2020 as Agarwal et al. 2021 repeat it, DrQ(epsilon): google/dopamine, "
        "dopamine/labs/atari_100k/configs/DrQ_eps.gin and atari_100k_rainbow_agent.py",
        {
            "run": RUN_100K,
            "dqn": {
                **DQN_100K,
                "n_step": 10,
                "target_sync": 1,
                "loss": "clipped",
                **_FALLING_100K,
            },
            "pace": {"steps": 1},
            "vector": {"num_envs": 1},
            "agent": {"network": "dopamine", "init": "xavier"},
            "update": {"random_shift": 4, "random_intensity": 0.05},
            "parts": {"importance_decay": None},
        },
        {"dqn": {"double": True}, "parts": {"dueling": True}},
        needs="parts",
    ),
    "100k-fast": Agent(
        "this project: drq-eps with histograms of lambda-returns, a larger learning rate, a network of tiles, and "
        "averaged weights in the end (LOG.md)",
        {
            "run": RUN_100K,
            "dqn": {
                **DQN_100K,
                "n_step": 1,
                "learning_rate": 3e-4,
                **_FALLING_100K,
            },
            "pace": {"steps": 1},
            "vector": {"num_envs": 1},
            "agent": {"network": "tiles"},
            "update": {"random_shift": 4, "random_intensity": 0.05},
            "parts": {"importance_decay": None, "value_min": -40.0, "value_max": 40.0},
            "returns": {"trace_decay": 0.9, "refresh_env_steps": 2_000},
            "evaluation": {"final_average": 0.05},
        },
        {"parts": {"dueling": True, "distributional": True}},
        needs="returns",
    ),
    "pong-fast": Agent(
        "this project: Pong as it is solved soonest on two cores (LOG.md)",
        {
            "run": {"max_env_steps": 3_000_000},
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
        },
        {},
        needs="update",
        stops=True,
    ),
}
