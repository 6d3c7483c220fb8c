"""33: without a thread it is 31 or 41; with one it learns, stops and resumes, and is saved once that has ended."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fastdqn.algorithms.control_work import ControlPlayer
from fastdqn.algorithms.ppo import PPOLearner
from fastdqn.algorithms.sac import SACLearner
from fastdqn.errors import UserError
from fastdqn.execution.trainer_thread import Trainer
from fastdqn.options import TrainerOptions
from fastdqn.runs.checkpoint import checkpoints_in
from fastdqn.runs.run import Run
from tests.helpers.control import Reach, registered
from tests.helpers.marks import posix_signals
from tests.helpers.outcomes import learnt_by_any_script, weights_of
from tests.helpers.resuming import FEW, QUIET, resume
from tests.helpers.scripts import (
    SESSIONS,
    fastdqn_says,
    here,
    loaded,
    only_run,
    parse,
    records,
    started,
    summary,
    train,
)
from tests.helpers.waiting import wait_until

BESIDE = "33_trainer_thread"
THREAD = (*FEW, "--trainer-thread", "--steps-per-update", "1")
PPO = ("--algorithm", "ppo", *QUIET, "--num-envs", "3", "--rollout-steps", "16", "--batch-size", "20", "--epochs", "2")
OF_A_ROLLOUT = 6
"""Updates: 48 rows, of which at most 6 are resets, make 3 batches."""
DECAY = ("--learning-rate-decay", "600")


def watched(monkeypatch: pytest.MonkeyPatch, before: Callable[[int], None]) -> list[dict[str, bytes]]:
    """Return the weights after each update of soft actor-critic, as they come; `before` is told the number of each."""
    made: list[dict[str, bytes]] = []
    update = SACLearner.update

    def heard(self: SACLearner, batch: Any) -> Any:
        before(len(made) + 1)
        metrics = update(self, batch)
        made.append({name: tensor.numpy().tobytes() for name, tensor in self.network.state_dict().items()})
        return metrics

    monkeypatch.setattr(SACLearner, "update", heard)
    return made


def trainers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "fastdqn-trainer"]


def test_without_a_thread_33_is_31_bit_for_bit(tmp_path: Path) -> None:
    words = (*FEW, "--num-envs", "2", "--max-env-steps", "420")
    plain = train("31_sac", tmp_path / "31", *words)
    beside = train(BESIDE, tmp_path / "33", *words, "--no-trainer-thread", "--steps-per-update", "1")
    assert learnt_by_any_script(plain) == learnt_by_any_script(beside)


def test_without_a_thread_ppo_is_41_bit_for_bit(tmp_path: Path) -> None:
    words = (*PPO[2:], *DECAY, "--max-env-steps", "300")
    plain = train("41_ppo_ranks", tmp_path / "41", "--game", "CartPole-v1", *words)
    beside = train(BESIDE, tmp_path / "33", "--algorithm", "ppo", "--no-trainer-thread", *words)
    assert learnt_by_any_script(plain) == learnt_by_any_script(beside)
    resume(BESIDE, beside, "--max-env-steps", "600")
    resume("41_ppo_ranks", plain, "--max-env-steps", "600")
    assert learnt_by_any_script(plain) == learnt_by_any_script(beside)


@pytest.mark.parametrize("threaded", [True, False])
def test_ppo_says_how_old_its_policy_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threaded: bool) -> None:
    """With a thread up to the updates of two rollouts, and those of its own before; without one these alone."""
    ages: list[float] = []
    update, updated = PPOLearner.update, Run.updated

    def slow(self: PPOLearner, batch: Any) -> Any:
        time.sleep(0.01)  # so that who plays waits
        return update(self, batch)

    def heard(self: Run, metrics: Any, samples: int) -> None:
        ages.append(float(metrics["policy_age"]))
        updated(self, metrics, samples)

    monkeypatch.setattr(PPOLearner, "update", slow)
    monkeypatch.setattr(Run, "updated", heard)
    thread = "--trainer-thread" if threaded else "--no-trainer-thread"
    run = train(BESIDE, tmp_path, *PPO, *DECAY, thread, "--max-env-steps", "600")
    assert summary(run)["updates"] == len(ages) > 8 * OF_A_ROLLOUT
    assert ages[:OF_A_ROLLOUT] == [float(i) for i in range(OF_A_ROLLOUT)]
    assert records(run, "speed.jsonl")[-1]["policy_age"] in ages
    if threaded:
        assert OF_A_ROLLOUT <= max(ages) < 3 * OF_A_ROLLOUT
    else:
        assert max(ages) < OF_A_ROLLOUT
    resume(BESIDE, run, "--max-env-steps", "700")
    assert summary(run)["env_steps"] >= 700


@pytest.mark.slow
def test_with_a_thread_ppo_learns_cartpole(tmp_path: Path) -> None:
    words = ("--algorithm", "ppo", "--trainer-thread", "--threads", "1", "--max-env-steps", "200000")
    assert summary(train(BESIDE, tmp_path, *words))["reason"] == "solved"  # above 195


def test_without_a_thread_33_resumes_bit_for_bit(tmp_path: Path) -> None:
    words = (*FEW, "--no-trainer-thread", "--steps-per-update", "0.4")
    whole = train(BESIDE, tmp_path / "whole", *words, "--max-env-steps", "240")
    half = train(BESIDE, tmp_path / "half", *words, "--max-env-steps", "120")
    assert learnt_by_any_script(whole) != learnt_by_any_script(half)
    resume(BESIDE, half, "--max-env-steps", "240")
    assert learnt_by_any_script(whole) == learnt_by_any_script(half)
    assert summary(whole)["updates"] == int((240 - 19) / 0.4)


def test_with_a_thread_33_learns_stops_and_resumes(tmp_path: Path) -> None:
    words = (*FEW, "--trainer-thread", "--steps-per-update", "2", "--checkpoint-env-steps", "100")
    run = train(BESIDE, tmp_path, *words, "--max-env-steps", "300")
    assert (summary(run)["env_steps"], summary(run)["reason"]) == (300, "max-env-steps")
    made = summary(run)["updates"]
    assert 100 < made <= (300 - 19) // 2
    assert records(run, "speed.jsonl")[-1]["updates"] == made  # those too that the thread was still to finish
    assert "resumed at env step 300" in resume(BESIDE, run, "--max-env-steps", "600")
    assert made < summary(run)["updates"] <= (600 - 19) // 2


def test_33_without_its_replay_makes_no_burst(tmp_path: Path) -> None:
    words = (*FEW, "--no-trainer-thread", "--steps-per-update", "1", "--no-checkpoint-replay")
    run = train(BESIDE, tmp_path, *words, "--max-env-steps", "60")
    resume(BESIDE, run, "--max-env-steps", "120")
    assert summary(run)["updates"] == 41 + 41


@posix_signals
def test_ctrl_c_of_33(tmp_path: Path) -> None:
    with started(BESIDE, tmp_path, *THREAD, "--max-env-steps", "None", "--stop-score", "None") as run:
        run.wait_until(lambda: run.updates() > 3)
        run.ctrl_c()
        code, out, err = run.finish()
    assert code == 130
    assert "Traceback" not in out + err
    assert summary(only_run(tmp_path))["reason"] == "interrupted"
    assert list(only_run(tmp_path).glob("checkpoints/*.checkpoint"))


UNDER_WAY = 21
"""Number of the update that is under way after 60 env steps, if it waits: 20 of them may wait for the thread."""


def train_60(folder: Path, breaks: bool = False) -> None:
    """Train with a thread for 60 env steps, save at the end alone."""
    words = ("--no-checkpoints", "--max-env-steps", "61" if breaks else "60", "--runs-dir", str(folder))
    loaded(BESIDE).train(parse(BESIDE, *THREAD, *words))


@pytest.mark.parametrize("breaks", [False, True])
def test_33_is_joined_then_counted_and_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, breaks: bool) -> None:
    """The update that is under way when the loop ends is in the weights and in the summary, however the loop ends."""
    leaving = threading.Event()
    made = watched(monkeypatch, lambda number: None if number < UNDER_WAY else wait_until(leaving.is_set, 60.0))
    play, leave = ControlPlayer.play, Trainer.__exit__

    def plays(self: ControlPlayer, env_steps: int, version: int) -> Any:
        if env_steps == 60:
            raise ValueError("the game broke as it was told to")
        return play(self, env_steps, version)

    def leaves(self: Trainer[Any], *how: Any) -> None:
        leaving.set()
        leave(self, *how)

    monkeypatch.setattr(ControlPlayer, "play", plays)
    monkeypatch.setattr(Trainer, "__exit__", leaves)
    with pytest.raises(ValueError, match="the game broke") if breaks else contextlib.nullcontext():
        train_60(tmp_path, breaks)
    assert not trainers()
    found = summary(only_run(tmp_path))
    assert weights_of(only_run(tmp_path)) == made[-1]
    assert (found["reason"], found["env_steps"]) == ("failed" if breaks else "max-env-steps", 60)
    assert found["updates"] == len(made) == UNDER_WAY


def test_saved_before_it_is_joined_33_lacks_an_update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of the test above."""

    def saved() -> bool:
        return any(tmp_path.glob("*/weights.safetensors"))

    made = watched(monkeypatch, lambda number: None if number < UNDER_WAY else wait_until(saved, 60.0))
    monkeypatch.setattr(Trainer, "__exit__", lambda trainer, *_: trainer._leave.set())
    train_60(tmp_path)
    for thread in trainers():
        thread.join()
    assert weights_of(only_run(tmp_path)) == made[-2] != made[-1]
    assert summary(only_run(tmp_path))["updates"] == len(made) - 1


def test_an_exception_in_33s_thread_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the 60th update: what was learnt before is saved, and the run resumes from its checkpoint."""

    def breaks(number: int) -> None:
        if number == 60:
            raise ValueError("the update broke as it was told to")

    with monkeypatch.context() as patched:
        made = watched(patched, breaks)
        words = (*THREAD, "--checkpoint-env-steps", "40", "--runs-dir", str(tmp_path), "--max-env-steps", "5000")
        with pytest.raises(ValueError, match="broke as it was told to"):
            loaded(BESIDE).train(parse(BESIDE, *words))
    run = only_run(tmp_path)
    assert (summary(run)["reason"], summary(run)["updates"]) == ("failed", 59)
    assert weights_of(run) == made[-1] != made[0]
    begun = int(checkpoints_in(run)[-1].stem)
    assert begun >= 40
    assert f"resumed at env step {begun}, update " in resume(BESIDE, run, "--max-env-steps", "160")
    assert (summary(run)["reason"], summary(run)["env_steps"]) == ("max-env-steps", 160)
    assert 59 < summary(run)["updates"] <= 160 - 19


@pytest.mark.parametrize("words", [THREAD, (*PPO, "--trainer-thread")], ids=["sac", "ppo"])
def test_what_looks_at_runs_knows_33(tmp_path: Path, words: tuple[str, ...]) -> None:
    run = train(BESIDE, tmp_path / "run", *words, "--max-env-steps", "420")
    done = fastdqn_says("evaluate", str(run), "--games", "2", cwd=tmp_path)
    assert "2 games, " in done.stdout, done.stderr
    done = fastdqn_says("plot", str(run), "--out", str(tmp_path / "curves.png"))
    assert (tmp_path / "curves.png").exists(), done.stderr
    done = fastdqn_says("compare", str(run))
    assert "33" in done.stdout, done.stderr
    done = fastdqn_says("watch", str(run), "--out", str(tmp_path / "game.gif"), "--values", "--max-env-steps", "5")
    drawn = "a game of 5 env steps, not to its end" in done.stdout
    assert drawn or re.match(r"error: \S+-v1 cannot be drawn: pygame is not installed, run `pip ", done.stderr)


OWN = ("--game", "Reach-v0")
QUICK = "learns between two steps of the games: Gymnasium's own environments are quick, and a thread pays where "
SLOW = "learns in a thread of its own: a step of an environment that is none of Gymnasium's may take long"
GAINED_NOTHING = "learns between two steps of the games: PPO has gained nothing from a thread"
ASKED = "learns in a thread of its own: --trainer-thread asks for it"
REFUSED = "learns between two steps of the games: --no-trainer-thread asks for it"


@pytest.mark.parametrize(
    ("words", "threaded", "said"),
    [
        ((), False, QUICK),
        (("--game", "pendulum-v1"), False, QUICK),
        (("--game", "MountainCarContinuous-v0"), False, QUICK),
        (("--game", "HalfCheetah-v5"), False, QUICK),
        (("--trainer-thread",), True, ASKED),
        (OWN, True, SLOW),
        ((*OWN, "--no-trainer-thread"), False, REFUSED),
        (("--algorithm", "ppo"), False, GAINED_NOTHING),
        (("--algorithm", "ppo", *OWN), False, GAINED_NOTHING),
        (("--algorithm", "ppo", "--game", "pong"), False, GAINED_NOTHING),
        (("--algorithm", "ppo", "--trainer-thread"), True, ASKED),
    ],
)
def test_33_has_a_thread_where_one_may_pay_and_says_why(words: tuple[str, ...], threaded: bool, said: str) -> None:
    with registered(Reach=Reach):
        options = parse(BESIDE, *words)
        trainer: TrainerOptions = options.trainer
        assert trainer.trainer_thread == threaded
        assert trainer.describe(options.game.name).startswith(said)


@pytest.mark.parametrize(("words", "said"), [(FEW, QUICK), ((*PPO, "--trainer-thread"), ASKED)], ids=["sac", "ppo"])
def test_33_says_at_its_start_who_learns(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    printed = here(BESIDE, *words, "--max-env-steps", "40", "--no-checkpoints", "--runs-dir", str(tmp_path))
    assert said in " ".join(printed.split())


def test_33s_steps_for_an_update() -> None:
    assert parse(BESIDE).sac.steps_per_update == parse(BESIDE, "--game", "HalfCheetah-v5").sac.steps_per_update == 10
    assert parse(BESIDE, "--steps-per-update", "0.5").sac.steps_per_update == 0.5
    for words in (("31_sac", "0.5"), (SESSIONS, "1.5")):
        with pytest.raises(UserError, match=r"^--steps-per-update must be a whole number, not "):
            parse(words[0], "--steps-per-update", words[1])
