"""Presets: what the name of a game implies."""

from __future__ import annotations

import dataclasses

import pytest

from fastdqn.options import presets
from fastdqn.options.agents import AGENTS
from tests.helpers.scripts import parse

FASTEST = "11_pong_in_seconds"


def test_defaults_are_the_2017_posts() -> None:
    options = parse("03_parallel")
    dqn, game = options.dqn, options.game
    assert (game.name, options.run.stop_score) == ("pong", 18.0)
    assert (options.pace.steps, options.player.player_device) == (4, "same")
    assert (dqn.replay_size, dqn.replay_initial, dqn.batch_size, dqn.target_sync) == (100_000, 10_000, 32, 1_000)
    assert (dqn.learning_rate, dqn.gamma, dqn.n_step) == (1e-4, 0.99, 1)
    assert (dqn.epsilon_start, dqn.epsilon_final, dqn.epsilon_decay) == (1.0, 0.02, 100_000)
    assert (game.frame_skip, game.noop_max, game.sticky_actions) == (4, 30, 0.0)


@pytest.mark.parametrize(
    ("game", "expected"),
    [
        ("breakout-small", (300_000, 20_000, 64, 1e-4, 1_000, 0.1, 1_000_000)),
        ("breakout", (1_000_000, 50_000, 32, 2.5e-4, 10_000, 0.1, 1_000_000)),
        ("invaders", (1_000_000, 50_000, 32, 2.5e-4, 10_000, 0.1, 1_000_000)),
        ("ALE/Pong-v5", (100_000, 10_000, 32, 1e-4, 1_000, 0.02, 100_000)),
        ("PongNoFrameskip-v4", (100_000, 10_000, 32, 1e-4, 1_000, 0.02, 100_000)),
        ("Breakout", (1_000_000, 50_000, 32, 2.5e-4, 10_000, 0.1, 1_000_000)),
    ],
)
def test_presets(game: str, expected: tuple[float, ...]) -> None:
    for argv in (["--game", game], [f"--game={game}"]):
        dqn = parse("01_baseline", *argv).dqn
        got = (dqn.replay_size, dqn.replay_initial, dqn.batch_size, dqn.learning_rate, dqn.target_sync)
        assert (*got, dqn.epsilon_final, dqn.epsilon_decay) == expected


def test_a_preset_sets_what_a_script_has() -> None:
    fast = parse("09_cuda_graph", "--agent", "pong-fast")
    assert (fast.update.center_frames, fast.update.frame_scale, fast.run.stop_score) == (True, 64.0, 18.0)
    assert fast.pace.steps > 4
    assert parse("09_cuda_graph", "--agent", "pong-fast", "--steps", "2").pace.steps == 2
    assert parse("10_rainbow", "--agent", "pong-fast").dqn == fast.dqn
    assert parse("09_cuda_graph", "--game", "ALE/Pong-v5").dqn == parse("01_baseline").dqn


def test_the_record_has_settings_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presets, "cores", lambda: 4)
    options = parse(FASTEST, "--device", "cpu")
    network, side, threads = options.agent.network, options.vector.frame_size, options.run.threads
    assert (options.game.name, options.dqn.agent, network, side, threads) == ("pong", "pong-fast", "nature", 60, None)
    assert options.game.crop
    assert options == parse(FASTEST, "--device", "cpu", "--agent", "pong-fast")
    fast = AGENTS["pong-fast"].settings["dqn"]
    assert (options.dqn.n_step, options.returns.trace_decay, options.agent.act_with) == (1, 0.9, "target")
    assert options.returns.refresh_delay == 0.0
    assert options.vector.num_envs == 16
    assert options.dqn.epsilon_final == 0.02  # the least with which games count
    small = parse(FASTEST, "--network", "narrow", "--device", "cpu")
    network, side, stack = small.agent.network, small.vector.frame_size, small.game.frame_stack
    assert (network, side, stack) == ("narrow", 60, 4)
    assert (small.vector.num_envs, small.run.threads) == (16, None)
    for words in (("--cuda",), ("--device", "cuda:0")):
        cuda = parse(FASTEST, *words)
        assert (cuda.agent.network, cuda.dqn.batch_size, cuda.returns.refresh_env_steps) == ("wide", 8, 1024)
        trials = dataclasses.replace(options.freeze, decay_share=None)  # how long a slow run waits was not tried there
        assert (cuda.dqn.learning_rate, cuda.freeze, cuda.vector) == (7e-4, trials, options.vector)
        assert (cuda.update.learning_rate_decay, cuda.agent.init) == (100_000, "pytorch")
        assert cuda.returns.final_gamma is cuda.update.learning_rate_restart is None
    assert parse(FASTEST, "--cuda", "--network", "nature").agent.network == "nature"
    for preset in (options, small):
        assert preset.parts.prioritized
        assert preset.dqn.replay_size < fast["replay_size"]
        assert preset.dqn.batch_size >= fast["batch_size"]
        assert (preset.freeze.freeze_share, preset.dqn.epsilon_final) == (0.87, 0.02)
        assert (preset.freeze.decay_share, preset.update.learning_rate_decay) == (0.75, 40_000)
        assert preset.update.learning_rate_restart == 100_000
        assert (preset.agent.init, preset.dqn.gamma, preset.returns.final_gamma) == ("xavier", 0.98, 0.99)
    assert parse(FASTEST, "--network", "narrow", "--frame-size", "63", "--device", "cpu").vector.frame_size == 63
    assert parse(FASTEST).run.device == "auto"


def test_on_two_cores_the_record_leaves_one_to_the_emulators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presets, "cores", lambda: 2)
    options = parse(FASTEST)
    assert (options.run.threads, options.returns.refresh_delay) == (1, 0.5)
    assert parse(FASTEST, "--threads", "2").run.threads == 2
    assert parse(FASTEST, "--game", "breakout").run.threads is None
    assert parse("10_rainbow", "--agent", "pong-fast").run.threads is None


def test_other_games_keep_their_own_settings() -> None:
    options = parse(FASTEST, "--game", "breakout", "--network", "narrow")
    assert (options.dqn, options.freeze.freeze_share) == (parse("10_rainbow", "--game", "breakout").dqn, None)
    assert (options.agent.network, options.run.threads) == ("narrow", None)
    assert (options.game.crop, options.vector.frame_size) == (False, 84)
    other = parse(FASTEST, "--game", "breakout", "--agent", "pong-fast")  # what is outside the area may matter there
    assert (other.game.crop, other.vector.frame_size, other.freeze.freeze_share) == (False, 84, 0.87)
