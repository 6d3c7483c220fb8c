"""Options of the game: protocols, and many games at once."""

from __future__ import annotations

import pytest

from fastdqn.envs.build import describe
from fastdqn.errors import UserError
from fastdqn.options.game import GameOptions, VectorOptions
from fastdqn.options.groups import Groups, check
from tests.helpers.scripts import TOY_CATCH, parse


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (VectorOptions(num_envs=0), "--num-envs must be at least 1"),
        (VectorOptions(env_threads=0), "--env-threads must be between 1 and 1024"),
    ],
)
def test_impossible_options_are_one_sentence(options: VectorOptions, words: str) -> None:
    with pytest.raises(UserError, match=words):
        check(Groups(vector=options))


@pytest.mark.parametrize("script", ["01_baseline", "05_opencv_wrappers", "09_cuda_graph"])
def test_a_protocol_is_its_papers_in_training(script: str) -> None:
    """Mnih et al. 2015, and Machado et al. 2018 with Dopamine's length; 5 and 30 minutes of 60 frames a second."""

    def game(*words: str) -> tuple[object, ...]:
        found: GameOptions = parse(script, "--game", "seaquest", *words).game
        chance, start = found.sticky_actions, (found.noop_max, found.fire_reset)
        return chance, found.full_action_set, found.episodic_life, start, found.max_frames / 60 / 60

    assert game() == (0.0, False, True, (30, True), 30.0)
    assert game("--protocol", "nature") == (0.0, False, True, (30, True), 5.0)
    assert game("--protocol", "machado") == (0.25, True, False, (0, False), 30.0)
    minimal = ("--protocol", "machado", "--no-full-action-set", "--sticky-actions", "0.1")
    assert game(*minimal) == (0.1, False, False, (0, False), 30.0)
    assert game(*minimal[2:], *minimal[:2]) == game(*minimal)


def test_a_protocol_is_said_at_the_start() -> None:
    assert ": protocol machado, classic wrappers, " in describe(
        parse("01_baseline", "--protocol", "machado").game, "classic"
    )
    assert "protocol" not in describe(GameOptions(), "classic")


def test_protocols_are_for_ataris_games() -> None:
    with pytest.raises(UserError, match=r"The protocol machado is for Atari's games; .*Catch has rules of its own"):
        parse("01_baseline", "--game", TOY_CATCH, "--protocol", "machado")
    with pytest.raises(UserError, match="--protocol takes one of nature, machado, atari-100k or None, not moon"):
        parse("01_baseline", "--protocol", "moon")
