"""What the loops of 01 to 12 do at each env step: target copies, epsilon, priorities."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastdqn import process
from fastdqn.algorithms.decay_start import DecayStart
from fastdqn.algorithms.dqn import DQNLearner
from fastdqn.algorithms.exploration import Exploring, VectorEpsilonGreedy
from fastdqn.execution.player import Message, PlayerProcess
from fastdqn.replay.prioritized import PrioritizedReplay
from fastdqn.replay.returns import ReturnReplay
from fastdqn.runs.run import Run
from fastdqn.types import Batch, Metrics
from tests.experiments.test_resume import state_at_the_end
from tests.helpers.scripts import PARALLEL, SHORT, VECTOR, summary, train

ALONE = ("01_baseline", "02_play_steps")
LATER = ("10_rainbow", "11_pong_in_seconds", "12_atari_100k")
MANY = ("--num-envs", "5", "--frame-size", "42", "--steps", "4", "--epsilon-decay", "300", "--env-threads", "1")
PLAIN = {
    "10_rainbow": ("--network", "narrow"),
    "11_pong_in_seconds": ("--device", "cpu", "--network", "narrow", "--freeze-share", "None", "--block-steps", "8"),
    "12_atari_100k": ("--agent", "post2017", "--network", "narrow", "--evaluation-games", "0"),
}
"""Words that leave exploration to epsilon and nobody frozen."""


def words_of(script: str) -> tuple[str, ...]:
    return (*SHORT, *(MANY if script in (*VECTOR, *LATER) else ()), *PLAIN.get(script, ()), "--no-checkpoints")


@pytest.mark.parametrize("script", [*ALONE, *PARALLEL, *VECTOR, *LATER])
def test_the_target_is_copied_where_its_period_of_env_steps_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    """Updates at env steps 100, 104, ... (01: at each), copies after those in which 120, 150 and 180 were played."""
    made: list[int] = []
    copied: list[int] = []
    updated = Run.updated

    def counted(run: Run, *words: Any) -> None:
        updated(run, *words)
        made.append(run.updates)

    monkeypatch.setattr(Run, "updated", counted)
    monkeypatch.setattr(DQNLearner, "sync_target", lambda _: copied.append(made[-1]))
    train(script, tmp_path, *words_of(script), "--target-sync", "30")
    assert copied == ([21, 51, 81] if script == "01_baseline" else [6, 14, 21])


@pytest.mark.parametrize("script", PARALLEL)
def test_nothing_is_learnt_from_env_steps_that_did_not_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    """At Ctrl-C a player that is slow has sent nothing: there is no second update at the env step before."""
    came, take = [0], PlayerProcess.take

    def stopped(player: PlayerProcess, count: int) -> list[Message]:
        if came[0] == 160:
            process.stop_with(signal.SIGINT)
            return []
        messages = take(player, count)
        came[0] += len(messages)
        return messages

    monkeypatch.setattr(PlayerProcess, "take", stopped)
    monkeypatch.setattr(process, "_first", 0)  # and afterwards again
    said = summary(train(script, tmp_path, *words_of(script)))
    assert (said["reason"], said["env_steps"], said["updates"]) == ("interrupted", 160, 16)  # at 100, 104, ..., 160


@pytest.mark.parametrize("script", [*VECTOR, "10_rainbow", "12_atari_100k"])
def test_epsilon_is_that_of_the_env_step_that_is_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    """Of each game its own; 11 has a test of its own, for it chooses while a step is under way."""
    played: list[float] = []
    draw = VectorEpsilonGreedy.draw

    def drawn(self: VectorEpsilonGreedy, epsilon: NDArray[np.float64]) -> Exploring:
        played.extend(epsilon)
        return draw(self, epsilon)

    monkeypatch.setattr(VectorEpsilonGreedy, "draw", drawn)
    train(script, tmp_path, *words_of(script), "--epsilon-start", "1", "--epsilon-final", "0.02")
    assert played == pytest.approx([1.0 - env_step / 300 for env_step in range(1, 201)])


@pytest.mark.parametrize("script", LATER)
def test_each_update_gives_its_samples_their_priorities(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    found: list[tuple[Tensor, Tensor]] = []
    given: list[tuple[Tensor, Tensor]] = []
    gradient, write_back = DQNLearner.gradient, PrioritizedReplay.write_back

    def computed(learner: DQNLearner, group: Any, batch: Batch) -> Metrics:
        metrics = gradient(learner, group, batch)
        if batch.slot is not None:  # none: it is tried whether fewer threads have the same bits
            found.append((batch.slot.clone(), metrics.priority.clone()))
        return metrics

    def written(replay: PrioritizedReplay, batch: Batch, priority: Tensor) -> None:
        assert batch.slot is not None
        given.append((batch.slot.clone(), priority.clone()))
        write_back(replay, batch, priority)

    monkeypatch.setattr(DQNLearner, "gradient", computed)
    monkeypatch.setattr(PrioritizedReplay, "write_back", written)
    run = train(script, tmp_path, *words_of(script), "--prioritized")
    assert len(found) == len(given) == summary(run)["updates"] >= 24
    for (slot, priority), (at, is_now) in zip(found, given, strict=True):
        assert torch.equal(slot, at)
        assert torch.equal(priority, is_now)
    assert len({float(value) for _, priority in given for value in priority}) > 20


@pytest.mark.parametrize("script", ["09_cuda_graph", *LATER])
def test_the_learning_rate_falls_with_env_steps_in_11_with_those_since_the_agent_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    rates: list[float] = []
    monkeypatch.setattr(DQNLearner, "set_learning_rate", lambda _, rate: rates.append(rate))
    monkeypatch.setattr(DecayStart, "elapsed", lambda _, env_steps: max(0, env_steps - 150))
    words = ("--learning-rate", "1e-3", "--final-learning-rate", "1e-4", "--learning-rate-decay", "180")
    train(script, tmp_path, *words_of(script), *words, "--max-env-steps", "200")
    waited = 150 if script == "11_pong_in_seconds" else 0
    steps = {min(max(0, env_steps - waited), 180) for env_steps in range(0, 201, 5)}
    assert rates == pytest.approx([1e-3 - step * 5e-6 for step in sorted(steps)])


@pytest.mark.parametrize("script", LATER)
def test_the_weights_that_a_run_leaves_are_those_that_play(tmp_path: Path, script: str) -> None:
    words = (*SHORT, *MANY, *PLAIN[script], "--act-with", "target", "--target-average", "0.25")
    run = train(script, tmp_path, *words)
    learner = state_at_the_end(run)["parts"]["learner"]
    left = safetensors.torch.load_file(run / "weights.safetensors")
    assert left.keys() == learner["target"].keys()
    assert all(torch.equal(left[name], learner["target"][name]) for name in left)
    assert any(not torch.equal(left[name], learner["network"][name]) for name in left)


HUNDRED = (
    *(*SHORT, "--agent", "100k-fast", "--network", "narrow", "--frame-size", "42", "--num-envs", "1"),
    *(
        "--env-threads",
        "1",
        "--replay-size",
        "400",
        "--block-steps",
        "8",
        "--evaluation-games",
        "0",
        "--no-checkpoints",
    ),
)
RETURNS = ("11_pong_in_seconds", "12_atari_100k")
"""Scripts whose agents learn lambda-returns."""


@pytest.mark.parametrize("script", RETURNS)
def test_noted_values_are_those_of_the_observations_stored_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    noted: list[bool] = []
    note = ReturnReplay.note

    def value(obs: Tensor) -> Tensor:  # a number of the newest frame, exact in float64
        pixels = obs[:, -1].flatten(1).double()
        return pixels.mul(torch.arange(pixels.shape[1])).sum(1).float()

    def act(_: DQNLearner, obs: Tensor, largest: Any = None) -> Tensor:
        largest.copy_(value(obs))
        return torch.zeros(len(obs), dtype=torch.int64)

    def checked(replay: ReturnReplay) -> None:
        noted.append(torch.equal(replay.values, value(replay.stacks())))
        note(replay)

    monkeypatch.setattr(DQNLearner, "act", act)
    monkeypatch.setattr(ReturnReplay, "note", checked)
    train(script, tmp_path, *(words_of(script) if script == "11_pong_in_seconds" else HUNDRED))
    assert len(noted) >= 40
    assert all(noted)


@pytest.mark.parametrize("script", RETURNS)
def test_returns_are_computed_anew_every_so_many_env_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    at: list[int] = []
    refresh = ReturnReplay.refresh

    def noted(replay: ReturnReplay, *words: Any) -> bool:
        at.append(replay._host_head * replay.num_envs)
        return refresh(replay, *words)

    monkeypatch.setattr(ReturnReplay, "refresh", noted)
    words = words_of(script) if script == "11_pong_in_seconds" else HUNDRED
    train(script, tmp_path, *words, "--refresh-env-steps", "40")
    assert at == [100, 140, 180]


@pytest.mark.parametrize("script", ["09_cuda_graph", *LATER])
def test_the_mean_frame_is_set_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Before the first update; later it would move under what was learnt."""
    made: list[int] = []
    updates: list[int] = []
    updated = Run.updated

    def counted(run: Run, *words: Any) -> None:
        made.append(1)
        updated(run, *words)

    monkeypatch.setattr(Run, "updated", counted)
    monkeypatch.setattr(DQNLearner, "center_frames", lambda *_: updates.append(len(made)))
    train(script, tmp_path, *words_of(script), "--center-frames")
    assert updates == [0]
