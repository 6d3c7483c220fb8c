"""Fresh games after a run was solved."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fastdqn.errors import RunError, UserError
from fastdqn.runs import folder as folder_module
from fastdqn.tools import fresh
from fastdqn.tools.evaluate import Score
from fastdqn.tools.fresh import confirms, play_fresh
from fastdqn.types import EpisodeEnd
from tests.helpers.scripts import SHORT, TOY_CATCH, only_run, parse, started, summary
from tests.helpers.trained import BRIEF, TrainedRuns

SOLVED_AT_ONCE = ("--game", TOY_CATCH, "--stop-score", "-2", *SHORT, "--max-env-steps", "9000")


def run_of(folder: Path, reason: str, games: int = 5, game: str = "pong", score: float = 18.0) -> Any:
    options = SimpleNamespace(fresh_games=games, seed=3, stop_score=score, threads=1)
    return SimpleNamespace(folder=folder, reason=reason, options=options, device="cpu", game=game)


def test_a_solved_run_plays_them_off_the_clock(tmp_path: Path) -> None:
    """A real script, from the start to its exit."""
    with started("09_cuda_graph", tmp_path, *SOLVED_AT_ONCE, "--fresh-games", "7", "--frame-size", "42") as running:
        code, out, _ = running.finish(120.0)
    assert code == 0
    assert out.index("SOLVED") < out.index("7 fresh games at epsilon 0.02: mean")
    found = summary(only_run(tmp_path))
    assert (found["fresh"]["games"], found["fresh"]["epsilon"], found["confirmed"]) == (7, 0.02, True)
    assert len(found["fresh"]["scores"]) == 7
    assert "nature" not in found  # an environment of one's own has no such protocol


@pytest.mark.slow
def test_an_atari_game_plays_natures_protocol_too(
    runs: TrainedRuns, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pong's final weights, hardly trained: not confirmed."""
    natures = fresh.EXAMINATIONS[1]
    monkeypatch.setattr(fresh, "EXAMINATIONS", (fresh.EXAMINATIONS[0], natures._replace(games=2)))
    folder = runs["09"]
    path = folder / "summary.json"
    before = path.read_text(encoding="utf-8")
    try:
        play_fresh(run_of(folder, "solved", games=4))
        said = capsys.readouterr().out
        assert "REFUTES the run" in said
        assert "Nature's protocol, 2 games at epsilon 0.05: mean" in said
        found = json.loads(path.read_text(encoding="utf-8"))
        assert (found["fresh"]["games"], found["fresh"]["epsilon"], found["nature"]["epsilon"]) == (4, 0.02, 0.05)
        assert found["fresh"]["seed"] != found["nature"]["seed"]
        assert not found["confirmed"]
        play_fresh(run_of(folder, "solved", games=4))  # they have been played
        assert capsys.readouterr().out == ""
    finally:
        path.write_text(before, encoding="utf-8")


def test_a_run_that_another_process_goes_on_with_is_left_alone(
    runs: TrainedRuns, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(folder_module, "LOCK_SECONDS", 0.1)
    folder = runs["09"]
    lock = folder_module.hold(folder)
    try:
        play_fresh(run_of(folder, "solved"))
    finally:
        folder_module.let_go(folder, lock)
    assert "no fresh games" in (said := capsys.readouterr().out)
    assert "is still going on" in said
    assert "fresh" not in summary(folder)


@pytest.mark.parametrize(("reason", "games"), [("max-env-steps", 5), ("interrupted", 5), ("solved", 0)])
def test_nothing_is_played_of_others(runs: TrainedRuns, reason: str, games: int) -> None:
    folder = runs["09"]
    play_fresh(run_of(folder, reason, games))
    assert "fresh" not in summary(folder)


def test_two_standard_errors_are_the_bound() -> None:
    """Scores 16, 18, 20: their mean is 18, with a standard error of 2 / sqrt(3)."""
    score = Score([EpisodeEnd(s, 100, False) for s in (16.0, 18.0, 20.0)], 75, 1.0, None)
    assert confirms(score, 18.0)
    assert confirms(score, 18.0 + 2.0 * 1.154)
    assert not confirms(score, 18.0 + 2.0 * 1.155)
    assert not confirms(score, None)


def test_the_number_is_checked() -> None:
    with pytest.raises(UserError, match="--fresh-games must be at least 0"):
        parse("09_cuda_graph", *BRIEF, "--fresh-games", "-1")


def test_the_fresh_games_alone_confirm_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "summary.json").write_text("{}")
    asked: list[tuple[Any, ...]] = []

    def played(_: Any, one: Any, count: int, epsilon: float, seed: int, threads: int, __: Any) -> Score:
        asked.append((one.name, count, epsilon, seed, threads))
        return Score([EpisodeEnd(19.0 if one.name == "fresh" else 5.0, 100, False)] * 3, 75, 1.0, None)

    agent = SimpleNamespace(options=SimpleNamespace(parts=None, actor_critic=False))
    monkeypatch.setattr(fresh, "load_agent", lambda *_: agent)
    monkeypatch.setattr(fresh, "_played", played)
    play_fresh(run_of(tmp_path, "solved"))
    found = summary(tmp_path)
    assert (found["fresh"]["mean"], found["nature"]["mean"], found["confirmed"]) == (19.0, 5.0, True)
    assert [one[:3] for one in asked] == [("fresh", 5, 0.02), ("nature", 30, 0.05)]
    assert asked[0][3] != asked[1][3]
    assert [one[4] for one in asked] == [1, 1]  # as the run has


def test_games_that_cannot_be_made_leave_the_run_solved(
    runs: TrainedRuns, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise RunError("The environment it failed in its constructor: no more licences.")

    monkeypatch.setattr(fresh, "evaluate", fails)
    before = summary(runs["09"])
    play_fresh(run_of(runs["09"], "solved", games=4))
    assert "no fresh games: The environment it failed in its constructor" in capsys.readouterr().out
    assert summary(runs["09"]) == before
