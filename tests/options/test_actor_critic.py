"""Options of actor-critics: what names and the machine imply, and what is refused."""

from __future__ import annotations

import pytest

from fastdqn import process
from fastdqn.errors import UserError
from fastdqn.options.actor_critic import ACTOR_CRITICS, PlayersOptions, PPOOptions
from tests.helpers.scripts import parse

SCRIPTS = ("20_a2c", "21_a3c_data", "22_a3c_grad")


@pytest.mark.parametrize("script", SCRIPTS)
def test_pongs_are_the_books(script: str) -> None:
    """Lapan 2020, chapter 13."""
    options = parse(script)
    a2c = options.a2c
    assert (a2c.learning_rate, a2c.adam_epsilon, a2c.gamma, a2c.n_step) == (1e-3, 1e-3, 0.99, 4)
    assert (a2c.entropy_weight, a2c.value_weight, a2c.max_norm) == (0.01, 1.0, 0.1)
    assert (options.game.name, options.run.stop_score, options.vector.num_envs) == ("pong", 18.0, 8)
    if script == "22_a3c_grad":
        assert (options.gradients.batch_size, options.gradients.gradients) == (64, 2)
    else:
        assert (options.pieces.batch_size, options.pieces.pieces) == (32, 4)


def test_ppo_has_settings_of_its_own_on_pong_and_the_papers_elsewhere() -> None:
    pong, other = parse("41_ppo_ranks").ppo, parse("41_ppo_ranks", "--game", "seaquest").ppo
    assert (pong.learning_rate, pong.center_frames, pong.frame_scale) == (5e-4, True, 64.0)
    assert (other.learning_rate, other.center_frames, other.frame_scale) == (2.5e-4, False, 256.0)
    assert not parse("41_ppo_ranks", "--game", "CartPole-v1").ppo.center_frames
    with pytest.raises(UserError, match=r"^--frame-scale must be"):
        parse("20_a2c", "--frame-scale", "0")


def test_ppo_begins_with_orthogonal_weights_where_its_sources_do() -> None:
    """A run of before there was a choice had PyTorch's."""
    games = ("pong", "breakout", "seaquest", "CartPole-v1", "Pendulum-v1", "BipedalWalker-v3", "Acrobot-v1")
    assert all(parse("41_ppo_ranks", "--game", name).ppo.orthogonal for name in games)
    assert all(parse("41_ppo_ranks", "--game", name, "--published").ppo.orthogonal for name in ("pong", "CartPole-v1"))
    assert not parse("41_ppo_ranks", "--game", "MountainCarContinuous-v0").ppo.orthogonal
    assert not parse("41_ppo_ranks", "--no-orthogonal").ppo.orthogonal
    assert parse("33_trainer_thread", "--game", "CartPole-v1", "--algorithm", "ppo").ppo.orthogonal
    assert not PPOOptions().orthogonal


def test_ppo_has_rl_baselines3_zoos_settings_where_actions_are_vectors() -> None:
    car, walker = (parse("41_ppo_ranks", "--game", name) for name in ("MountainCarContinuous-v0", "BipedalWalker-v3"))
    assert (car.ppo.learning_rate, car.ppo.gamma, car.ppo.rollout_steps, car.ppo.value_weight) == (
        7.77e-5,
        0.9999,
        8,
        0.19,
    )
    assert (car.ppo.max_norm, car.ppo.entropy_weight, car.run.stop_score, car.vector.num_envs) == (
        5.0,
        0.00429,
        90.0,
        1,
    )
    assert (walker.ppo.rollout_steps, walker.ppo.batch_size, walker.ppo.clip, walker.ppo.gamma) == (
        2048,
        64,
        0.18,
        0.999,
    )
    assert (walker.vector.num_envs, walker.run.stop_score, walker.ppo.target_kl) == (32, 300.0, None)
    with pytest.raises(UserError, match=r"^--target-kl must be more than 0"):
        parse("41_ppo_ranks", "--target-kl", "0")
    assert "up to a divergence of 1.5 x 0.01" in parse("41_ppo_ranks", "--target-kl", "0.01").ppo.describe()


@pytest.mark.parametrize("script", SCRIPTS)
def test_games_have_their_own(script: str) -> None:
    breakout = parse(script, "--game", "breakout")
    assert breakout.run.stop_score == 400.0
    if script == "22_a3c_grad":
        assert breakout.gradients.gradients == 4
    assert parse(script, "--game", "seaquest").run.stop_score is None
    cart = parse(script, "--game", "CartPole-v1")
    assert (cart.run.stop_score, cart.game.frame_skip, cart.game.clip_rewards) == (195.0, 1, False)
    assert cart.a2c.learning_rate == parse(script).a2c.learning_rate
    assert parse(script, "--game", "Acrobot-v1").run.stop_score is None
    assert all(preset.source for preset in ACTOR_CRITICS.values())


@pytest.mark.parametrize(("cores", "players"), [(1, 1), (2, 2), (3, 3), (64, 4)])
def test_at_most_one_player_a_core(monkeypatch: pytest.MonkeyPatch, cores: int, players: int) -> None:
    monkeypatch.setattr(process, "cores", lambda: cores)
    options = parse("21_a3c_data")
    assert (options.players.players, options.run.threads, options.vector.env_threads) == (players, 1, 1)
    assert parse("21_a3c_data", "--players", "7").players.players == 7
    waiting = parse("21_a3c_data", "--synchronous", "--pieces", "4").players.players
    assert waiting == {1: 1, 2: 2, 3: 2, 4: 4}[players]


def test_players_that_wait_share_an_update_out() -> None:
    assert PlayersOptions(players=2, synchronous=True).with_number(8, 4) == 2
    with pytest.raises(
        UserError, match="4 cannot be shared out evenly among --players 3; give a number that divides 4"
    ):
        parse("21_a3c_data", "--synchronous", "--players", "3")
    assert parse("21_a3c_data", "--players", "3").players.players == 3


@pytest.mark.parametrize(
    "argv",
    [
        *("--players 0", "--players 1000", "--batch-size 0", "--n-step 0", "--entropy-weight -1", "--max-norm 0"),
        *("--value-weight nan", "--pieces 0", "--learning-rate 0", "--gamma 2", "--adam-epsilon 0", "--num-envs 0"),
        *("--game cartpol-v1", "--player-timeout 0", "--protocol nature --game CartPole-v1"),
    ],
)
def test_bad_values_are_one_sentence(argv: str) -> None:
    with pytest.raises(UserError) as caught:
        parse("21_a3c_data", *argv.split())
    assert "\n" not in str(caught.value)
    assert str(caught.value)[-1] in ".?;"


@pytest.mark.parametrize("script", ["01_baseline", "03_parallel", "09_cuda_graph", "11_pong_in_seconds"])
def test_agents_that_learn_values_of_actions_refuse_vectors(script: str) -> None:
    with pytest.raises(UserError, match=r"^CartPole-v1 is no Atari game, and agents that learn .*\.$"):
        parse(script, "--game", "cartpole-v1")
