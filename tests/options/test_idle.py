"""Options that change nothing beside others."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastdqn.cli.words import asked
from fastdqn.options.groups import groups_of
from fastdqn.options.idle import idle_notes
from tests.helpers import forks
from tests.helpers.outcomes import weights_of
from tests.helpers.scripts import RAINBOW_CATCH, command, only_run, parse, train


@pytest.mark.parametrize(
    ("script", "words", "idle"),
    [
        ("09_cuda_graph", "--steps 8 --adam-epsilon 1e-4 --checkpoint-env-steps 100", ""),
        ("09_cuda_graph", "--rmsprop-epsilon 1e-4 --project mine", "--project --rmsprop-epsilon"),
        ("09_cuda_graph", "--optimizer rmsprop --rmsprop-epsilon 1e-4 --adam-epsilon 1e-4", "--adam-epsilon"),
        ("09_cuda_graph", "--no-checkpoints --checkpoint_minutes=3", "--checkpoint-minutes"),
        ("09_cuda_graph", "--no-checkpoints --no-checkpoint-replay", "--checkpoint-replay"),
        ("10_rainbow", "--noisy-sigma 0.1 --atoms 21 --priority-floor 1", "--noisy-sigma --priority-floor --atoms"),
        ("10_rainbow", "--variant rainbow --noisy-sigma 0.1 --atoms 21 --priority-floor 1 --importance-decay 9", ""),
        ("10_rainbow", "--variant distributional --loss clipped", "--loss"),
        ("10_rainbow", "--target-average 0.01 --target-sync 500", "--target-sync"),
        ("11_pong_in_seconds", "--target-sync 500 --freeze-slack 0.1 --block-steps 32", "--target-sync"),
        ("11_pong_in_seconds", "--freeze-share None --freeze-slack 0.1", "--freeze-slack"),
        ("11_pong_in_seconds", "--refresh-env-steps None --refresh-turns 3", "--refresh-turns"),
        ("12_atari_100k", "--agent der --refresh-delay 0.5", "--refresh-delay"),
        ("12_atari_100k", "--agent der --final-gamma 0.99", "--final-gamma"),
        ("12_atari_100k", "--agent 100k-fast --final-gamma 0.99 --learning-rate-decay 9", ""),
        ("12_atari_100k", "--agent 100k-fast --refresh-delay 0.5 --refresh-turns 2", ""),
        ("12_atari_100k", "--agent der --reset-keep 0.2 --refresh-env-steps 9", "--refresh-env-steps --reset-keep"),
        ("12_atari_100k", "--reset-updates 9000 --reset-keep 0.2 --horizon-updates 50", "--horizon-updates"),
        ("31_sac", "--project mine --wandb", ""),
        ("31_sac", "--no-checkpoint-replay", ""),
        ("20_a2c", "--no-checkpoint-replay", "--checkpoint-replay"),
        ("33_trainer_thread", "--algorithm ppo --no-checkpoint-replay", "--checkpoint-replay"),
        ("33_trainer_thread", "--game Pendulum-v1 --no-checkpoint-replay", ""),
        ("41_ppo_ranks", "--no-checkpoints --no-checkpoint-replay", "--checkpoint-replay"),
        ("10_rainbow", "--priority-measure cross-entropy --prioritized", "--priority-measure"),
        ("10_rainbow", "--priority-measure kl --agent rainbow", ""),
        ("10_rainbow", "--noisy --epsilon-decay 50 --epsilon-delay 9", "--epsilon-decay --epsilon-delay"),
        ("11_pong_in_seconds", "--importance-decay 5000 --fresh-games 5", "--importance-decay"),
        (
            "12_atari_100k",
            "--fresh-games 3 --evaluation-games 0 --evaluation-envs 5",
            "--fresh-games --evaluation-envs",
        ),
        ("12_atari_100k", "--agent 100k-fast --prioritized --priority-measure kl", "--priority-measure"),
    ],
)
def test_what_changes_nothing_is_said(script: str, words: str, idle: str) -> None:
    notes = idle_notes(groups_of(parse(script, *words.split())), asked(words.split()))
    assert [note.split(" changes nothing here: ")[0] for note in notes] == idle.split()


@pytest.mark.parametrize(
    ("script", "words", "pictures", "idle"),
    [
        ("41_ppo_ranks", "--hidden 256 --frame-size 60", True, "--hidden"),
        ("41_ppo_ranks", "--hidden 256 --frame-size 60", None, ""),
        (
            "41_ppo_ranks",
            "--game CartPole-v1 --hidden 256 --frame-size 60 --frame-scale 64 --precision bf16 --env-threads 2",
            False,
            "--frame-size --frame-scale --precision --env-threads",
        ),
        ("31_sac", "--game Pendulum-v1 --hidden 32 --frame-size 60", False, "--frame-size"),
        ("09_cuda_graph", "--frame-size 60 --precision fp32", True, ""),
    ],
)
def test_what_is_for_pictures_or_for_vectors_alone(script: str, words: str, pictures: bool | None, idle: str) -> None:
    notes = idle_notes(groups_of(parse(script, *words.split())), asked(words.split()), pictures, pictures is False)
    assert [note.split(" changes nothing here: ")[0] for note in notes] == idle.split()


def test_it_is_said_at_the_start_and_nothing_changes(tmp_path: Path) -> None:
    words = (*RAINBOW_CATCH, "--device", "cpu", "--replay-initial", "40", "--max-env-steps", "80")
    idle = ("--atoms", "21", "--rmsprop-epsilon", "0.5", "--noise", "independent", "--importance-final", "0.5")
    done = forks.run(command("10_rainbow", tmp_path / "one", *words, *idle), timeout=120)
    assert done.returncode == 0, done.stderr
    named = [option for option in (*words, *idle) if f"{option} changes nothing here" in done.stdout]
    assert named == ["--value-min", "--value-max", "--importance-decay", *idle[::2]]
    without = train("10_rainbow", tmp_path / "other", *words)
    assert weights_of(only_run(tmp_path / "one")) == weights_of(without)
