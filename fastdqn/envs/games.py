"""Names of games: every usual spelling of an Atari game leads to the same ROM."""

from __future__ import annotations

import difflib
import functools
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import ale_py
import gymnasium
from ale_py import roms

from fastdqn.errors import UserError
from fastdqn.options.agents import AGENTS
from fastdqn.options.presets import PRESETS

_PREFIX = re.compile(r"^ale/", re.IGNORECASE)
_TITLES = {
    "et": "E.T.",
    "hero": "H.E.R.O.",
    "jamesbond": "James Bond",
    "kung_fu_master": "Kung-Fu Master",
    "mario_bros": "Mario Bros.",
    "montezuma_revenge": "Montezuma's Revenge",
    "mr_do": "Mr. Do!",
    "ms_pacman": "Ms. Pac-Man",
    "pacman": "Pac-Man",
    "qbert": "Q*bert",
    "riverraid": "River Raid",
    "tic_tac_toe_3d": "Tic-Tac-Toe 3D",
    "up_n_down": "Up 'n Down",
    "wizard_of_wor": "Wizard of Wor",
    "yars_revenge": "Yars' Revenge",
}
"""The games whose titles are more than the words of their ROMs."""
_OWN_ID = re.compile(r"^[\w.]+:[\w./-]+-v\d+$")
_SUFFIX = re.compile(r"(-ram)?(deterministic|noframeskip)?(-v\d+)?$", re.IGNORECASE)


@functools.cache
def rom_names() -> tuple[str, ...]:
    """Return the names of all Atari games that ale_py ships and its emulator plays, as it spells them.

    A few of the files that it ships (combat, joust, ...) have no rules for one player: asked to load one, the
    emulator would end the process.
    """
    emulator: Any = ale_py
    names: list[str] = sorted(roms.get_all_rom_ids())
    return tuple(name for name in names if emulator.ALEInterface.isSupportedROM(Path(str(roms.get_rom_path(name)))))


def is_custom(name: str) -> bool:
    """Tell whether `name` names code, `module:function` or `module:Id-v0`, instead of a game that is known."""
    return ":" in name


def is_own_id(name: str) -> bool:
    """Tell whether `name` is a `module:Id-v0` of Gymnasium's: the module registers the id when it is imported."""
    return _OWN_ID.match(name.strip()) is not None


def named_again(name: str) -> str:
    """Return what a command on a run in the environment `name` has to say: code is only loaded if it is named there."""
    return f" --game {shlex.quote(name)}" if is_custom(name) else ""


def find_modules_here() -> None:
    """Let modules of the current folder be found, after all others."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)


def registered_id(name: str) -> str | None:
    """Return the id of a registered environment that is no Atari game, in any case; None if `name` is none. One with a
    module before it is returned as it is, and nothing is imported.
    """
    if is_own_id(name):
        return name.strip()
    known = gymnasium.registry.get(name.strip())
    if known is None:
        wanted = name.strip().lower()
        known = next((spec for key, spec in gymnasium.registry.items() if key.lower() == wanted), None)
    if known is None or str(known.entry_point).startswith("ale_py"):
        return None
    return known.id


def control_id(name: str) -> str:
    """Return the id of the registered environment that `name` means, in any case.

    Raises:
        UserError: there is none; the nearest ids are offered.
    """
    known = registered_id(name)
    if known is not None:
        return known
    ids = {key.lower(): key for key, spec in gymnasium.registry.items() if not str(spec.entry_point).startswith("ale")}
    near = [ids[key] for key in difflib.get_close_matches(name.strip().lower(), ids, n=3, cutoff=0.7)]
    hint = f"; did you mean {_any_of(near)}?" if near else ", say Pendulum-v1."
    raise UserError(
        f"{name} is no environment that Gymnasium knows by an id, as an agent with continuous actions takes them{hint}"
    )


def is_atari(name: str) -> bool:
    """Tell whether `name` is neither code nor another registered environment."""
    return not is_custom(name) and registered_id(name) is None


def refuse_code(run: Path, name: str, named: str | None) -> None:
    """Refuse to load the code of an environment because a file says its name.

    Args:
        run: whose files say it.
        name: of the run's game.
        named: of the game, as the person at the command line says it, if at all.

    Raises:
        UserError: `name` names code, and is not `named`.
    """
    if is_custom(name) and name != named:
        raise UserError(
            f"The run {run} plays {name}, which is code, and what a run's files say is no reason to load it; if you "
            f"trust it, name it too: --game {name}."
        )


def rom_of(name: str, ids: bool = False) -> str:
    """Return ale_py's name of the game that `name` means.

    Takes presets (`invaders`), ROM names (`space_invaders`), class names (`SpaceInvaders`) and
    Gymnasium ids (`SpaceInvadersNoFrameskip-v4`, `ALE/SpaceInvaders-v5`), in any case. The id only names the game:
    frame skip, sticky actions and the like come from the other options of the game.

    With `ids` the sentence says that other environments that Gymnasium knows had been allowed.

    Raises:
        UserError: no such game; the nearest names are offered, or it is an agent's.
    """
    wanted = name.strip()
    preset = PRESETS.get(wanted.lower())
    if preset is not None:
        return preset.rom
    if wanted.lower() in AGENTS:
        how = (
            "of deep Q-learning, and this script learns by another algorithm; give a game"
            if ids
            else f"; give it as --agent {wanted.lower()}"
        )
        raise UserError(f"{name!r} is an agent{' ' if ids else ', not a game'}{how}.")
    known = registered_id(wanted)
    if known is not None:
        raise UserError(
            f"{known} is no Atari game, and agents that learn the values of actions learn from pictures here; an "
            "actor-critic learns from vectors, and with continuous actions soft actor-critic does (docs/runs.md); to "
            "learn from its pictures, make it by module:function (docs/own-environment.md)."
        )
    if is_custom(wanted):
        raise UserError(f"{name} names code, module:function, and no Atari game.")
    by_squeezed = {_squeeze(rom): rom for rom in rom_names()}
    squeezed = _squeeze(_SUFFIX.sub("", _PREFIX.sub("", wanted)))
    if squeezed in by_squeezed:
        return by_squeezed[squeezed]
    candidates = by_squeezed | {_squeeze(preset_name): preset_name for preset_name in PRESETS}
    near = difflib.get_close_matches(squeezed, candidates, n=3, cutoff=0.5)
    starts = [key for key in candidates if squeezed and key.startswith(squeezed) and key not in near]
    offers = [candidates[key] for key in (near + starts)[:3]]
    hint = f"; did you mean {_any_of(offers)}?" if offers else "; try pong, breakout or space_invaders."
    beside = ", and Gymnasium knows no such id" if ids else ""
    raise UserError(f"There is no Atari game called {name!r}{beside}{hint}")


def gymnasium_id(rom: str) -> str:
    """Return the Gymnasium id without frame skip, say PongNoFrameskip-v4 for pong."""
    return "".join(part.capitalize() for part in rom.split("_")) + "NoFrameskip-v4"


def title_of(name: str) -> str:
    """Return what people call a game, say Space Invaders for the ROM space_invaders, and Catch for my.module:Catch."""
    if not is_atari(name):
        return name.rpartition(":")[2]
    return _TITLES.get(name) or " ".join(part.capitalize() for part in name.split("_"))


_ACTIONS = {
    name: count
    for count, names in (
        (3, "backgammon freeway skiing"),
        (4, "atlantis atlantis2 blackjack breakout casino kaboom"),
        (5, "frogger pacman surround tetris video_checkers"),
        (
            6,
            "air_raid basic_math bowling carnival demon_attack galaxian king_kong name_this_game pong pooyan "
            "qbert sir_lancelot space_invaders up_n_down",
        ),
        (7, "assault"),
        (8, "gopher phoenix tutankham"),
        (9, "asterix beam_rider crazy_climber enduro koolaid lost_luggage ms_pacman video_pinball"),
        (10, "amidar mr_do othello tic_tac_toe_3d time_pilot video_chess wizard_of_wor"),
        (12, "turmoil"),
        (14, "asteroids keystone_kapers kung_fu_master"),
        (16, "journey_escape"),
        (
            18,
            "adventure alien bank_heist battle_zone berzerk boxing centipede chopper_command crossbow "
            "darkchambers defender donkey_kong double_dunk earthworld elevator_action entombed et fishing_derby "
            "flag_capture frostbite gravitar hangman haunted_house hero human_cannonball ice_hockey jamesbond "
            "kangaroo klax krull laser_gates mario_bros miniature_golf montezuma_revenge pitfall pitfall2 "
            "private_eye riverraid road_runner robotank seaquest solaris space_war star_gunner superman tennis "
            "trondead venture video_cube word_zapper yars_revenge zaxxon",
        ),
    )
    for name in names.split()
}
"""How many of the 18 actions a game uses, by ale_py 0.12's emulator, which takes seconds to load all games."""


def actions_of(rom: str) -> int:
    """Return how many actions a game uses, of the 18 that there are."""
    return _ACTIONS.get(rom) or emulated_actions_of(rom)  # a later ale_py may have more games


def emulated_actions_of(rom: str) -> int:
    """Return the same, by the emulator."""
    emulator: Any = ale_py
    emulator.ALEInterface.setLoggerMode(emulator.LoggerMode.Error)
    ale: Any = emulator.ALEInterface()
    ale.loadROM(roms.get_rom_path(rom))
    return len(ale.getMinimalActionSet())


def _squeeze(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _any_of(names: list[str]) -> str:
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " or " + names[-1]
