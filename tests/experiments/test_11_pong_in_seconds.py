"""11: its options, and an agent that is frozen once it wins."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fastdqn.errors import UserError
from fastdqn.schedules import updates_due
from tests.helpers.scripts import RAINBOW_CATCH, parse, records, summary, train

LEARNT = 0.7  # mean score of Catch's last 100 games


@pytest.mark.parametrize(
    "words",
    [
        "--freeze-share 1",
        "--freeze-share 0.4",
        "--freeze-slack 1.1",
        "--network nature --frame-size 30",
        "--network narrow --gradient-threads 0",
        "--gradient-threads 65",
    ],
)
def test_bad_values_are_one_sentence(words: str) -> None:
    with pytest.raises(UserError, match=r"must be|cannot be"):
        parse("11_pong_in_seconds", *words.split())


def test_it_learns_catch_and_is_then_frozen(tmp_path: Path) -> None:
    """From three quarters of all games won on it learns nothing while it wins 0.9 of them, and it stays good."""
    words = (*RAINBOW_CATCH, "--device", "cpu", "--freeze-share", "0.9", "--epsilon-final", "0.03")
    run = train("11_pong_in_seconds", tmp_path, *words, "--max-env-steps", "3200")
    result, episodes = summary(run), records(run, "episodes.jsonl")
    scores = [episode["score"] for episode in episodes]
    assert sum(scores[-100:]) / 100 >= LEARNT
    all_due = len(updates_due(0, result["env_steps"], 4, 200))
    assert 100 < result["updates"] < 0.85 * all_due
    trials = [report for report in records(run, "reports.jsonl") if "freeze/frozen" in report]
    assert (trials[0]["freeze/trials"], trials[0]["freeze/frozen"]) == (1.0, 1.0)
    assert 0.03 in {episode["epsilon"] for episode in episodes}


@pytest.mark.cuda
@pytest.mark.parametrize("words", [(), ("--network", "narrow")])
def test_it_runs_on_cuda(tmp_path: Path, words: tuple[str, ...]) -> None:
    words = (*words, "--replay-initial", "1500", "--max-env-steps", "4000", "--num-envs", "16")
    result = summary(train("11_pong_in_seconds", tmp_path, "--cuda", *words))
    assert (torch.device(result["device"]).type, result["updates"] > 50) == ("cuda", True)
