"""Names of games."""

from __future__ import annotations

import ale_py
import gymnasium
import pytest

from fastdqn.envs import games
from fastdqn.errors import UserError


@pytest.mark.parametrize(
    ("name", "rom"),
    [
        ("pong", "pong"),
        ("Pong", "pong"),
        (" PONG ", "pong"),
        ("PongNoFrameskip-v4", "pong"),
        ("ALE/Pong-v5", "pong"),
        ("PongDeterministic-v0", "pong"),
        ("space_invaders", "space_invaders"),
        ("SpaceInvaders", "space_invaders"),
        ("space-invaders", "space_invaders"),
        ("ALE/SpaceInvaders-v5", "space_invaders"),
        ("invaders", "space_invaders"),
        ("breakout-small", "breakout"),
        ("Qbert", "qbert"),
        ("Q*bert", "qbert"),
        ("MontezumaRevenge-ramNoFrameskip-v4", "montezuma_revenge"),
        ("Pitfall2", "pitfall2"),
    ],
)
def test_every_usual_name_leads_to_the_rom(name: str, rom: str) -> None:
    assert games.rom_of(name) == rom


@pytest.mark.parametrize(
    ("name", "near"),
    [("pnog", "pong"), ("brakeout", "breakout"), ("space", "space_invaders"), ("Seaquset-v5", "seaquest")],
)
def test_a_wrong_name_is_one_sentence_with_the_nearest_names(name: str, near: str) -> None:
    with pytest.raises(UserError) as caught:
        games.rom_of(name)
    assert near in str(caught.value)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["", "xyzzyxyzzy", "!!!"])
def test_a_hopeless_name_still_gets_a_sentence(name: str) -> None:
    with pytest.raises(UserError, match="no Atari game"):
        games.rom_of(name)


@pytest.mark.parametrize("name", ["pong-fast", "Rainbow"])
def test_an_agent_is_no_game(name: str) -> None:
    with pytest.raises(UserError) as caught:
        games.rom_of(name)
    assert str(caught.value) == f"{name!r} is an agent, not a game; give it as --agent {name.lower()}."


def test_a_game_that_would_end_the_process_is_refused() -> None:
    """The emulator has no rules for these and calls exit() when it is asked to load them."""
    for name in ("combat", "joust", "maze_craze", "Warlords"):
        with pytest.raises(UserError, match="no Atari game"):
            games.rom_of(name)
    assert len(games.rom_names()) >= 100


def test_our_gymnasium_ids_exist() -> None:
    gymnasium.register_envs(ale_py)
    known = {name for name in gymnasium.registry if name.endswith("NoFrameskip-v4")}
    ours = {games.gymnasium_id(rom) for rom in games.rom_names()}
    assert len(known & ours) >= 57
    assert {"PongNoFrameskip-v4", "BreakoutNoFrameskip-v4", "SpaceInvadersNoFrameskip-v4"} <= known & ours


def test_titles_are_what_people_say() -> None:
    said = {"pong": "Pong", "space_invaders": "Space Invaders", "qbert": "Q*bert", "my.games:Catch": "Catch"}
    assert {name: games.title_of(name) for name in said} == said
    assert all(title[0].isupper() and "_" not in title for title in map(games.title_of, games.rom_names()))


@pytest.mark.parametrize("rom", ["freeway", "pong", pytest.param(None, marks=pytest.mark.slow)])
def test_a_game_uses_as_many_actions_as_its_emulator_says(rom: str | None) -> None:
    names = games.rom_names() if rom is None else (rom,)
    assert {name: games.actions_of(name) for name in names} == {name: games.emulated_actions_of(name) for name in names}


def test_actions_are_known_without_an_emulator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(games, "emulated_actions_of", lambda name: pytest.fail(f"{name} is loaded"))
    assert {games.actions_of(name) for name in games.rom_names()} <= set(range(3, 19))
