"""What bench/fps.py can time: the scripts of the ladder, and one of them with an option that takes several values."""

from __future__ import annotations

import dataclasses
import re
import shlex

from fastdqn.envs.games import is_atari
from fastdqn.errors import UserError


@dataclasses.dataclass(frozen=True)
class Rung:
    """A script of the ladder, and the ceilings that it is compared with: its games alone, its update alone."""

    script: str
    wrappers: str
    form: str = "plain"
    own_game: str | None = None  # of one that does not play Atari's

    @property
    def family(self) -> str:
        """What is learnt: "dqn", agents by paper with a replay, "actor-critic" or "sac"; speeds are compared within."""
        return {"a2c": "actor-critic", "ppo": "actor-critic", "sac": "sac"}.get(self.form, "dqn")

    def game_of(self, game: str) -> str:
        """Return what to play where `game` is asked for: an own game instead of one of Atari's."""
        return self.own_game if self.own_game is not None and is_atari(game) else game


LADDER = (
    Rung("01_baseline", "classic"),
    Rung("02_play_steps", "classic"),
    Rung("03_parallel", "classic"),
    Rung("04_cuda_async", "classic"),
    Rung("05_opencv_wrappers", "opencv"),
    Rung("06_vector_env", "vector"),
    Rung("07_device_replay", "vector"),
    Rung("08_overlap", "vector"),
    Rung("09_cuda_graph", "vector", "fast"),
    Rung("10_rainbow", "vector", "fast"),
    Rung("11_pong_in_seconds", "vector", "fast"),
    Rung("12_atari_100k", "vector", "fast"),
    Rung("20_a2c", "vector", "a2c"),
    Rung("21_a3c_data", "vector", "a2c"),
    Rung("22_a3c_grad", "vector", "a2c"),
    Rung("31_sac", "vector", "sac", "Pendulum-v1"),
    Rung("32_sac_hogwild", "vector", "sac", "Pendulum-v1"),
    Rung("33_trainer_thread", "vector", "sac", "Pendulum-v1"),
    Rung("41_ppo_ranks", "vector", "ppo"),
    Rung("42_sac_ranks", "vector", "sac", "Pendulum-v1"),
)


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table: a script with fixed options, and how many busy processes run beside it."""

    label: str
    rung: Rung
    extra: tuple[str, ...] = ()
    busy: int = 0


def beside(rows: list[Row], busy: int) -> list[Row]:
    """Return each row and after it the same one beside `busy` processes that compute all the time, if any."""
    if not busy:
        return rows
    words = f"beside {busy} busy process{'es' if busy > 1 else ''}"
    return [each for row in rows for each in (row, dataclasses.replace(row, label=f"{row.label}, {words}", busy=busy))]


def chosen(only: str) -> list[Row]:
    """Return the rows that `only` names: scripts by number or name, each with options of its own if it has any."""
    if not only.strip():
        return [Row(rung.script, rung) for rung in LADDER]
    rows: list[Row] = []
    for part in only.split(","):
        try:
            word, *extra = shlex.split(part) or [""]
        except ValueError as error:
            raise UserError(f"--only {part.strip()}: a quotation mark has no end.") from error
        found = [rung for rung in LADDER if word and rung.script.startswith(word)]
        if not found:
            raise UserError(f"--only {word}: there is no such script; there are {', '.join(r.script for r in LADDER)}.")
        rows += [Row(" ".join([rung.script, *extra]), rung, tuple(extra)) for rung in found]
    return rows


def sweep_values(sweep: str) -> tuple[str, list[str]]:
    """Return the option and the values of `steps=1..6` or `batch-size=16,32`."""
    match = re.fullmatch(
        r"([a-z][a-z0-9-]*)=(?:(\d+)\.\.(\d+)|((?!\S*\.\.)[^,\s]+(?:,[^,\s]+)*))", sweep.strip().replace("_", "-")
    )
    if match is None:
        raise UserError(f"--sweep {sweep!r} is not of the form option=1..6 or option=16,32,64.")
    name, low, high, listed = match.groups()
    values = listed.split(",") if listed else [str(value) for value in range(int(low), int(high) + 1)]
    if not values:
        raise UserError(f"--sweep {sweep!r}: the first value is above the last.")
    return name, values
