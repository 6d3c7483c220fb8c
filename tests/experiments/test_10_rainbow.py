"""10 as a user runs it: every variant learns Catch, and reports on itself."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from fastdqn.options.parts import VARIANTS
from tests.helpers.scripts import RAINBOW_CATCH, TOY_CATCH, here, records, summary, train

SCORE = 0.7
"""The mean of the last 100 games of an agent that has learnt Catch."""


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_each_variant_learns_catch(tmp_path: Path, variant: str) -> None:
    run = train("10_rainbow", tmp_path, *RAINBOW_CATCH, "--variant", variant)
    scores = [episode["score"] for episode in records(run, "episodes.jsonl")]
    assert sum(scores[:100]) / 100 < 0.0
    assert sum(scores[-100:]) / 100 >= SCORE
    reports = records(run, "reports.jsonl")
    assert [line["env_steps"] // 500 for line in reports] == [0, 1, 2, 3, 4]
    assert all(math.isfinite(value) for line in reports for value in line.values())
    if variant in ("prioritized", "rainbow"):
        assert reports[-1]["priority/beta"] > 0.99
        assert reports[0]["priority/beta"] < 0.6


@pytest.mark.slow
def test_the_reports_are_in_tensorboards_events(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    words = ("--max-env-steps", "700", "--variant", "rainbow")
    run = train("10_rainbow", tmp_path, *RAINBOW_CATCH, *words)
    events = EventAccumulator(str(run), size_guidance={"scalars": 0, "histograms": 0})
    events.Reload()
    tags = events.Tags()
    assert {"held_out/mean_q", "priority/beta", "priority/median", "train/loss"} <= set(tags["scalars"])
    assert len([tag for tag in tags["scalars"] if tag.startswith("signal_to_noise/head.")]) == 4
    (tag,) = tags["histograms"]
    histogram = events.Histograms(tag)[-1].histogram_value
    assert len(histogram.bucket) == 51
    assert sum(histogram.bucket) == pytest.approx(1.0, abs=1e-3)


@pytest.mark.cuda
@pytest.mark.parametrize("variant", ["dqn", "noisy", "prioritized", "rainbow"])
def test_variants_run_on_cuda(tmp_path: Path, variant: str) -> None:
    words = ("--cuda", "--variant", variant, "--replay-initial", "400", "--max-env-steps", "900", "--num-envs", "8")
    result = summary(train("10_rainbow", tmp_path, *words, "--report-env-steps", "200"))
    assert (result["device"], result["updates"] > 50) == ("cuda:0", True)


@pytest.mark.cuda
@pytest.mark.parametrize("variant", ["dqn", "rainbow"])
def test_it_learns_catch_on_cuda(tmp_path: Path, variant: str) -> None:
    run = train("10_rainbow", tmp_path, *RAINBOW_CATCH, "--cuda", "--num-envs", "8", "--variant", variant)
    scores = [episode["score"] for episode in records(run, "episodes.jsonl")]
    assert sum(scores[-100:]) / 100 >= SCORE


@pytest.mark.cuda
@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_a_run_on_cuda_resumes(tmp_path: Path, device: str) -> None:
    words = (*RAINBOW_CATCH, "--cuda", "--num-envs", "8", "--variant", "rainbow", "--final-learning-rate", "1e-4")
    run = train("10_rainbow", tmp_path, *words, "--max-env-steps", "800")
    before = summary(run)
    here("10_rainbow", "--resume", str(run), "--game", TOY_CATCH, "--device", device, "--max-env-steps", "1600")
    after = summary(run)
    assert torch.device(after["device"]).type == device
    assert after["updates"] == pytest.approx(2 * before["updates"], rel=0.4)
    assert all(math.isfinite(line["loss"]) for line in records(run, "speed.jsonl") if line.get("loss") is not None)
