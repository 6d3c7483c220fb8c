"""From options to nouns: the parts that were asked for, in the form that is fastest here."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from fastdqn import build, build_sac
from fastdqn.algorithms.a2c import Settings
from fastdqn.algorithms.objectives import HistogramObjective
from fastdqn.build import _learning, build_device_replay, check_games, games_on_device, one_game, schedule_of
from fastdqn.build_actor_critic import gradients_elsewhere, played_here, rollouts_here
from fastdqn.build_sac import control_here
from fastdqn.errors import UserError
from fastdqn.execution.devices import has_bf16
from fastdqn.execution.ranks import ALONE
from fastdqn.forms import fastest_form
from fastdqn.networks.noisy import noisy_layers
from fastdqn.options.dqn import UpdateOptions
from fastdqn.options.groups import groups_of
from fastdqn.options.run import RunOptions
from fastdqn.options.sac import SACOptions
from fastdqn.replay.prioritized import PrioritizedReplay
from fastdqn.replay.returns import ReturnReplay
from fastdqn.seeds import seeds_of
from fastdqn.steps import learning_rate_of
from tests.helpers.learners import CPU, SHAPE, learner_from, learner_of, options_of, random_batch
from tests.helpers.scripts import parse


def test_bf16_is_the_default_only_where_it_is_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    for capability, flags, expected in (
        ("AVX2", {"avx2"}, False),
        ("AVX512", {"avx512f"}, False),
        ("AVX512", {"avx512f", "avx512_bf16"}, True),
    ):
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda capability=capability: capability)
        monkeypatch.setattr("fastdqn.execution.devices._cpu_flags", lambda flags=flags: flags)
        assert has_bf16(CPU) is expected
        assert fastest_form("auto", CPU).bf16 is expected
    assert fastest_form("bf16", CPU).bf16
    assert not fastest_form("fp32", CPU).bf16


@pytest.mark.parametrize(("name", "said"), [("pong", "no-ops 0-29"), ("tests.helpers.own:Dots", "no-ops none")])
def test_players_elsewhere_begin_their_games_as_the_start_says(name: str, said: str) -> None:
    options = parse("22_a3c_grad", "--game", name, "--players", "1")
    made = gradients_elsewhere(
        *(options.run, options.game, options.a2c, options.gradients, options.vector, options.player, options.players)
    )
    assert any(f", {said}, " in note for note in made.notes)


def test_histograms_are_of_rescaled_returns_and_the_replay_ends_where_they_do() -> None:
    options = parse("12_atari_100k", "--game", "breakout", "--agent", "100k-fast", "--replay-size", "2000")
    _, games, learner, replay, *_ = games_on_device(
        *(options.run, options.game, options.dqn, options.pace, options.vector),
        *(options.update, options.agent, options.parts, options.returns),
    )
    assert isinstance(learner.objective, HistogramObjective)
    assert isinstance(replay, ReturnReplay)
    assert learner.objective.returns[[0, 25, 50]].tolist() == pytest.approx([-40.0, 0.0, 40.0], abs=1e-4)
    assert replay._limits == (-40.0, 40.0)
    scalar = replace(options.parts, distributional=False)
    other = build_device_replay(seeds_of(0), options.dqn, games, CPU, scalar, options.returns)
    assert isinstance(other, ReturnReplay)
    assert other._limits == (-math.inf, math.inf)


def test_a_replay_that_begins_anew_begins_with_what_was_received() -> None:
    """Not with what the games of a group have shown since, for a checkpoint."""
    options = parse("11_pong_in_seconds", "--num-envs", "2", "--env-threads", "1", "--replay-size", "9000")
    _, games, _, replay, *_ = games_on_device(
        *(options.run, options.game, options.dqn, options.pace, options.vector),
        *(options.update, options.agent, options.parts, options.returns),
        in_flight=True,
    )
    first = games.reset().copy()
    replay.reset(first)
    for _ in range(60):
        games.send(np.full(2, 3))
        before = games.recv().frames.copy()
    games.send(np.full(2, 3))
    games.state()
    replay.discard(None)
    assert not np.array_equal(first, before)
    assert np.array_equal(replay.stacks()[:, -1].numpy(), before)
    assert not np.array_equal(games.recv().frames, before)


def test_there_are_as_many_atoms_as_asked_for() -> None:
    """arange(-10, 10, 20 / 50) would make 50 of the 51."""
    learner = learner_of("distributional")
    assert learner.outputs(random_batch(2).obs).shape == (2, 6, 51)
    assert learner.objective.atoms.tolist() == pytest.approx(np.linspace(-10, 10, 51).tolist(), abs=1e-6)  # type: ignore[attr-defined]


def test_the_replay_knows_priorities_if_they_are_asked_for() -> None:
    games: Any = SimpleNamespace(obs_shape=SHAPE, num_envs=8, num_actions=6)

    def replay_of(variant: Any) -> object:
        options = options_of(variant, replay_size=1000)
        assert options.dqn is not None
        return build_device_replay(seeds_of(0), options.dqn, games, CPU, options.parts)

    assert isinstance(replay_of("prioritized"), PrioritizedReplay)
    assert not isinstance(replay_of("dqn"), PrioritizedReplay)
    games.num_actions = 300
    with pytest.raises(
        UserError, match=r"has 300 actions, and .* holds at most 256; the scripts without one take more"
    ):
        replay_of("dqn")


def test_beta_rises_over_the_whole_run_and_no_further_than_asked_for() -> None:
    games: Any = SimpleNamespace(obs_shape=SHAPE, num_envs=8, num_actions=6)
    words = ("--game", "seaquest", "--replay-size", "1000", "--replay-initial", "100", "--max-env-steps", "2000")

    def betas_of(agent: str) -> list[float]:
        options = parse("10_rainbow", "--agent", agent, *words)
        learner = learner_from(groups_of(options))
        replay: Any = build_device_replay(seeds_of(0), options.dqn, games, CPU, options.parts)
        schedule = schedule_of(options.dqn, options.update, options.parts, learner, replay)
        found: list[float] = []
        for env_step in (0, 500, 2000, 9000):
            schedule(env_step)
            found.append(float(replay._beta))
        return found

    assert betas_of("rainbow") == pytest.approx([0.4, 0.55, 1.0, 1.0])
    assert betas_of("dopamine-rainbow") == pytest.approx([0.5] * 4)


def test_gamma_moves_while_the_learning_rate_does() -> None:
    games: Any = SimpleNamespace(obs_shape=SHAPE, num_envs=8, num_actions=6, newest=np.zeros((8, *SHAPE[1:]), np.uint8))
    words = ("--replay-size", "4000", "--replay-initial", "600", "--learning-rate-decay", "1000", "--gamma", "0.96")
    options = parse("11_pong_in_seconds", *words, "--final-gamma", "0.99", "--device", "cpu")
    replay: Any = build_device_replay(seeds_of(0), options.dqn, games, CPU, options.parts, options.returns)
    learner = learner_from(groups_of(options))
    schedule = schedule_of(options.dqn, options.update, options.parts, learner, replay, options.returns)
    found: list[float] = []
    for env_step, decaying in ((0, 0), (9000, 0), (9500, 500), (10_000, 1000), (20_000, 11_000)):
        schedule(env_step, decaying)
        found.append(replay.frames._gamma)
    assert found == pytest.approx([0.96, 0.96, 0.98, 0.99, 0.99])
    said = options.freeze.describe(options.update.final_learning_rate, options.returns.final_gamma)
    assert said == ("the learning rate and gamma stay until the agent has won 75% of its last 100 points",)
    assert options.freeze.describe(None, None) == ()
    assert options.freeze.describe(None, 0.99)[0].startswith("gamma stays until")
    with pytest.raises(UserError, match=r"^--final-gamma must be at least 0 and below 1, not 1"):
        parse("11_pong_in_seconds", "--final-gamma", "1")
    with pytest.raises(UserError, match=r"^--final-gamma needs a --gamma below 1, as 1 - gamma"):
        parse("11_pong_in_seconds", "--gamma", "1")


def test_the_learning_rate_begins_anew_and_gamma_does_not() -> None:
    games: Any = SimpleNamespace(obs_shape=SHAPE, num_envs=8, num_actions=6, newest=np.zeros((8, *SHAPE[1:]), np.uint8))
    words = ("--replay-size", "4000", "--replay-initial", "600", "--device", "cpu", "--gamma", "0.96")
    words += ("--learning-rate", "8e-4", "--final-learning-rate", "2e-4", "--learning-rate-decay", "1000")
    options = parse("11_pong_in_seconds", *words, "--learning-rate-restart", "1500", "--final-gamma", "0.99")
    replay: Any = build_device_replay(seeds_of(0), options.dqn, games, CPU, options.parts, options.returns)
    learner = learner_from(groups_of(options))
    schedule = schedule_of(options.dqn, options.update, options.parts, learner, replay, options.returns)
    rates, gammas = [], []
    for decaying in (0, 500, 1000, 1499, 1500, 2000, 2500, 3000, 3500):
        schedule(9000 + decaying, decaying)
        rates.append(learning_rate_of(learner.group.optimizer))
        gammas.append(replay.frames._gamma)
    assert rates == pytest.approx([8e-4, 5e-4, 2e-4, 2e-4, 8e-4, 5e-4, 2e-4, 8e-4, 5e-4])
    assert gammas == pytest.approx([0.96, 0.98, *[0.99] * 7])
    assert options.update.moving() == " moving to 0.0002, anew every 1,500 env steps"
    assert UpdateOptions(learning_rate_restart=300_000).moving() == ""
    assert UpdateOptions(final_learning_rate=1e-4).moving() == " moving to 0.0001"


def test_every_script_says_what_it_learns_from_and_when_it_stops() -> None:
    words = ("--replay-size", "1000", "--replay-initial", "100", "--max-env-steps", "2000")
    for script in ("01_baseline", "02_play_steps"):
        options = parse(script, *words)
        pace = getattr(options, "pace", None)
        notes = one_game(options.run, options.game, options.dqn, "classic", pace).notes
        assert notes[1].startswith("learns by agent post2017: Adam 0.0001, 32 samples for each env step")
        assert ("(batch 128 every 4)" in notes[1]) == (pace is not None)
        assert notes[2] == "stops when the mean of 100 games is above 18, or after 2,000 env steps"
    options = parse("01_baseline", "--agent", "nature", *words)
    notes = one_game(options.run, options.game, options.dqn, "classic").notes
    assert notes[2] == "updates are on 8 transitions after each env step; those of nature are on 32 every 4"
    assert notes[3] == "stops after 2,000 env steps"


def said(script: str, words: str) -> tuple[str, ...]:
    """Return all lines, for a script that has parts with that of the parts."""
    options: Any = groups_of(parse(script, *words.split()))
    line = _learning(options.dqn, options.pace, options.update, options.agent, options.parts, options.returns)
    parts = () if options.parts is None else (options.parts.describe(options.agent.describe(), options.dqn.double),)
    return (line, *parts, options.run.describe_end())


def test_a_run_says_what_it_learns_from() -> None:
    assert said("10_rainbow", "--agent rainbow --game seaquest") == (
        "learns by agent rainbow: Adam 6.25e-05, gradients clipped to 10, 8 samples for each env step (batch 32 every "
        "4), 3 steps, gamma 0.99, target copied every 8,000 env steps, no epsilon",
        "parts: nature network, double, dueling, factorised noise, prioritized by cross-entropy (alpha 0.5, beta from "
        "0.4 to 1 over 50,000,000 env steps), 51 atoms from -10 to 10",
        "stops after 50,000,000 env steps",
    )
    assert said("01_baseline", "--agent nature") == (
        "learns by agent nature: RMSProp 0.00025, clipped errors, 8 samples for each env step, 1 step, gamma 0.99, "
        "target copied every 40,000 env steps, epsilon 1 to 0.1",
        "stops after 50,000,000 env steps",
    )
    assert said("11_pong_in_seconds", "--device cpu --max-minutes 9 --target-average 0.005 --refresh-delay 0.5") == (
        "learns by agent pong-fast: Adam 0.0007 moving to 0.0001, anew every 100,000 env steps, 4 samples for each env "
        "step (batch 64 every 16), "
        "lambda-returns (0.9, blocks of 64 env steps a game, anew every 2,048 env steps in 4 turns, in use 1,024 "
        "later), gamma 0.98 moving to 0.99, no "
        "target network, played by an average of the weights, to which each update adds 0.005, epsilon 1 to 0.02",
        "parts: nature network with initial weights by xavier, prioritized (alpha 0.6, beta 0)",
        "stops when the mean of 100 games is above 18, or after 3,000,000 env steps, or after 9 minutes",
    )
    assert "prioritized by cross-entropy (alpha 0.5, beta 0.5)" in said("10_rainbow", "--agent dopamine-rainbow")[1]
    assert "clipped" not in said("10_rainbow", "--agent nature --distributional")[0]


def test_a_run_without_limits_says_so() -> None:
    assert RunOptions(stop_score=None, max_env_steps=None).describe_end() == "stops at Ctrl-C alone"


def test_ranks_that_would_end_before_their_first_update_are_refused() -> None:
    """Env steps are those of both, and the first updates are made a round after the games have come so far."""
    options = parse("09_cuda_graph", "--agent", "post2017", "--steps", "4", "--replay-initial", "1000")
    for most, world in ((1023, 1), (2047, 2)):
        run = replace(options.run, max_env_steps=most)
        with pytest.raises(UserError, match=f"--max-env-steps {most} ends the run of {24 * world} games by its first"):
            check_games(24, run, options.dqn, options.pace, world=world)
        check_games(24, replace(run, max_env_steps=most + 1), options.dqn, options.pace, world=world)


def test_what_a_paper_says_reaches_learner_and_replay() -> None:
    games: Any = SimpleNamespace(obs_shape=SHAPE, num_envs=8, num_actions=6)
    words = ("--agent", "der", "--gamma", "0.5", "--n-step", "3", "--priority-floor", "0.25", "--num-envs", "8")
    options = parse("10_rainbow", *words, "--replay-size", "1000", "--replay-initial", "100", "--max-env-steps", "2000")
    learner = learner_from(groups_of(options))
    assert learner.group.max_norm == 10.0
    assert learner.group.optimizer.param_groups[0]["eps"] == 1.5e-4
    for layer in noisy_layers(learner.network).values():
        assert layer.weight_sigma[0, 0].item() == pytest.approx(0.1 / math.sqrt(layer.weight.shape[1]))
    replay: Any = build_device_replay(seeds_of(0), options.dqn, games, CPU, options.parts)
    assert float(replay._priority(torch.tensor(1.0))) == pytest.approx(1.25**0.5)
    none = torch.zeros(1, 3, dtype=torch.bool)
    assert [float(one) for one in replay.windows.returns(torch.ones(1, 3), none, none)] == [1.75, 0.125, 3.0]


def test_options_of_actor_critics_reach_what_they_are_of() -> None:
    weights = ("--learning-rate", "0.5", "--adam-epsilon", "0.25", "--entropy-weight", "0.125")
    weights += ("--value-weight", "2", "--max-norm", "3")
    game = ("--game", "CartPole-v1", "--num-envs", "2", "--gamma", "0.75")
    words = ("--trace-decay", "0.375", "--rollout-steps", "7", "--clip", "0.3", "--target-kl", "0.02")
    ppo = parse("41_ppo_ranks", *game, *weights, *words)
    _, learner, player, _ = rollouts_here(ppo.run, ppo.game, ppo.ppo, ppo.vector, ALONE)
    assert (player._steps, player._gamma, player._trace_decay) == (7, 0.75, 0.375)
    assert learner._settings == Settings(0.5, 0.25, 0.125, 2.0, 3.0)
    assert (learner._clip, learner._most) == (0.3, pytest.approx(0.03))
    a2c = parse("20_a2c", *game, *weights, "--n-step", "5", "--batch-size", "9")
    _, critic, pieces, _ = played_here(a2c.run, a2c.game, a2c.a2c, a2c.pieces, a2c.vector)
    assert critic._settings == Settings(0.5, 0.25, 0.125, 2.0, 3.0)
    window: Any = pieces._stacks._windows[0]
    assert (window._n, window._gamma, pieces._size) == (5, 0.75, 9)


def test_room_for_a_checkpoints_copies_of_vectors_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """More of them where another process writes the checkpoint; none where it leaves the replay out."""
    found: list[tuple[int, int]] = []
    monkeypatch.setattr(build_sac, "check_box_memory", lambda *_, replays, copies: found.append((replays, copies)))
    words = ("--game", "Pendulum-v1", "--replay-size", "1000")
    ranks: Any = SimpleNamespace(
        alone=False, world=2, sharing=lambda _: 2, descent=None, notes=(), together=lambda: None
    )
    for more in ((), ("--no-checkpoint-replay",), ("--no-checkpoints",)):
        options = parse("31_sac", *words, *more)
        ranks.place = lambda run, vector: (CPU, seeds_of(run.seed), vector)
        for others in (ALONE, ranks):
            control_here(options.run, options.game, options.sac, options.vector, others)
        options = parse("32_sac_hogwild", *words, *more, "--sessions", "3")
        build_sac.sessions_elsewhere(options.run, options.game, options.sac, options.vector, options.sessions)
    assert found == [(1, 1), (2, 5), (3, 5), *[(1, 0), (2, 0), (3, 0)] * 2]


@pytest.mark.parametrize("script", ["09_cuda_graph", "42_sac_ranks"])
def test_all_ranks_have_looked_for_memory_before_one_takes_it(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """On a GPU that they share; each looks for room for all their replays."""
    done: list[str] = []
    ranks: Any = SimpleNamespace(alone=False, world=2, sharing=lambda _: 2, descent=None, notes=())
    ranks.place = lambda run, vector: (CPU, seeds_of(run.seed), vector)
    ranks.together = lambda: done.append("together")
    options = parse(script, "--replay-size", "5000", "--replay-initial", "1000", "--num-envs", "2")
    module, check, replay = (
        (build, "check_device_memory", "FrameReplay")
        if script == "09_cuda_graph"
        else (build_sac, "check_box_memory", "BoxReplay")
    )
    made = getattr(module, replay)
    monkeypatch.setattr(module, check, lambda *_, replays, **__: done.append(f"{check} of {replays}"))
    monkeypatch.setattr(module, replay, lambda *args, **more: (done.append(replay), made(*args, **more))[1])
    if script == "09_cuda_graph":
        games_on_device(options.run, options.game, options.dqn, options.pace, options.vector, ranks=ranks)
    else:
        control_here(options.run, options.game, options.sac, options.vector, ranks)
    assert done == [f"{check} of 2", "together", replay]


def test_options_of_soft_actor_critic_reach_what_they_are_of() -> None:
    words = ("--game", "Pendulum-v1", "--max-norm", "0.5", "--gamma", "0.75", "--newest-in-batch")
    words += ("--target-entropy", "-3", "--initial-temperature", "0.5", "--target-average", "0.25")
    options = parse("31_sac", *words, "--adam-epsilon", "1e-4", "--replay-size", "1000")
    _, _, learner, replay, _, _ = control_here(options.run, options.game, options.sac, options.vector)
    assert [group.max_norm for group in learner.groups()] == [None, 0.5, 0.5]
    assert {group.optimizer.param_groups[0]["eps"] for group in learner.groups()} == {1e-4}
    assert (learner._settings.target_entropy, learner._settings.target_average) == (-3.0, 0.25)
    assert learner.log_temperature.exp().item() == pytest.approx(0.5)
    assert (replay._gamma, replay._newest_in_batch) == (0.75, True)


@pytest.mark.parametrize(
    "build_one",
    [lambda: learner_of("dqn"), lambda: build_sac.build_learner(seeds_of(0), SACOptions(), 3, 1, CPU)],
    ids=["dqn", "sac"],
)
def test_another_default_of_pytorchs_is_one_sentence(build_one: Any) -> None:
    torch.set_default_dtype(torch.float64)
    try:
        with pytest.raises(UserError, match=r"^fastdqn computes in float32, and torch.set_default_dtype says torch.f"):
            build_one()
    finally:
        torch.set_default_dtype(torch.float32)
