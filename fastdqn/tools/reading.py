"""Reading the folders of runs: what they say, how they ended, and which of them count."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from fastdqn.envs import games
from fastdqn.errors import UserError, counted
from fastdqn.options.fields import LARGEST
from fastdqn.runs.folder import is_words, read_config, read_object, running_in
from fastdqn.runs.limits import WINDOW_EPISODES

LIMITS = ("max-env-steps", "max-minutes", "train-seconds")
"""How a run ends by itself, beside being solved."""
UNFINISHED = {
    "running": "is still running",
    "interrupted": "was interrupted",
    "failed": "failed",
    "broken off": "broke off without a summary",
}
"""The other endings, and what a sentence says of them."""
_LARGEST_FLOAT = 1e100


class RunData(NamedTuple):
    """What a run's folder says."""

    folder: Path
    config: dict[str, Any]
    game: str  # its ROM, or module:function
    ended: str  # "solved", one of LIMITS or of UNFINISHED
    written: float  # when it began or was last resumed, in seconds since 1970
    machine: str | None
    episodes: list[dict[str, Any]]  # finished games in the order in which they ended
    summary: dict[str, Any]  # empty while there is none

    @property
    def seed(self) -> int:
        return int(self.config["run"]["seed"])

    @property
    def finished(self) -> bool:
        """Whether it was solved or came to its limit."""
        return self.ended == "solved" or self.ended in LIMITS

    @property
    def mean_100(self) -> float | None:
        """The mean score of the last 100 games as the run recorded it, None before the first."""
        last = self.episodes[-1]["mean_100"] if self.episodes else None
        return self.summary.get("mean_100", last) if self.finished else last

    def curve(self, axis: str, games: int = WINDOW_EPISODES) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return `axis` ("env_steps" or "elapsed") and the mean score of the last `games` games by then, of all where
        there are fewer yet, as two arrays of one length.

        For 100 games it is the mean that the run recorded. For another number the games count in the order in which
        they began, where the run says it, and a game counts once all are over that began before it, but for those that
        were never finished.
        """
        if games == WINDOW_EPISODES:
            known = [line for line in self.episodes if line["mean_100"] is not None]
            return _column(known, axis), _column(known, "mean_100")
        lines = self.episodes
        if games > 1 and all("began" in line for line in lines):
            lines = sorted(lines, key=lambda line: line["began"])
        return np.maximum.accumulate(_column(lines, axis)), moving_average(_column(lines, "score"), games)


def moving_average(scores: NDArray[np.float64], games: int = WINDOW_EPISODES) -> NDArray[np.float64]:
    """Return the mean of the last `games` scores at each of them, of all where there are fewer yet."""
    total = np.concatenate(([0.0], np.cumsum(scores)))
    end = np.arange(1, len(scores) + 1)
    begin = np.maximum(end - games, 0)
    return (total[end] - total[begin]) / (end - begin)


def read_run(folder: Path) -> RunData:
    """Return what the folder of a run says.

    Raises:
        UserError: it is not the folder of a run, another version wrote it, or a file in it is damaged.
    """
    config = read_config(folder)
    episodes, summary = _games_and_summary(folder)
    if summary.get("episodes", len(episodes)) != len(episodes):  # a run that has ended in between: once more
        episodes, summary = _games_and_summary(folder)
    if summary.get("episodes", len(episodes)) != len(episodes):
        raise UserError(
            f"{folder} is the folder of a run, but its episodes.jsonl has {counted(len(episodes), 'game')}, and its "
            f"summary.json says {summary['episodes']}: one of them is damaged."
        )
    ended = "running" if running_in(folder) else str(summary.get("reason") or "broken off")
    written, machine = (folder / "config.json").stat().st_mtime, None
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        stamp = read_object(folder / "environment.json")
        all_of_them = [*stamp.get("earlier", []), stamp]  # of a run that was resumed elsewhere
        said = [f"{one['cores']} cores of {one['cpu']}, {one['gpu']}" for one in all_of_them]
        machine = "; ".join(dict.fromkeys(filter(is_words, said)))
        written = datetime.fromisoformat(stamp["time"]).timestamp()
    return RunData(folder, config, _game_of(config["game"]["name"]), ended, written, machine, episodes, summary)


def _games_and_summary(folder: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the finished games of a run, and its summary, empty while there is none; raise what `read_run` raises."""
    name = "episodes.jsonl"
    try:
        episodes = whole_lines((folder / name).read_text(encoding="utf-8"))
        for line in episodes:
            _check_game(line)
        name = "summary.json"
        path = folder / name
        summary = read_object(path) if path.exists() else {}
        _check_summary(summary)
    except FileNotFoundError as error:
        raise UserError(f"{folder} has no record of the games that were played while it learnt.") from error
    except OSError as error:
        raise UserError(f"{folder} is not the folder of a run: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(f"{folder} is the folder of a run, but its {name} is damaged.") from error
    return episodes, summary


class Chosen(NamedTuple):
    """The runs of one kind, sorted by what they are good for."""

    finished: list[RunData]  # the newest of each seed: means, bands and interquartile means are over these alone
    unfinished: list[RunData]  # the newest of each seed that has none that finished
    left_out: dict[Path, str]  # why the others, and the unfinished, do not count: what follows "it"


def by_seed(runs: Sequence[RunData]) -> dict[int, list[RunData]]:
    """Return runs by their seed."""
    found: dict[int, list[RunData]] = {}
    for run in runs:
        found.setdefault(run.seed, []).append(run)
    return found


def chosen(runs: Sequence[RunData]) -> Chosen:
    """Sort runs that differ in nothing but their seed."""
    found = Chosen([], [], {})
    for seed, alike in sorted(by_seed(runs).items()):
        first, *others = sorted(alike, key=lambda r: (not r.finished, -r.written))
        (found.finished if first.finished else found.unfinished).append(first)
        if not first.finished:
            found.left_out[first.folder] = ending(first)
        for run in others:
            if run.finished:
                found.left_out[run.folder] = f"has seed {seed}, as the newer {first.folder} has"
            else:
                found.left_out[run.folder] = f"{ending(run)}, and {first.folder} has its seed, {seed}"
    return found


def ending(run: RunData) -> str:
    """Return how an unfinished run ended, as what follows "it"."""
    return UNFINISHED.get(run.ended, f"ended by {run.ended}")


def whole_lines(text: str) -> list[dict[str, Any]]:
    """Return the lines of a .jsonl file, but for one that is still being written.

    Raises:
        ValueError: a line is damaged.
    """
    return [_dictionary(json.loads(line)) for line in text[: text.rfind("\n") + 1].splitlines()]


def _dictionary(said: Any) -> dict[str, Any]:
    if not isinstance(said, dict):
        raise ValueError(f"{str(said)[:40]!r} is no JSON object")
    return cast(dict[str, Any], said)


def _check_game(line: Mapping[str, Any]) -> None:
    """Raise ValueError for a finished game that curves could not show; older runs say nothing of when one began."""
    for name in ("score", "env_steps", "elapsed", "mean_100"):
        if not is_number(line[name]) and (name != "mean_100" or line[name] is not None):
            raise ValueError(name)
    if not is_number(line.get("began", 0)):
        raise ValueError("began")


def _check_summary(summary: Mapping[str, Any]) -> None:
    """Raise ValueError for what tables and pictures could not show."""
    for name in ("mean_100", "elapsed", "env_steps", "updates", "episodes", "median_env_steps_per_s"):
        if not (summary.get(name) is None or is_number(summary[name])):
            raise ValueError(name)
    if re.fullmatch(r"[a-z -]*", summary.get("reason") or "") is None:
        raise ValueError("reason")
    for name in ("fresh", "nature", "evaluation"):
        played: Any = summary.get(name, {})
        if not isinstance(played, dict):
            raise ValueError(name)
        said: list[Any] = [played.get(key) for key in ("mean", "standard_error")]  # of one game there is no error
        if not all(one is None or is_number(one) for one in said):
            raise ValueError(name)


def is_number(value: Any) -> bool:
    """Tell whether `value`, read from a file, is a number that can be added to others."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= (LARGEST if isinstance(value, int) else _LARGEST_FLOAT)


def _column(lines: Sequence[dict[str, Any]], name: str) -> NDArray[np.float64]:
    return np.array([line[name] for line in lines], np.float64)


def _game_of(name: str) -> str:
    """Return the ROM that a run's name of its game means, or the name where this ale_py has no such game."""
    if not games.is_atari(name):
        return games.registered_id(name) or name
    with contextlib.suppress(UserError):
        return games.rom_of(name)
    return name
