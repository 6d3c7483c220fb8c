"""--resume: what may change of a run, and whatever cannot be resumed is one sentence."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from fastdqn.errors import UserError
from fastdqn.runs.checkpoint import Checkpoints, checkpoints_in, newest, read
from tests.helpers.resuming import VECTOR, resume
from tests.helpers.scripts import TOY_CATCH, parse, train

SCRIPT = "09_cuda_graph"


@pytest.fixture(scope="module")
def stopped_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 09 that has ended, for tests that only look at it."""
    return train(SCRIPT, tmp_path_factory.mktemp("runs"), *VECTOR, "--max-env-steps", "90")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--gamma", "0.9"), "--gamma 0.9 contradicts the checkpoint .*, which has --gamma 0.99"),
        (("--game", "pong"), "--game pong contradicts the checkpoint .*, which has --game breakout"),
        (("--seed", "3"), "--seed 3 contradicts"),
        (("--num-envs", "4"), "--num-envs 4 contradicts the checkpoint .*, which has --num-envs 3"),
        (("--sticky-actions", "0.25"), "--sticky-actions 0.25 contradicts"),
        (("--center-frames",), "--center-frames contradicts the checkpoint .*, which has --no-center-frames"),
        (("--no-such-option",), "There is no option --no-such-option"),
        (("--no_episodic_life",), "--no-episodic-life contradicts the checkpoint .*, which has --episodic-life"),
        (("--max-env-steps", "0"), "--max-env-steps must be at least 1"),
    ],
)
def test_options_that_contradict_are_refused_by_name(stopped_run: Path, words: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        parse(SCRIPT, "--resume", str(stopped_run), *words)


def test_what_changes_nothing_that_is_learnt_may_change(stopped_run: Path) -> None:
    words = ("--max-env-steps", "1000", "--max-minutes", "5", "--stop-score", "7", "--threads", "1", "--profile")
    words += ("--game", "Breakout", "--env-threads", "1", "--gamma", "0.99", "--checkpoint-minutes", "2")
    options = parse(SCRIPT, "--resume", str(stopped_run), *words)
    assert (options.run.max_env_steps, options.run.threads, options.run.stop_score) == (1000, 1, 7.0)
    assert (options.run.max_minutes, options.run.checkpoint_minutes) == (5, 2)
    assert (options.vector.env_threads, options.vector.profile) == (1, True)
    assert (options.dqn.replay_initial, options.vector.num_envs, options.game.name) == (60, 3, "breakout")
    again = ("--no-double", "--episodic-life", "--no-wandb", "--no-cuda", "--device", "cpu")  # said, but nothing new
    assert parse(SCRIPT, f"--resume={stopped_run}", *again).dqn == options.dqn
    assert parse(SCRIPT, f"--resume={stopped_run}", "--num-envs", "None").vector.num_envs == 3  # what None had become
    assert parse(SCRIPT, "--resume", str(stopped_run), "--cuda").run.cuda
    latest = parse(SCRIPT, "--resume", "latest", "--runs-dir", str(stopped_run.parent))
    assert latest.run.resume == str(stopped_run)
    assert latest.dqn == options.dqn


def test_a_stop_score_for_which_no_game_would_count_is_refused(tmp_path: Path) -> None:
    run = train(SCRIPT, tmp_path, *VECTOR, "--max-env-steps", "90", "--epsilon-final", "0.01")
    with pytest.raises(UserError, match=r"--stop-score 7 .* --epsilon-final is 0\.01; raise it"):
        parse(SCRIPT, "--resume", str(run), "--stop-score", "7")
    assert parse(SCRIPT, "--resume", str(run)).run.stop_score is None


def test_code_is_not_loaded_because_a_checkpoint_names_it(tmp_path: Path) -> None:
    run = train(SCRIPT, tmp_path, *VECTOR, "--game", TOY_CATCH, "--max-env-steps", "90")
    for words in ((), ("--game", "pong"), ("--game", "tests.helpers.toys:Counter")):
        with pytest.raises(UserError, match=f"if you trust it, name it too: --game {TOY_CATCH}"):
            parse(SCRIPT, "--resume", str(run), *words)
    assert parse(SCRIPT, "--resume", str(run), "--game", TOY_CATCH).game.name == TOY_CATCH


def test_another_script_and_wrong_folders_are_one_sentence(stopped_run: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is one of 09_cuda_graph; resume it with that script"):
        parse("01_baseline", "--resume", str(stopped_run))
    with pytest.raises(UserError, match="there is no such folder of a run"):
        parse(SCRIPT, "--resume", str(tmp_path / "x"))
    with pytest.raises(UserError, match="there is no such folder of a run"):
        parse(SCRIPT, "--resume", str(stopped_run / "config.json"))
    with pytest.raises(UserError, match="has no checkpoint to resume"):
        parse(SCRIPT, "--resume", str(tmp_path))
    with pytest.raises(UserError, match=r"no run of 09_cuda_graph in .* has a checkpoint"):
        parse(SCRIPT, "--resume", "latest", "--runs-dir", str(tmp_path))


def test_a_checkpoint_of_another_run_or_with_another_first_line_is_refused(stopped_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(stopped_run, run)
    path = checkpoints_in(run)[0]
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"gamma": 0.99', b'"gamma": 0.91', 1))
    with pytest.raises(UserError, match="its first line is not its own"):
        read(newest(run))
    path.write_bytes(whole.replace(b'"game": "breakout"', b'"game": "pong"', 1))
    with pytest.raises(UserError, match="is of another run: 09_cuda_graph on pong, not 09_cuda_graph on breakout"):
        parse(SCRIPT, "--resume", str(run))


@pytest.mark.slow
def test_what_does_not_fit_is_one_sentence(stopped_run: Path, tmp_path: Path) -> None:
    """A state that another version wrote, or would read otherwise; the run's own files stay as they are."""
    run = tmp_path / "run"
    shutil.copytree(stopped_run, run)
    path = checkpoints_in(run)[0]
    header = newest(run)
    states = read(header)
    weights = (run / "weights.safetensors").read_bytes()
    changes: list[dict[str, Any]] = [
        *({"parts": {**states["parts"], broken: {}}} for broken in ("policy", "learner")),
        {"run": {**states["run"], "lines": {"speed.jsonl": "long"}}},
    ]
    for change in changes:
        about = {"script": header.script, "game": header.game, "config": header.config}
        checkpoints = Checkpoints(run, about)
        checkpoints.begin(header.env_steps, lambda change=change: {**states, **change})  # type: ignore[misc]
        checkpoints.ended(wait=True)
        said = resume(SCRIPT, run, "--max-env-steps", "200", code=3)
        assert "does not fit this version of fastdqn" in said
        assert "Traceback" not in said
    assert (run / "weights.safetensors").read_bytes() == weights
    assert path.exists()
