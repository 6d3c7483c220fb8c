"""Options of soft actor-critic: what an environment's id implies, and what is refused."""

from __future__ import annotations

import pytest

from fastdqn.errors import UserError
from fastdqn.options.sac import SAC_PRESETS
from tests.helpers.scripts import parse

SCRIPT = "31_sac"


def test_defaults_are_the_papers() -> None:
    """Haarnoja et al. 2018b, table 1; the first updates as in Stable-Baselines3."""
    options = parse(SCRIPT, "--game", "LunarLanderContinuous-v3")
    sac = options.sac
    assert (sac.learning_rate, sac.gamma, sac.batch_size, sac.replay_size) == (3e-4, 0.99, 256, 1_000_000)
    assert (sac.target_average, sac.target_entropy, sac.steps_per_update) == (0.005, None, 1)
    assert (sac.replay_initial, sac.initial_temperature, sac.newest_in_batch) == (100, 1.0, False)
    assert (options.vector.num_envs, options.run.stop_score, options.run.max_env_steps) == (1, None, 1_000_000)
    assert (options.game.frame_skip, options.game.clip_rewards, options.game.max_frames) == (1, False, None)


def test_ids_have_their_own() -> None:
    pendulum = parse(SCRIPT)
    assert (pendulum.game.name, pendulum.run.stop_score, pendulum.sac.learning_rate) == ("Pendulum-v1", -200.0, 1e-3)
    assert parse(SCRIPT, "--game", "pendulum-V1").sac.learning_rate == 1e-3
    car = parse(SCRIPT, "--game", "MountainCarContinuous-v0")
    assert (car.sac.temperature, car.sac.batch_size, car.sac.gamma, car.run.max_env_steps) == (0.1, 512, 0.9999, 50_000)
    walker = parse(SCRIPT, "--game", "BipedalWalker-v3")
    assert (walker.sac.learning_rate, walker.sac.target_average, walker.sac.temperature) == (7.3e-4, 0.02, None)
    assert parse(SCRIPT, "--learning-rate", "3e-4").sac.learning_rate == 3e-4
    humanoid = parse(SCRIPT, "--game", "Humanoid-v5")
    assert (humanoid.sac.replay_initial, humanoid.run.max_env_steps, humanoid.sac.learning_rate) == (
        10_000,
        2_000_000,
        3e-4,
    )
    assert all(preset.source for preset in SAC_PRESETS.values())


@pytest.mark.parametrize(
    "argv",
    [
        *("--batch-size 0", "--learning-rate 0", "--gamma 1.5", "--target-average 0", "--target-average 2"),
        *("--steps-per-update 0", "--replay-initial 0", "--replay-size 0", "--initial-temperature 0", "--num-envs 0"),
        *("--target-entropy nan", "--temperature 0", "--adam-epsilon -1", "--replay-initial 200 --replay-size 100"),
        *("--max-env-steps 100", "--game pong", "--game Pendulum-v7", "--game a.b:C", "--epsilon-final 0.1"),
        *("--protocol nature", "--buffer-size 100", "--max-env-steps 104 --steps-per-update 8"),
    ],
)
def test_bad_values_are_one_sentence(argv: str) -> None:
    with pytest.raises(UserError) as caught:
        parse(SCRIPT, *argv.split())
    assert "\n" not in str(caught.value)
    assert str(caught.value)[-1] in ".?;"


def test_a_run_needs_one_update() -> None:
    assert parse(SCRIPT, "--max-env-steps", "105", "--steps-per-update", "8").run.max_env_steps == 105
    with pytest.raises(UserError, match=r"^--max-env-steps 100 ends the run by the first update, which waits for "):
        parse(SCRIPT, "--max-env-steps", "100")


@pytest.mark.parametrize("script", ["20_a2c", "41_ppo_ranks"])
def test_numbered_actions_stay_the_other_actor_critics(script: str) -> None:
    assert parse(script, "--game", "CartPole-v1").vector.num_envs == 8
