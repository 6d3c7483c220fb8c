"""--device mps without a Mac: which forms are chosen, and whole runs with tensors that count as mps's."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fastdqn.algorithms.descent import fused_adam_on
from fastdqn.algorithms.diagnostics import Diagnostics
from fastdqn.algorithms.form import Form
from fastdqn.cli import scripts
from fastdqn.errors import UserError
from fastdqn.execution.devices import describe_device, has_bf16, prepare_device
from fastdqn.execution.graphs import graphs_on
from fastdqn.execution.player import PlayerWeights
from fastdqn.forms import fastest_form
from fastdqn.networks.arithmetic import arithmetic_on, in_bf16
from fastdqn.options.parts import VARIANTS
from fastdqn.replay.memory import describe_frame_replay
from fastdqn.replay.prioritized import PrioritizedReplay
from fastdqn.runs.machine import environment, peak_device_bytes
from fastdqn.states import fetched, on_cpu
from tests.helpers.learners import CPU, FAST, KeepsGradients, learner_of, moved, network, random_batch, update_of
from tests.helpers.mps import MPS, mps_without_apple, on_mps
from tests.helpers.replays import make_replay, weighted_replay
from tests.helpers.resuming import PLAIN, RAINBOW, resume
from tests.helpers.scripts import here, loaded, only_run, records, summary, train

FORM = Form(fused=fused_adam_on(MPS))
"""What this PyTorch has there."""


def test_mps_where_there_is_none_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(UserError, match=r"has no MPS here.*leave it out to train on the CPU\.$") as caught:
        prepare_device("mps")
    assert caught.value.exit_code == 2


def test_mps_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert prepare_device("mps") == prepare_device("mps:0") == MPS
    assert prepare_device("auto") == prepare_device() == CPU  # nobody has measured which is faster
    with pytest.raises(UserError, match="there is only one MPS device"):
        prepare_device("mps:1")


@pytest.mark.parametrize("fused", [False, True])
def test_the_form_of_an_update_on_mps(monkeypatch: pytest.MonkeyPatch, fused: bool) -> None:
    """Neither graphs nor bf16 nor channels last; Adam in one kernel where this PyTorch has it there."""
    place = "torch.utils._foreach_utils._get_fused_kernels_supported_devices"
    monkeypatch.setattr(place, lambda: ["cuda", "cpu", *(["mps"] if fused else [])])
    for precision in ("auto", "fp32"):
        assert fastest_form(precision, MPS) == Form(fused=fused)
    assert fastest_form("fp32", CPU) == FAST
    assert not graphs_on(MPS)
    assert not has_bf16(MPS)
    with pytest.raises(UserError, match="--precision bf16 is not for --device mps"):
        fastest_form("bf16", MPS)


def test_what_is_said_of_mps() -> None:
    (line,) = describe_device(MPS)
    assert "float32 without graphs" in line
    assert "not yet tried on an Apple machine" in line
    assert Form().describe(MPS) == "arithmetic: float32"
    assert describe_frame_replay(1000, MPS).endswith(" on cpu")
    assert describe_device(CPU) == describe_device(torch.device("cuda")) == ()


def test_autocast_is_never_asked_of_mps(monkeypatch: pytest.MonkeyPatch) -> None:
    with mps_without_apple(monkeypatch):
        assert arithmetic_on(MPS) == torch.float32
        with in_bf16(MPS, False):
            assert arithmetic_on(MPS) == torch.float32


def test_what_mps_cannot_do_is_an_error_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next tests would notice it."""
    with mps_without_apple(monkeypatch):
        there, here = torch.ones(3, device=MPS), torch.ones(3)
        assert (there.device, here.device) == (MPS, CPU)
        assert (there * 2).view(3, 1).device == here.to(MPS).device == MPS
        assert there.cpu().device == there.to("cpu", torch.int64).device == CPU
        for wrong, said in (
            (lambda: there.double(), "float64"),
            (lambda: torch.rand(3, dtype=torch.float64, device="mps"), "float64"),
            (lambda: there + here, "same device"),
            (lambda: there[here.long()], "same device"),
            (lambda: there.numpy(), "Tensor.cpu"),
            (lambda: there.share_memory_(), "only available on CPU"),
            (lambda: torch.autocast("mps", torch.bfloat16, enabled=False), "unsupported"),
        ):
            with pytest.raises((RuntimeError, TypeError), match=said):
                wrong()


@pytest.mark.parametrize("variant", VARIANTS)
def test_updates_on_mps_equal_the_cpus(monkeypatch: pytest.MonkeyPatch, variant: Any) -> None:
    """Draws, targets, gradients, steps and priorities; the noise, too, since the CPU draws it here."""
    kept: list[tuple[list[float], list[torch.Tensor]]] = []
    for device in (CPU, MPS):
        with mps_without_apple(monkeypatch):
            learner = learner_of(variant, FORM, device)
            learner.descent = descent = KeepsGradients()
            replay = weighted_replay(variant in ("prioritized", "rainbow"), device)
            assert replay.stacks().device == learner.device == device
            learner.center_frames(replay.mean_frame())
            update = update_of(learner, replay, 16)
            losses = [update().scalars["loss"].item() for _ in range(3)]
            learner.sync_target()
            learner.set_learning_rate(1e-3)
            losses.append(update().scalars["loss"].item())
            kept.append((losses, [gradient.cpu() for gradient in descent.gradients]))
    (losses, gradients), (on_device, gradients_there) = kept
    assert on_device == losses
    assert all(torch.equal(a, b) for a, b in zip(gradients, gradients_there, strict=True))


def test_batches_are_on_mps_and_what_they_are_drawn_from_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    with mps_without_apple(monkeypatch):
        replay = weighted_replay(True, MPS)
        batch = replay.sample(8)
        assert batch.slot is not None
        assert batch.weight is not None
        assert all(on_mps(part) for part in (batch.obs, batch.next_obs, batch.reward, batch.discount, batch.action))
        assert on_mps(batch.weight)
        assert not on_mps(batch.slot)
        replay.write_back(batch, torch.full((8,), 7.0, device=MPS))
        assert isinstance(replay, PrioritizedReplay)
        assert replay.priorities.largest().item() == pytest.approx(7.0**0.6)
        assert replay.device == CPU
        assert make_replay(50, 4, 3, MPS).generator.device == CPU


def test_noise_is_drawn_where_the_generator_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report on noisy layers has the replay's kind of random numbers, which are the host's."""
    with mps_without_apple(monkeypatch):
        learner, replay = learner_of("noisy", device=MPS), weighted_replay(False, MPS)
        diagnostics = Diagnostics(learner, replay, 1, 20, 0)
        first = diagnostics.report()[0]
        assert set(first) >= {"held_out/mean_q"}
        again = Diagnostics(learner, replay, 1, 20, 0)
        again.load(fetched(diagnostics.state()))
        assert again.report()[0]["held_out/mean_q"] == diagnostics.report()[0]["held_out/mean_q"]


def test_a_learner_moves_between_mps_and_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    with mps_without_apple(monkeypatch):
        learner, other = learner_of("rainbow", FORM, MPS), learner_of("rainbow", FORM)
        learner.update(moved(random_batch(4), MPS))
        state = on_cpu(learner.state())
        assert not on_mps(state["network"]["torso.convs.0.weight"])
        other.load(state)
        back = learner_of("rainbow", FORM, MPS)
        back.load(on_cpu(other.state()))
        a, b = (one.update(moved(random_batch(4, seed=1), MPS)).scalars["loss"].item() for one in (learner, back))
        assert a == b


def test_a_player_beside_a_learner_on_mps_has_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    with mps_without_apple(monkeypatch):
        learns = network().to(MPS)
        weights = PlayerWeights(learns, "same")
        assert next(weights.network.parameters()).device == CPU
        with torch.no_grad():
            next(learns.parameters()).add_(1.0)
        weights.publish()
        assert torch.equal(next(weights.network.parameters()), next(learns.parameters()).cpu())


def test_mps_in_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastdqn.runs.machine.cpu_name", lambda: "Apple M9")
    assert environment(MPS)["gpu"] == "GPU of Apple M9"
    with mps_without_apple(monkeypatch):
        assert peak_device_bytes(MPS) == 12_345
    assert environment(CPU)["gpu"] is None
    assert peak_device_bytes(CPU) == 0


def test_out_of_memory_on_mps_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def train(_: Any) -> int:
        raise RuntimeError("MPS backend out of memory (MPS allocated: 18.00 GiB, max allowed: 18.13 GiB).")

    monkeypatch.setattr(sys, "argv", ["09"])
    with pytest.raises(SystemExit) as end:
        scripts.start(train, loaded("09_cuda_graph").options_type, "")
    assert end.value.code == 1
    err = capsys.readouterr().err
    assert err.startswith("error: The memory of the MPS device did not suffice; lower --batch-size")
    assert err.count("\n") == 1


@pytest.mark.slow
def test_runs_on_mps_and_goes_on_where_it_likes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rainbow with all that 10 does: acting, updates, reports, checkpoints; resumed on the CPU and back."""
    monkeypatch.setattr("fastdqn.runs.machine.cpu_name", lambda: "Apple M9")
    words = (*RAINBOW, "--center-frames", "--profile", "--report-env-steps", "10", "--runs-dir", str(tmp_path))
    with mps_without_apple(monkeypatch) as asked:
        said = here("10_rainbow", *words, "--device", "mps", "--max-env-steps", "90")
        run = only_run(tmp_path)
        assert describe_device(MPS)[0] in said
        assert "arithmetic: float32\n" in said
        assert set(asked) == {"synchronize", "memory"}
        assert summary(run)["device"] == "mps:0"
        assert summary(run)["peak_device_bytes"] == 12_345
        assert summary(run)["updates"] > 10
        assert len(records(run, "reports.jsonl")) >= 2
        assert json.loads((run / "environment.json").read_text(encoding="utf-8"))["gpu"] == "GPU of Apple M9"
    resume("10_rainbow", run, "--device", "cpu", "--max-env-steps", "105")
    assert summary(run)["env_steps"] >= 105
    with mps_without_apple(monkeypatch):
        resume("10_rainbow", run, "--device", "mps", "--max-env-steps", "120")
    assert (summary(run)["device"], summary(run)["reason"]) == ("mps:0", "max-env-steps")


@pytest.mark.parametrize(
    "script", ["01_baseline", pytest.param("06_vector_env", marks=pytest.mark.slow), "09_cuda_graph"]
)
def test_scripts_run_on_mps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    games = () if script.startswith("01") else ("--num-envs", "3", "--env-threads", "1", "--steps", "4")
    with mps_without_apple(monkeypatch):
        run = train(script, tmp_path, *PLAIN, *games, "--device", "mps", "--max-env-steps", "90")
    assert summary(run)["updates"] > 0
    assert np.isfinite(records(run, "speed.jsonl")[-1]["loss"])
