"""Runs of an older version are refused, by the version that wrote them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fastdqn.errors import UserError
from fastdqn.runs.checkpoint import FORMAT
from fastdqn.runs.folder import version
from tests.helpers import forks
from tests.helpers.older import SCRIPT, older_run
from tests.helpers.scripts import ROOT, command, parse

RUN, RUNS = "RUN", "RUNS"
"""Stand for the run's folder, and the folder that it is in."""
FASTDQN = ["-m", "fastdqn.cli.main"]
TRAIN = [str(ROOT / "experiments" / f"{SCRIPT}.py")]


@pytest.mark.parametrize(
    "words",
    [
        [*TRAIN, "--resume", RUN],
        [*TRAIN, "--resume", "latest", "--runs-dir", RUNS],
        command("09_cuda_graph", Path("elsewhere"), "--resume", RUN),
        [*FASTDQN, "evaluate", RUN, "--episodes", "1"],
    ],
    ids=["resume", "resume-latest", "resume-by-another-script", "evaluate"],
)
def test_a_run_of_an_older_version_is_refused_in_a_sentence(tmp_path: Path, words: list[str]) -> None:
    run = older_run(tmp_path / "runs")
    kept = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    places = {RUN: str(run), RUNS: str(run.parent)}
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = forks.run([places.get(word, word) for word in words], tmp_path, environment)
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stdout == ""
    assert done.stderr == (
        f"error: The run {run} was written by fastdqn 0.1.0, in a format that this version, {version()}, does not "
        "read.\n"
    )
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == kept


@pytest.mark.parametrize("missing", ["checkpoints", "config.json"])
def test_so_is_one_that_has_lost_its_checkpoints_or_its_config(tmp_path: Path, missing: str) -> None:
    """The first is refused by its config.json, the second by the first line of its checkpoint."""
    run = older_run(tmp_path)
    path = run / "checkpoints" / "000000000500.checkpoint"
    (path if missing == "checkpoints" else run / missing).unlink()
    with pytest.raises(UserError) as caught:
        parse(SCRIPT, "--resume", str(run))
    if missing == "checkpoints":
        assert str(caught.value).startswith(f"The run {run} was written by fastdqn 0.1.0, in a format that ")
    else:
        reads = f"this version, {version()}, reads format {FORMAT}."
        assert str(caught.value) == f"The checkpoint {path} was written by fastdqn 0.1.0 in format 2; {reads}"
