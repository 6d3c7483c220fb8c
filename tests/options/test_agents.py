"""Agents: the numbers of the papers, written out here, through the command lines of the scripts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest

from fastdqn.algorithms.exploration import epsilon_at
from fastdqn.errors import UserError
from fastdqn.networks.torso import DATA_EFFICIENT, Torso
from fastdqn.options.agents import AGENTS
from fastdqn.options.dqn import AgentName
from fastdqn.tools.evaluate import PROTOCOLS
from tests.helpers.scripts import TOY_CATCH, parse

FRAMES = 200_000_000
"""How long the papers train."""


def learnt(options: Any) -> dict[str, Any]:
    """Return what an update is made of; a script without --steps makes one after each env step."""
    dqn = options.dqn
    every = options.pace.steps if hasattr(options, "pace") else 1
    return {
        "agent": dqn.agent,
        "optimizer": (dqn.optimizer, dqn.learning_rate, dqn.adam_epsilon if dqn.optimizer == "adam" else None),
        "loss": dqn.loss,
        "batch": (dqn.batch_size * every, every),
        "gamma": dqn.gamma,
        "n": dqn.n_step,
        "target": dqn.target_sync,
        "replay": (dqn.replay_initial, dqn.replay_size),
        "epsilon": (dqn.epsilon_start, dqn.epsilon_final),
        "limits": (options.run.stop_score, options.run.max_env_steps),
    }


NATURE = {
    "agent": "nature",
    "optimizer": ("rmsprop", 0.00025, None),
    "loss": "clipped",
    "batch": (32, 4),
    "gamma": 0.99,
    "n": 1,
    "target": 40_000,  # 10,000 updates
    "replay": (50_000, 1_000_000),
    "epsilon": (1.0, 0.1),
    "limits": (None, FRAMES // 4),
}
RAINBOW = {
    "agent": "rainbow",
    "optimizer": ("adam", 0.0000625, 0.00015),
    "loss": "squared",
    "batch": (32, 4),
    "gamma": 0.99,
    "n": 3,
    "target": 32_000 // 4,
    "replay": (80_000 // 4, 1_000_000),
    "epsilon": (0.0, 0.0),
    "limits": (None, FRAMES // 4),
}
DOPAMINE = {**RAINBOW, "replay": (20_000, 1_000_000), "target": 8_000, "epsilon": (1.0, 0.01)}
POST_PONG = {
    "agent": "post2017",
    "optimizer": ("adam", 1e-4, 1e-8),
    "loss": "squared",
    "batch": (32, 1),
    "gamma": 0.99,
    "n": 1,
    "target": 1_000,
    "replay": (10_000, 100_000),
    "epsilon": (1.0, 0.02),
    "limits": (18.0, 3_000_000),
}
POST_BREAKOUT = {
    **POST_PONG,
    "optimizer": ("adam", 2.5e-4, 1e-8),
    "target": 10_000,
    "replay": (50_000, 1_000_000),
    "epsilon": (1.0, 0.1),
    "limits": (500.0, 50_000_000),
}
POST_SMALL = {
    **POST_BREAKOUT,
    "optimizer": ("adam", 1e-4, 1e-8),
    "batch": (64, 1),
    "target": 1_000,
    "replay": (20_000, 300_000),
    "limits": (500.0, 10_000_000),
}
PONG_FAST = {
    "agent": "pong-fast",
    "optimizer": ("adam", 5e-4, 1e-8),
    "loss": "squared",
    "batch": (32, 16),
    "gamma": 0.98,
    "n": 5,
    "target": 3_200,
    "replay": (5_000, 300_000),
    "epsilon": (1.0, 0.02),
    "limits": (18.0, 3_000_000),
}
DER = {
    "agent": "der",
    "optimizer": ("adam", 0.0001, 0.00015),
    "loss": "squared",
    "batch": (32, 1),
    "gamma": 0.99,
    "n": 20,
    "target": 2_000,
    "replay": (1_600, 120_000),  # all of 100,000, with the resets between games
    "epsilon": (0.0, 0.0),
    "limits": (None, 100_000),
}
DER_2021 = {**DER, "agent": "der-2021", "n": 10, "epsilon": (0.01, 0.01)}
DRQ_EPS = {**DER, "agent": "drq-eps", "loss": "clipped", "n": 10, "target": 1, "epsilon": (1.0, 0.01)}


def four(one: dict[str, Any]) -> dict[str, Any]:
    """Return what 02 to 11 make of these: updates every 4 env steps on 4 times as many transitions."""
    return {**one, "batch": (4 * one["batch"][0], 4)}


@pytest.mark.parametrize(
    ("script", "words", "expected"),
    [
        ("10_rainbow", "--agent rainbow --game seaquest", RAINBOW),
        ("10_rainbow", "--agent rainbow --game boxing", RAINBOW),
        ("10_rainbow", "--agent rainbow", RAINBOW),  # Pong too is played to the end
        ("10_rainbow", "--variant rainbow --game seaquest", RAINBOW),
        ("11_pong_in_seconds", "--agent rainbow --game seaquest", RAINBOW),
        ("10_rainbow", "--agent dopamine-dqn --game seaquest", {**DOPAMINE, "agent": "dopamine-dqn", "n": 1}),
        ("11_pong_in_seconds", "--agent dopamine-dqn", {**DOPAMINE, "agent": "dopamine-dqn", "n": 1}),
        ("10_rainbow", "--agent dopamine-rainbow --game pong", {**DOPAMINE, "agent": "dopamine-rainbow"}),
        ("09_cuda_graph", "--agent nature --game breakout", NATURE),
        ("06_vector_env", "--game boxing", NATURE),
        ("09_cuda_graph", "--game boxing", NATURE),
        ("09_cuda_graph", "--game breakout", NATURE),
        ("09_cuda_graph", "--game invaders", NATURE),
        ("10_rainbow", "--variant dueling --game seaquest", NATURE),
        ("10_rainbow", "--variant n-step --game seaquest", {**NATURE, "n": 2}),
        ("11_pong_in_seconds", "--game seaquest", NATURE),
        ("09_cuda_graph", "--agent nature --game pong", NATURE),
        ("02_play_steps", "--game seaquest", NATURE),
        ("01_baseline", "--agent nature --game breakout", {**NATURE, "batch": (8, 1)}),
        ("01_baseline", "", POST_PONG),
        ("01_baseline", "--game breakout", POST_BREAKOUT),
        ("01_baseline", "--game breakout-small", POST_SMALL),
        ("01_baseline", "--game invaders", POST_BREAKOUT),
        ("01_baseline", "--game SpaceInvaders", POST_BREAKOUT),
        ("05_opencv_wrappers", "--game breakout", four(POST_BREAKOUT)),
        ("09_cuda_graph", "", four(POST_PONG)),
        ("09_cuda_graph", "--game breakout-small", four(POST_SMALL)),
        ("09_cuda_graph", "--agent post2017 --game breakout", four(POST_BREAKOUT)),
        ("10_rainbow", "--variant rainbow", {**four(POST_PONG), "n": 2, "epsilon": (0.0, 0.0)}),
        ("12_atari_100k", "", DER),
        ("12_atari_100k", "--game breakout --agent der", DER),
        ("10_rainbow", "--agent der --game seaquest", DER),
        ("12_atari_100k", "--game qbert --agent der-2021", DER_2021),
        ("12_atari_100k", "--game qbert --agent drq-eps", DRQ_EPS),
        ("09_cuda_graph", "--agent pong-fast", PONG_FAST),
        ("09_cuda_graph", "--agent pong-fast --game boxing", {**PONG_FAST, "limits": (None, 3_000_000)}),
    ],
)
def test_an_agent_is_its_paper(script: str, words: str, expected: dict[str, Any]) -> None:
    assert learnt(parse(script, *words.split())) == expected


def parts_of(words: str) -> Any:
    return parse("10_rainbow", *words.split()).parts


def test_rainbows_parts_are_its_papers() -> None:
    """Hessel et al. 2017, table 1: beta reaches 1 at the end of the run."""
    for words in ("--agent rainbow --game seaquest", "--variant rainbow --game seaquest"):
        parts = parts_of(words)
        assert (parts.dueling, parts.noisy, parts.prioritized, parts.distributional) == (True,) * 4
        assert (parts.noise, parts.noisy_sigma) == ("factorised", 0.5)
        assert (parts.priority_exponent, parts.importance_exponent, parts.importance_final) == (0.5, 0.4, 1.0)
        assert parts.importance_decay == FRAMES // 4
        assert (parts.atoms, parts.value_min, parts.value_max) == (51, -10.0, 10.0)
        dqn = parse("10_rainbow", *words.split()).dqn
        assert (dqn.double, dqn.max_norm, parts.priority_measure) == (True, 10.0, "cross-entropy")  # dqn_zoo
    assert parts_of("--agent rainbow --max-env-steps 3000000").importance_decay == 3_000_000
    assert parts_of("--agent rainbow --importance-decay 7").importance_decay == 7
    assert parts_of("--agent rainbow --noise independent").noisy_sigma is None  # 0.5 is the factorised noise's
    assert parts_of("--agent rainbow --noise independent --noisy-sigma 0.1").noisy_sigma == 0.1


def test_dopamines_rainbow_has_three_parts_and_one_beta() -> None:
    options = parse("10_rainbow", "--agent", "dopamine-rainbow", "--game", "seaquest")
    parts = options.parts
    on = (parts.dueling, parts.noisy, options.dqn.double, parts.prioritized, parts.distributional)
    assert on == (False, False, False, True, True)
    assert (parts.priority_exponent, parts.importance_exponent, parts.importance_final) == (0.5, 0.5, 0.5)
    assert (parts.atoms, parts.value_min, parts.value_max) == (51, -10.0, 10.0)
    assert parts.priority_measure == "cross-entropy"
    assert (options.agent.network, options.agent.init) == ("dopamine", "dopamine")
    said = (
        "parts: dopamine network with initial weights by dopamine, prioritized by cross-entropy (alpha 0.5, beta 0.5)"
    )
    assert parts.describe(options.agent.describe(), options.dqn.double).startswith(said)
    dqn = parse("10_rainbow", "--agent", "dopamine-dqn").agent
    assert (dqn.network, dqn.init) == ("dopamine", "xavier")


@pytest.mark.parametrize("game", ["pong", "seaquest"])
def test_data_efficient_rainbow_is_its_papers(game: str) -> None:
    """van Hasselt et al. 2019; one game of Atari-100k's at once, without sticky actions and FIRE."""
    options = parse("12_atari_100k", "--game", game)
    parts, shown = options.parts, options.game
    assert options.dqn.double
    assert (parts.dueling, parts.noisy, parts.prioritized, parts.distributional) == (True,) * 4
    assert (parts.noise, parts.noisy_sigma, options.dqn.max_norm) == ("factorised", 0.1, 10.0)
    assert (parts.priority_exponent, parts.importance_exponent, parts.importance_final) == (0.5, 0.4, 1.0)
    assert parts.importance_decay == 100_000
    assert (parts.atoms, parts.value_min, parts.value_max) == (51, -10.0, 10.0)
    assert (options.vector.num_envs, options.agent.network, options.agent.init) == (1, "der", "pytorch")
    assert parts.priority_measure == "cross-entropy"  # Kaixhin's Rainbow
    assert (options.agent.target_average, options.agent.act_with) == (None, "online")
    assert (shown.protocol, shown.noop_max, shown.max_frames, shown.frame_skip) == ("atari-100k", 30, 27_000 * 4, 4)
    assert (shown.sticky_actions, shown.episodic_life, shown.fire_reset, shown.clip_rewards) == (0.0, True, False, True)
    assert (options.evaluation.evaluation_games, PROTOCOLS["atari-100k"].epsilon) == (100, 0.001)
    assert not PROTOCOLS["atari-100k"].noise
    convs = [(32, 5, 5), (64, 5, 5)]
    assert (list(DATA_EFFICIENT.convs), DATA_EFFICIENT.hidden) == (convs, 256)
    assert Torso(size=DATA_EFFICIENT).features == 576


def test_dopamines_agents_of_atari_100k_are_its_papers() -> None:
    """DER.gin and DrQ_eps.gin of google/dopamine, and the agent that they set up."""
    options = parse("12_atari_100k", "--game", "qbert", "--agent", "der-2021")
    parts = options.parts
    assert (parts.dueling, parts.noisy, options.dqn.double, parts.prioritized, parts.distributional) == (True,) * 5
    assert (parts.noise, parts.noisy_sigma, options.dqn.max_norm) == ("factorised", 0.1, None)
    assert (parts.priority_exponent, parts.importance_exponent, parts.importance_final) == (0.5, 0.5, 0.5)
    assert (parts.atoms, parts.value_min, parts.value_max) == (51, -10.0, 10.0)
    assert (options.vector.num_envs, options.agent.network, parts.priority_measure) == (1, "dopamine", "cross-entropy")
    assert options.agent.init == "xavier"  # of convolutions; all other layers are noisy
    assert (options.update.random_shift, options.update.random_intensity) == (0, 0.0)
    options = parse("12_atari_100k", "--game", "qbert", "--agent", "drq-eps")
    parts = options.parts
    on = (parts.dueling, options.dqn.double, parts.noisy, parts.prioritized, parts.distributional)
    assert on == (True, True, False, False, False)
    assert (options.update.random_shift, options.update.random_intensity) == (4, 0.05)
    assert (options.vector.num_envs, options.agent.network, options.dqn.max_norm) == (1, "dopamine", None)
    assert options.agent.init == "xavier"


@pytest.mark.parametrize("agent", ["post2017", "nature", "rainbow", "dopamine-dqn", "dopamine-rainbow", "pong-fast"])
def test_atari_100k_is_100000_env_steps_of_one_game_whoever_learns_it(agent: str) -> None:
    options = parse("12_atari_100k", "--game", "pong", "--agent", agent)
    assert (options.run.max_env_steps, options.vector.num_envs, options.run.stop_score) == (100_000, 1, None)
    assert options.dqn.replay_size == (100_000 if agent == "post2017" else 120_000)
    longer = parse("12_atari_100k", "--game", "pong", "--agent", agent, "--max-env-steps", "200000", "--num-envs", "4")
    assert (longer.run.max_env_steps, longer.vector.num_envs) == (200_000, 4)


def test_the_projects_own_agent_of_atari_100k_trains_on_as_many_samples() -> None:
    options, published = (
        parse("12_atari_100k", "--game", "qbert", "--agent", name) for name in ("100k-fast", "drq-eps")
    )
    for one in (options, published):
        assert (one.run.max_env_steps, one.vector.num_envs, one.run.stop_score) == (100_000, 1, None)
        assert one.dqn.batch_size * (100_000 - one.dqn.replay_initial) == 3_148_800
    assert options.game == published.game
    assert options.evaluation == replace(published.evaluation, final_average=0.05)
    assert published.evaluation.describe().endswith("plays 100 games, and leaves the newest weights")
    assert options.evaluation.describe().endswith("an average of the weights, moved by 0.05 at each tenth update")
    with pytest.raises(UserError, match="--final-average must be more than 0"):
        parse("12_atari_100k", "--game", "qbert", "--final-average", "0")
    assert (options.returns.trace_decay, options.dqn.n_step, options.dqn.double) == (0.9, 1, False)
    assert (options.parts.dueling, options.parts.distributional, options.parts.atoms) == (True, True, 51)
    assert (options.parts.value_min, options.parts.value_max) == (-40.0, 40.0)
    with pytest.raises(UserError, match="100k-fast"):
        parse("10_rainbow", "--agent", "100k-fast")


def test_another_protocol_may_be_asked_for_and_an_environment_of_ones_own_has_none() -> None:
    assert parse("12_atari_100k", "--protocol", "machado").game.sticky_actions == 0.25
    own = parse("12_atari_100k", "--game", TOY_CATCH).game
    assert (own.protocol, own.noop_max, own.frame_skip) == (None, 0, 1)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--agent nature", {0: 1.0, 500_000: 0.55, 1_000_000: 0.1, 9_000_000: 0.1}),
        ("--agent dopamine-dqn", {20_000: 1.0, 145_000: 0.505, 270_000: 0.01, 9_000_000: 0.01}),
        ("--agent rainbow --no-noisy", {0: 1.0, 31_250: 0.505, 62_500: 0.01, 9_000_000: 0.01}),
        ("--agent rainbow", {0: 0.0, 9_000_000: 0.0}),
        ("--agent der", {0: 0.0, 100_000: 0.0}),
        ("--agent der --no-noisy", {1_600: 1.0, 4_100: 0.50505, 6_650: 0.01, 100_000: 0.01}),
        ("--agent der-2021", {0: 0.01, 100_000: 0.01}),
        ("--agent drq-eps", {1_600: 1.0, 4_100: 0.50505, 6_650: 0.01, 100_000: 0.01}),
        ("--agent post2017", {0: 1.0, 50_000: 0.5, 98_000: 0.02}),
    ],
)
def test_epsilon_falls_as_in_the_papers(words: str, expected: dict[int, float]) -> None:
    dqn = parse("10_rainbow", *words.split()).dqn
    assert {at: epsilon_at(at, dqn) for at in expected} == pytest.approx(expected, abs=1e-5)


def test_single_options_beat_the_agent() -> None:
    words = ("--learning-rate", "1e-3", "--agent", "rainbow", "--n-step", "5", "--atoms", "21", "--game", "seaquest")
    options = parse("10_rainbow", *words)
    assert (options.dqn.agent, options.dqn.learning_rate, options.dqn.n_step) == ("rainbow", 1e-3, 5)
    assert (options.parts.atoms, options.dqn.target_sync) == (21, 8_000)


@pytest.mark.parametrize(
    ("script", "agent", "has_it"),
    [
        ("09_cuda_graph", "rainbow", "10_rainbow.py"),
        ("01_baseline", "dopamine-rainbow", "10_rainbow.py"),
        ("09_cuda_graph", "dopamine-dqn", "10_rainbow.py"),
        ("03_parallel", "pong-fast", "09_cuda_graph.py"),
    ],
)
def test_a_script_that_lacks_the_agents_parts_names_one_that_has_them(script: str, agent: str, has_it: str) -> None:
    with pytest.raises(UserError) as caught:
        parse(script, "--agent", agent)
    assert str(caught.value) == f"This script lacks what the agent {agent} is made of; {has_it} has it."


def test_an_unknown_agent_is_one_sentence_with_the_names_that_the_script_has() -> None:
    with pytest.raises(UserError, match="--agent takes one of post2017, nature, pong-fast, not moon"):
        parse("09_cuda_graph", "--agent", "moon")
    assert set(get_args(AgentName)) == set(AGENTS)


def test_a_stop_score_counts_games_with_some_chance_alone() -> None:
    """Noisy layers are chance enough."""
    with pytest.raises(UserError, match=r"--stop-score 18 .* --epsilon-final is 0\.01; raise it"):
        parse("10_rainbow", "--agent", "dopamine-dqn", "--stop-score", "18")
    with pytest.raises(UserError, match="--stop-score"):
        parse("09_cuda_graph", "--stop-score", "18", "--epsilon-final", "0.019")
    assert parse("09_cuda_graph", "--epsilon-final", "0.019").run.stop_score is None
    assert parse("09_cuda_graph", "--epsilon-final", "0.03").run.stop_score == 18.0
    assert parse("10_rainbow", "--agent", "rainbow", "--stop-score", "18").run.stop_score == 18.0
    assert parse("10_rainbow", "--noisy").run.stop_score == 18.0
    assert parse("09_cuda_graph", "--agent", "nature", "--stop-score", "18").run.stop_score == 18.0
