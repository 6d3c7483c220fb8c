"""Series: what runs, and what is refused before it begins."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fastdqn.errors import UserError
from fastdqn.options.parts import VARIANTS
from fastdqn.tools.series import distinct, run_series, without
from tests.helpers.scripts import parse


def parsed(words: Sequence[str]) -> Any:
    return parse("10_rainbow", *words)


def test_a_series_is_refused_before_it_begins(tmp_path: Path) -> None:
    words = ["--variant", "all", "--epsilon-final", "0.05", "--runs-dir", str(tmp_path / "runs")]
    options = parsed(words)
    with pytest.raises(UserError, match=r"--epsilon-final 0\.05 is above --epsilon-start 0"):
        run_series(
            Path("10_rainbow.py"),
            words,
            parsed,
            options.series.variant,
            range(options.series.seeds),
            options.run.runs_dir,
            options.game.name,
        )
    assert not (tmp_path / "runs").exists()


def test_words_of_a_series() -> None:
    words = ["--seed", "3", "--variant=all", "--dueling", "--seeds", "2", "--lr", "1"]
    assert without(words, "--variant", "--seed", "--seeds") == ["--dueling", "--lr", "1"]


def test_a_series_runs_what_differs_once(capsys: pytest.CaptureFixture[str]) -> None:
    def variants_of(*words: str) -> tuple[str, ...]:
        return distinct({variant: parsed(["--variant", variant, *words]) for variant in VARIANTS})

    assert variants_of("--game", "pong") == VARIANTS
    assert capsys.readouterr().out == ""
    assert variants_of("--agent", "pong-fast") == tuple(v for v in VARIANTS if v != "n-step")  # has 5 steps already
    assert capsys.readouterr().out == "n-step is dqn with these options, and is left out\n"
