"""bench/trainer_thread.py: soft actor-critic at each pace and PPO are timed, each a row of the page's table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench import tables, trainer_thread
from bench.newest import NEWEST
from bench.pages import Page
from bench.trainer_thread import ThreadOptions, bench, cases
from fastdqn import process
from fastdqn.errors import UserError

SPEEDS = {"no thread": 10.0, "no thread, all cores": 20.0, "thread": 30.0}


def test_each_pace_is_a_row_of_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[str, ...]] = []

    def timed(_work: str, _amount: float, case: Any, form: tuple[str, ...], _options: Any) -> Any:
        asked.append(case.words)
        (speed,) = (SPEEDS[name] for name, words in trainer_thread.forms().items() if words == form)
        return {"env_steps_per_s": speed}

    monkeypatch.setattr(trainer_thread, "time_form", timed)
    monkeypatch.setattr(process, "cores", lambda: 2)
    out = tmp_path / "bench" / "results"
    assert bench(ThreadOptions(only="sleep", repeats=1, out=out)) == 0
    assert "sac every 10, sleep: no thread 10, no thread, all cores 20, thread 30 env steps/s; a thread gives 1.50" in (
        capsys.readouterr().out
    )
    assert [words[3] for words in asked if words[1] == "sac"] == ["1"] * 3 + ["10"] * 3
    (path,) = out.iterdir()
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert sum(row["kind"] == "row" for row in rows) == 3
    table = tables.trainer_thread(Page(tmp_path, "docs/trainer-thread.md"), NEWEST._replace(trainer_thread=path.stem))
    for algorithm in ("SAC, 1 env step an update", "SAC, 10 env steps an update", "PPO"):
        assert f"| and 10 ms asleep | {algorithm} | 10 | 20 | 30 | 1.50 |" in table


@pytest.mark.parametrize("paces", ["", "0", "1,x", "-1", "inf", "nan"])
def test_a_pace_that_is_none_is_one_sentence(paces: str) -> None:
    with pytest.raises(UserError, match=r"^--steps-per-update must be numbers above 0, separated by commas, not .*\.$"):
        cases(paces)
