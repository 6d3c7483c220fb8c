"""32: sessions that did not stand go on counting where they were; two learn a short task; what looks at runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastdqn import process
from fastdqn.execution.session_crew import Sessions
from tests.helpers.resuming import resume
from tests.helpers.scripts import SESSIONS, records, summary, train

QUIET = ("--threads", "1", "--checkpoint-minutes", "None", "--log-seconds", "1000")
FEW = (*QUIET, "--batch-size", "8", "--replay-initial", "20", "--replay-size", "150")
TWO = (*FEW, "--sessions", "2")


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is resumed here moves this process's clock; put it back."""
    monkeypatch.setattr(process, "_began", process._began)


def never_stand(sessions: Sessions) -> bool:
    """What is left of sessions that are not heard of in time."""
    sessions._broken = True
    return False


def test_sessions_that_did_not_stand_count_on_from_where_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Sessions, "_stand", never_stand)
        run = train(SESSIONS, tmp_path, *TWO, "--max-frames", "50", "--max-env-steps", "240")
    assert "2 games begin anew" in resume(SESSIONS, run, "--max-env-steps", "480")
    found, lines = summary(run), records(run, "episodes.jsonl")
    assert (found["env_steps"], found["updates"]) == (480, 2 * 2 * (120 - 19))  # each fills its new replay first
    for number in (1, 2):
        of_one = [line for line in lines if line["session"] == number]
        assert [line["session_env_steps"] > 120 for line in of_one] == [False, False, True, True]
        for column in ("session_env_steps", "session_updates"):
            values = [line[column] for line in of_one]
            assert values == sorted(values), "it falls, and a curve over it is none"
