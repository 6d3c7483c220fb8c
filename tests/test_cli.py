"""Options: presets, contradictions, help."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from fastdqn.cli import parse
from fastdqn.config import FastOptions, Options, ParallelOptions, PlayStepsOptions
from fastdqn.device import prepare_device
from fastdqn.errors import UserError

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = sorted(path.name for path in (ROOT / "experiments").glob("[0-9]*.py"))


def test_defaults_are_the_2017_posts() -> None:
    opts = parse(ParallelOptions, "", [])
    dqn = opts.dqn
    assert (opts.run.game, opts.run.stop_score, opts.steps, opts.player_device) == ("pong", 18.0, 4, "same")
    assert (dqn.replay_size, dqn.replay_initial, dqn.batch_size, dqn.target_sync) == (100_000, 10_000, 32, 1_000)
    assert (dqn.learning_rate, dqn.gamma, dqn.n_step) == (1e-4, 0.99, 1)
    assert (dqn.epsilon_start, dqn.epsilon_final, dqn.epsilon_decay) == (1.0, 0.02, 100_000)
    assert (opts.protocol.frame_skip, opts.protocol.noop_max, opts.protocol.sticky_actions) == (4, 30, 0.0)


@pytest.mark.parametrize(
    ("game", "expected"),
    [
        ("breakout-small", (300_000, 20_000, 64, 1e-4, 1_000, 0.1, 1_000_000)),
        ("breakout", (1_000_000, 50_000, 32, 2.5e-4, 10_000, 0.1, 1_000_000)),
        ("invaders", (1_000_000, 50_000, 32, 2.5e-4, 10_000, 0.1, 1_000_000)),
        ("seaquest", (1_000_000, 50_000, 32, 2.5e-4, 10_000, 0.1, 1_000_000)),
        ("ALE/Pong-v5", (100_000, 10_000, 32, 1e-4, 1_000, 0.02, 100_000)),
        ("PongNoFrameskip-v4", (100_000, 10_000, 32, 1e-4, 1_000, 0.02, 100_000)),
        ("Breakout", (1_000_000, 50_000, 32, 2.5e-4, 10_000, 0.1, 1_000_000)),
    ],
)
def test_presets(game: str, expected: tuple[float, ...]) -> None:
    for argv in (["--game", game], [f"--game={game}"]):
        dqn = parse(Options, "", argv).dqn
        got = (dqn.replay_size, dqn.replay_initial, dqn.batch_size, dqn.learning_rate, dqn.target_sync)
        assert (*got, dqn.epsilon_final, dqn.epsilon_decay) == expected


def test_a_preset_sets_what_a_script_has() -> None:
    fast = parse(FastOptions, "", ["--game", "pong-fast"])
    assert (fast.center_frames, fast.frame_scale, fast.run.stop_score) == (True, 64.0, 18.0)
    assert fast.steps > 4
    assert parse(FastOptions, "", ["--game", "pong-fast", "--steps", "2"]).steps == 2
    assert parse(ParallelOptions, "", ["--game", "pong-fast"]).steps == fast.steps
    assert parse(Options, "", ["--game", "pong-fast"]).dqn == fast.dqn
    assert parse(FastOptions, "", ["--game", "ALE/Pong-v5"]).dqn == parse(Options, "", []).dqn


def test_options_beat_the_preset_wherever_they_stand() -> None:
    opts = parse(Options, "", ["--batch-size", "7", "--game", "breakout", "--learning-rate", "1e-3"])
    assert (opts.dqn.batch_size, opts.dqn.learning_rate, opts.dqn.target_sync) == (7, 1e-3, 10_000)


def test_the_last_game_counts() -> None:
    opts = parse(Options, "", ["--game", "pong", "--game", "breakout"])
    assert (opts.run.game, opts.dqn.replay_size, opts.run.stop_score) == ("breakout", 1_000_000, 500.0)


def test_booleans_of_the_protocol_can_be_turned_off() -> None:
    protocol = parse(Options, "", ["--no-episodic-life", "--no-clip-rewards", "--full-action-set"]).protocol
    assert (protocol.episodic_life, protocol.clip_rewards, protocol.full_action_set) == (False, False, True)


@pytest.mark.parametrize(
    "argv",
    [
        "--replay-initial 200 --replay-size 100",
        "--epsilon-start 0.1 --epsilon-final 0.5",
        "--max-env-steps 100",
        "--max-env-steps 10000",
        "--steps 3 --max-env-steps 10002",
        "--max-env-steps 0",
        "--max-minutes 0",
        "--max-minutes -1",
        "--max-minutes nan",
        "--steps 0",
        "--steps 2000",
        "--batch-size 0",
        "--learning-rate 0",
        "--learning-rate nan",
        "--gamma 1.5",
        "--gamma nan",
        "--n-step 0",
        "--target-sync 0",
        "--epsilon-final -0.1",
        "--epsilon-decay -1",
        "--seed -1",
        "--threads 0",
        "--frame-skip 0",
        "--noop-max -1",
        "--frame-stack 0",
        "--sticky-actions 2",
        "--max-frames 0",
        "--cuda --device cuda:0x",
        "--cuda --device mps",
        "--cuda --device cpu",
        "--device mps",
        "--device nonsense",
        "--game pnog",
        "--log-seconds 0",
        "--train-seconds 0",
    ],
)
def test_bad_values_and_contradictions_are_one_sentence(argv: str) -> None:
    with pytest.raises(UserError) as caught:
        prepare_device(parse(PlayStepsOptions, "", argv.split()).run)
    message = str(caught.value)
    assert "\n" not in message
    assert re.search(r"[.;?]$", message)


def test_cuda_where_there_is_none_is_one_sentence() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is CUDA")
    for argv in (["--cuda"], ["--device", "cuda"], ["--device", "cuda:1"]):
        with pytest.raises(UserError, match="sees no CUDA device"):
            prepare_device(parse(Options, "", argv).run)
    assert prepare_device(parse(Options, "", ["--device", "auto"]).run).type == "cpu"


def run(*words: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, cwd=cwd, timeout=120, check=False)


@pytest.mark.parametrize("script", SCRIPTS)
def test_help_is_complete(script: str) -> None:
    done = run(f"experiments/{script}", "--help")
    assert done.returncode == 0
    for option in ("--cuda", "--device", "--game", "--seed", "--max-env-steps", "--max-minutes", "--batch-size"):
        assert option in done.stdout
    assert ("--steps INT" in done.stdout) == (script != "01_baseline.py")
    assert done.stderr == ""
    text = (ROOT / "experiments" / script).read_text()
    assert " ".join(text.split("\n\n", 1)[0].strip('"').split()[:6]) in " ".join(done.stdout.split())


@pytest.mark.parametrize("words", [("experiments/11_pong_in_seconds.py",), ("-m", "fastdqn.commands", "plot")])
@pytest.mark.parametrize("lines", [0, 1])
def test_help_for_somebody_who_leaves(words: tuple[str, ...], lines: int) -> None:
    """`--help | head`: no traceback."""
    command = [sys.executable, "-u", *words, "--help"] if lines else [sys.executable, *words, "--help"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    assert process.stderr is not None
    for _ in range(lines):
        assert process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(timeout=60) == 0


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs pseudo-terminals")
def test_the_display_on_a_terminal_of_80_columns(tmp_path: Path) -> None:
    """Every value and its name is there, whole, and the bar says what is going on."""
    words = ("--runs-dir", str(tmp_path), "--game", "tests.toys:Counter", "--replay-size", "5000", "--batch-size", "4")
    words += ("--replay-initial", "300", "--max-env-steps", "900000", "--train-seconds", "3", "--log-seconds", "0.3")
    main, terminal = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {**os.environ, "TERM": "xterm"}
    environment.pop("COLUMNS", None)
    script = [sys.executable, str(ROOT / "experiments" / "02_play_steps.py"), *words]
    process = subprocess.Popen(script, stdout=terminal, stderr=terminal, cwd=ROOT, env=environment)
    os.close(terminal)
    shown = b""
    with contextlib.suppress(OSError):  # the end of a terminal
        while chunk := os.read(main, 65536):
            shown += chunk
    assert process.wait() == 0
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    for name in ("env steps", "env steps/s", "episodes", "mean-100", "epsilon", "loss", "elapsed", "left"):
        assert name in text
    assert "filling the replay" in text
    assert re.search(r"% of the limit, training", text)
    assert re.search(r"\d+:\d\d:\d\d +\d+:\d\d:\d\d", text)  # elapsed and left, side by side and not cut off
    assert "…" not in text
    assert max(len(line.rstrip()) for line in text.replace("\r", "\n").splitlines() if "Noop" not in line[:4]) > 40


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--game", "pnog"), "did you mean pong"),
        (("--stps", "3"), "error: Unrecognized options: --stps, 3; did you mean --steps?"),
        (("--batch-size", "many"), "error: Error parsing --batch-size: invalid literal"),
        (("--player-device", "moon"), "invalid choice 'moon'"),
        (("--replay-size", "5"), "--replay-initial 10000 cannot be more than --replay-size 5"),
        (("--replay-size", "900000000"), "would fit"),
        (("--runs-dir", "/dev/null/runs"), "Cannot write to /dev/null/runs"),
    ],
)
def test_mistakes_end_scripts_without_a_traceback(words: tuple[str, ...], said: str) -> None:
    done = run("experiments/03_parallel.py", *words)
    assert done.returncode in (1, 2)
    assert said in done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--num-envs", "0"), "--num-envs must be at least 1, not 0."),
        (("--num-envs", "100000000"), "games at once need about 150000.0 GB"),
        (("--replay-size", "900000000"), "A replay of 900000000 frames needs 6358.5 GB"),
        (("--replay-size", "50", "--replay-initial", "40"), "--replay-size 50 is too small for 8 games at once"),
        (("--precision", "fp8"), "invalid choice 'fp8'"),
        (("--n-step", "20", "--num-envs", "900"), "--replay-initial 10000 is too little for 900 games at once"),
        (("--max-env-steps", "10005"), "--max-env-steps 10005 ends the run of 8 games before its first update"),
    ],
)
def test_mistakes_with_many_games_end_without_a_traceback(words: tuple[str, ...], said: str) -> None:
    done = run("experiments/09_cuda_graph.py", *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


def test_scripts_run_from_any_folder(tmp_path: Path) -> None:
    done = run(str(ROOT / "experiments" / "01_baseline.py"), "--game", "pnog", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: There is no Atari game called 'pnog'; did you mean pong")
