"""bench/ceilings.py: what it times, and mistakes as one sentence."""

from __future__ import annotations

import json
import subprocess

import pytest

from bench.ceilings import Ceiling, main, options_of, sac_of
from tests.helpers.scripts import answer, parse


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return answer(main, "--threads", "1", "--seconds", "0.2", *words)


def test_what_is_timed_has_the_options_of_a_script() -> None:
    words = ("--agent", "pong-fast", "--variant", "rainbow", "--network", "narrow", "--frame-size", "42")
    script = parse("10_rainbow", *words, "--num-envs", "8")
    ours = options_of(Ceiling(agent="pong-fast", variant="rainbow", network="narrow", frame_size=42, num_envs=8))
    for group in ("game", "pace", "vector", "update", "agent", "parts"):
        assert getattr(ours, group) == getattr(script, group)
    assert (ours.dqn.double, ours.dqn.n_step) == (script.dqn.double, script.dqn.n_step) == (True, 5)
    assert options_of(Ceiling(variant="rainbow", no_double=True)).dqn.double is False
    der = options_of(Ceiling(agent="der"))
    assert (der.agent.network, der.vector.num_envs) == ("der", 1)  # not the speed of another network, or of more games


@pytest.mark.parametrize(
    "words",
    [
        ("--form", "fast", "--variant", "rainbow", "--network", "narrow"),
        ("--form", "plain"),
        ("--form", "plain", "--no-double"),
        ("--form", "a2c"),
        ("--form", "ppo"),
        ("--form", "ppo", "--game", "CartPole-v1"),
        ("--form", "sac", "--game", "Pendulum-v1"),
    ],
)
def test_the_update_alone_is_timed(words: tuple[str, ...]) -> None:
    done = run("--what", "update", "--batch-size", "4", *words)
    assert done.returncode == 0, done.stderr
    line = json.loads(done.stdout)
    assert line["samples_per_s"] == pytest.approx(4 * line["updates_per_s"])
    assert line["updates_per_s"] > 0


@pytest.mark.parametrize("game", ["Pendulum-v1", "MountainCarContinuous-v0", "HalfCheetah-v5"])
def test_soft_actor_critic_has_31s_settings_for_its_environment(game: str) -> None:
    """MountainCarContinuous-v0 has a network of its own."""
    assert sac_of(game) == parse("31_sac", "--game", game).sac
    assert sac_of(game).hidden == (64 if game.startswith("Mountain") else 256)


@pytest.mark.parametrize(
    "words",
    [
        ("--wrappers", "opencv"),
        ("--wrappers", "vector", "--num-envs", "4"),
        ("--wrappers", "vector", "--num-envs", "2", "--form", "sac", "--game", "pendulum-v1"),
        ("--wrappers", "vector", "--num-envs", "2", "--game", "CartPole-v1"),
    ],
)
def test_the_games_alone_are_timed(words: tuple[str, ...]) -> None:
    done = run("--what", "env", *words)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["env_steps_per_s"] > 0


@pytest.mark.parametrize(
    "words",
    [
        *(("--game", "pnog"), ("--what", "update", "--device", "moon"), ("--frame-size", "3")),
        *(("--form", "sac"), ("--form", "sac", "--game", "CartPole-v1", "--wrappers", "vector")),
        *(("--what", "update", "--batch-size", "0"), ("--seconds", "0")),
        ("--double", "--no-double"),
    ],
)
def test_mistakes_are_one_sentence(words: tuple[str, ...]) -> None:
    done = run(*words)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
