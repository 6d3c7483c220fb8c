"""Options of ranks: what was published, what several processes refuse, and runs of before there were any."""

from __future__ import annotations

import pytest

from fastdqn.errors import UserError
from fastdqn.options.fields import plain
from fastdqn.options.groups import options_from
from fastdqn.options.ranks import RanksOptions
from tests.helpers.scripts import loaded, parse

P09, P41, P42 = "09_cuda_graph", "41_ppo_ranks", "42_sac_ranks"


@pytest.mark.parametrize(("world", "rollout"), [(1, 32_768), (2, 16_384), (3, 10_922)])
def test_what_was_published_of_ppo_scales_with_the_processes(world: int, rollout: int) -> None:
    options = parse(P41, "--game", "CartPole-v1", "--published", "--processes", str(world))
    ppo = options.ppo
    assert (ppo.learning_rate, ppo.rollout_steps, ppo.batch_size) == (pytest.approx(1e-3 * world), rollout, 4096)
    assert (ppo.gamma, ppo.trace_decay, ppo.epochs, ppo.clip) == (0.99, 0.95, 10, 0.2)
    assert (ppo.entropy_weight, ppo.value_weight, ppo.max_norm, ppo.adam_epsilon) == (0.0, 0.5, 0.5, 1e-5)
    assert ppo.learning_rate_decay == 0
    assert "falling" not in ppo.describe()
    assert (options.run.max_env_steps, options.run.stop_score) == (100_000 * world, None)
    assert options.vector.num_envs == 1


def test_what_was_published_of_sac_scales_with_the_processes() -> None:
    options = parse(P42, "--published", "--processes", "4")
    sac = options.sac
    assert (sac.learning_rate, sac.batch_size, sac.replay_size, sac.replay_initial) == (4e-3, 2048, 8192, 512)
    assert (options.run.max_env_steps, options.run.stop_score) == (40_000, None)
    assert parse(P42, "--published", "--batch-size", "64").sac.batch_size == 64  # what is said counts


def test_without_published_a_game_keeps_its_settings() -> None:
    one, two = (parse(P41, "--game", "CartPole-v1", "--processes", world) for world in ("1", "2"))
    assert one.ppo == two.ppo
    assert one.run == two.run


@pytest.mark.parametrize(
    ("script", "words", "sentence"),
    [
        (P41, ("--game", "seaquest", "--published"), "--published is for CartPole-v1 or pong"),
        (P42, ("--game", "MountainCarContinuous-v0", "--published"), "--published is for Pendulum-v1; nothing was"),
        (P41, ("--processes", "0"), "--processes must be between 1 and 1024"),
        (P42, ("--rank-timeout", "0"), "--rank-timeout must be at least 1"),
        (P09, ("--processes", "3", "--steps", "4", "--target-sync", "11"), "--steps 4 in each of 3 processes cannot"),
        ("10_rainbow", ("--processes", "2"), "no option --processes here; the scripts 09, 41 and 42 have it."),
        ("20_a2c", ("--engine=ray",), "There is no option --engine here; the scripts 09, 41 and 42 have it."),
        (P42, ("--processes", "4", "--max-env-steps", "400"), "100 transitions in each of 4 processes"),
        (P41, ("--processes", "2", "--rollout-steps", "1"), "may be too few; raise --rollout-steps."),
        (P41, ("--processes", "2", "--rollout-steps", "3", "--batch-size", "1"), "may be too few; raise --batch-size."),
    ],
)
def test_mistakes_are_one_sentence(script: str, words: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        parse(script, *words)
    assert sentence in str(caught.value)


def test_ranks_whose_steps_fit_between_two_copies_are_not_refused() -> None:
    assert parse(P09, "--processes", "3", "--steps", "4", "--target-sync", "12").dqn.target_sync == 12


@pytest.mark.parametrize("world", [1, 4])
def test_what_was_published_of_ppo_on_pong_is_the_same_for_any_number_of_processes(world: int) -> None:
    """Schulman et al. (2017); the control is what 41 has on Pong by itself."""
    options = parse(P41, "--published", "--processes", str(world))
    ppo, own = options.ppo, parse(P41).ppo
    assert (ppo.learning_rate, ppo.rollout_steps, ppo.epochs, ppo.batch_size, ppo.clip) == (2.5e-4, 128, 4, 256, 0.1)
    assert options.vector.num_envs * ppo.rollout_steps // ppo.batch_size == 4  # batches
    assert ppo.learning_rate_decay == options.run.max_env_steps == 10_000_000
    assert (ppo.center_frames, ppo.frame_scale) == (False, 256.0)
    assert (own.learning_rate, own.center_frames) == (5e-4, True)


def test_a_run_of_before_there_were_ranks_has_one() -> None:
    kind = loaded(P41).options_type
    config = plain(parse(P41))
    del config["ranks"]
    assert options_from(kind, config).ranks == RanksOptions()
    assert RanksOptions().describe(on_one_machine=False) == ()


def test_who_learns_together_says_how_it_exchanges() -> None:
    two = RanksOptions(processes=2)
    (here,), (elsewhere,) = two.describe(on_one_machine=True), two.describe(on_one_machine=False)
    assert here.endswith("exchanged in this machine's memory")
    assert elsewhere.endswith("exchanged by Gloo")
