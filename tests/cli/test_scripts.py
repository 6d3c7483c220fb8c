"""The command line of the scripts: contradictions, help, mistakes as one sentence."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

from fastdqn import process
from fastdqn.cli import resuming, scripts
from fastdqn.errors import CheckpointError, RunError, UserError
from fastdqn.execution.devices import prepare_device
from fastdqn.options.groups import groups_of
from fastdqn.options.presets import changed
from tests.helpers import forks
from tests.helpers.scripts import ROOT, TOY_CATCH, loaded, parse, script_says
from tests.helpers.trained import TrainedRuns

SCRIPTS = sorted(path.name for path in (ROOT / "experiments").glob("[0-9]*.py"))


def test_options_beat_the_preset_wherever_they_stand() -> None:
    options = parse("01_baseline", "--batch-size", "7", "--game", "breakout", "--learning-rate", "1e-3")
    assert (options.dqn.batch_size, options.dqn.learning_rate, options.dqn.target_sync) == (7, 1e-3, 10_000)


def test_the_last_game_counts() -> None:
    options = parse("01_baseline", "--game", "pong", "--game", "breakout")
    assert (options.game.name, options.dqn.replay_size, options.run.stop_score) == ("breakout", 1_000_000, 500.0)


@pytest.mark.parametrize(("epsilon", "said"), [("0.01", True), ("0.02", False)])
def test_an_epsilon_that_leaves_no_stop_score_is_said(
    epsilon: str, said: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--epsilon-final", epsilon)
    options = parse("09_cuda_graph", *words)
    scripts._say_idle(groups_of(options), words)
    line = "no stop score: games count from an epsilon of 0.02 on, and --epsilon-final is less\n"
    assert (options.run.stop_score is None, capsys.readouterr().out == line) == (said, said)


def test_a_checkpoint_whose_options_are_another_version_s_is_one_that_cannot_be_resumed(
    runs: TrainedRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its exit code, so that a sweep takes another one, or begins the run anew."""
    monkeypatch.setattr(resuming, "options_from", mock.Mock(side_effect=UserError("The run has an option, 'x', ...")))
    done = script_says("09_cuda_graph", "--resume", str(runs["09"]))
    assert (done.returncode, done.stderr) == (CheckpointError.exit_code, "error: The run has an option, 'x', ...\n")


def test_a_script_whose_own_game_is_code_resumes(runs: TrainedRuns) -> None:
    """It runs that code already."""
    found = loaded("09_cuda_graph")
    words = ("--resume", str(runs["catch0"]))
    options = scripts.parse(found.options_type, "", words, script="09_cuda_graph", game=TOY_CATCH)
    assert options.game.name == TOY_CATCH
    with pytest.raises(UserError, match="name it too"):
        scripts.parse(found.options_type, "", words, script="09_cuda_graph")


@pytest.mark.parametrize(("script", "limit"), [("33_trainer_thread", 1098), ("31_sac", 1000)])
def test_a_run_that_ends_before_its_first_update_is_refused(script: str, limit: int) -> None:
    """33 makes its first update 1,000 env steps after the last one before --replay-initial, 31 at the next thousand."""
    words = ("--replay-initial", "100", "--steps-per-update", "1000", "--num-envs", "1")
    with pytest.raises(UserError, match="ends the run by the first update"):
        parse(script, *words, "--max-env-steps", str(limit))
    assert parse(script, *words, "--max-env-steps", str(limit + 1)).run.max_env_steps == limit + 1


def test_booleans_of_the_game_can_be_turned_off() -> None:
    game = parse("01_baseline", "--no-episodic-life", "--no-clip-rewards", "--full-action-set").game
    assert (game.episodic_life, game.clip_rewards, game.full_action_set) == (False, False, True)


def device_of(script: str, *words: str) -> torch.device:
    """Return where a script would train."""
    run = parse(script, *words).run
    return prepare_device(run.device, run.cuda, run.threads)


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
        f"--seed {2**63}",
        f"--seed {10**400}",
        "--max-minutes inf",
        "--train-seconds inf",
        "--threads 0",
        "--threads 99999999999",
        "--frame-skip 0",
        "--noop-max -1",
        "--frame-stack 0",
        "--sticky-actions 2",
        "--max-frames 0",
        "--max-frames 3000000000",
        "--n-step 20 --replay-initial 1000 --max-env-steps 1010",
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
        device_of("02_play_steps", *argv.split())
    message = str(caught.value)
    assert "\n" not in message
    assert re.search(r"[.;?]$", message)


@pytest.mark.parametrize(
    ("script", "argv", "said"),
    [
        ("09_cuda_graph", "--published", "--published has settings for PPO and soft actor-critic"),
        ("09_cuda_graph", "--stop-score nan", "--stop-score must be a finite number"),
        ("20_a2c", "--game NoSuch-v1", "and Gymnasium knows no such id"),
        ("09_cuda_graph", "--learning-rate-decay 1000", "--final-learning-rate; give both"),
        ("09_cuda_graph", "--learning-rate-restart 300000", "--final-learning-rate once more; give both"),
        (
            "11_pong_in_seconds",
            "--final-learning-rate None --learning-rate-restart 300000",
            "--final-learning-rate once more; give both",
        ),
        ("11_pong_in_seconds", "--game breakout --decay-share 0.5", "--final-learning-rate; give both"),
        ("31_sac", "--temperature 0.1 --target-entropy -2", "are of a temperature that is learnt"),
        ("31_sac", "--temperature 0.1 --initial-temperature 2", "are of a temperature that is learnt"),
        ("41_ppo_ranks", "--frame-scale inf", r"--frame-scale must be between 1e-06 and 1e\+06, not inf"),
        ("12_atari_100k", "--frame-scale 1e-39", r"--frame-scale must be between 1e-06 and 1e\+06"),
        ("09_cuda_graph", f"--max-env-steps {10**20}", rf"--max-env-steps must be at most {2**63 - 1}, not {10**20}"),
        ("01_baseline", "--max-minutes 1e308", r"^--max-minutes must be between 0 and 52596000, not 1e\+308\.$"),
        ("01_baseline", "--train-seconds 1e308", r"^--train-seconds must be between 0 and 3155760000, not 1e\+308\.$"),
        ("12_atari_100k", f"--epsilon-delay {2**63}", rf"--epsilon-delay must be at most {2**63 - 1}"),
        ("12_atari_100k", f"--reset-updates {2**63}", rf"--reset-updates must be at most {2**63 - 1}"),
        ("10_rainbow", "--distributional --value-max 1e39", r"--value-max must be between -1e\+30 and 1e\+30"),
        ("11_pong_in_seconds", f"--refresh-turns {2**63 - 1}", "--refresh-turns must be between 1 and 1000000"),
        ("08_overlap", f"--batch-size {2**63 - 1}", "--batch-size must be between 1 and 2147483648"),
        ("12_atari_100k", "--gamma 1 --first-gamma 0.9", "--first-gamma needs a --gamma below 1"),
        ("12_atari_100k", "--reset-updates 20000 --reset-until 5000", "--reset-until 5000 is before the first reset"),
        ("41_ppo_ranks", "--rank-timeout inf", "--rank-timeout must be a finite number"),
        ("41_ppo_ranks", "--rank-timeout 1e15", r"--rank-timeout must be between 1 and 1e\+09"),
        ("10_rainbow", "--prioritized --priority-floor 1e-50", "--priority-floor must be between 1e-30"),
        ("31_sac", f"--batch-size {2**40}", "--batch-size must be between 1 and 2147483647"),
    ],
)
def test_what_would_go_unnoticed_is_one_sentence(script: str, argv: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        parse(script, *argv.split())


def test_the_end_of_a_run_is_said_in_seconds_too() -> None:
    words = ("--stop-score", "None", "--max-env-steps", "None", "--train-seconds", "5")
    assert parse("02_play_steps", *words).run.describe_end() == "stops 5 s after the first update"


def test_too_little_memory_is_one_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """PyTorch's own words for it on a CPU, for real, and numpy's."""

    def of_numpy() -> None:
        raise MemoryError("Unable to allocate 7.45 TiB for an array")

    monkeypatch.setattr(sys, "argv", ["02"])
    of_torch = r"can't allocate memory: you tried to allocate 281474976710656 bytes.*"
    for fail, why in ((lambda: torch.empty(2**46), of_torch), (of_numpy, "Unable to allocate 7.45 TiB for an array")):

        def train(_: object, fail: Any = fail) -> int:
            fail()
            return 0

        with pytest.raises(SystemExit) as end:
            scripts.start(train, loaded("02_play_steps").options_type, "")
        assert end.value.code == 1
        said = capsys.readouterr().err
        sentence = rf"error: The memory of this machine did not suffice \({why}\); lower --batch-size\.\n"
        assert re.fullmatch(sentence, said)


def test_what_could_not_be_saved_after_ctrl_c_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """128 + the signal's number says that there is a checkpoint."""

    def train(_: object) -> int:
        raise RunError("Cannot write to it: No space left on device.")

    monkeypatch.setattr(process, "exit_code", lambda: 130)
    monkeypatch.setattr(sys, "argv", ["02"])
    for work, code in ((train, 1), (lambda _: 0, 130)):
        with pytest.raises(SystemExit) as end:
            scripts.start(work, loaded("02_play_steps").options_type, "")
        assert end.value.code == code


def test_cuda_where_there_is_none_is_one_sentence() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is CUDA")
    for argv in (["--cuda"], ["--device", "cuda"], ["--device", "cuda:1"]):
        with pytest.raises(UserError, match="sees no CUDA device"):
            device_of("01_baseline", *argv)
    assert device_of("01_baseline", "--device", "auto").type == "cpu"


def run(*words: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return forks.run(words, cwd)


@pytest.mark.parametrize("script", SCRIPTS)
def test_help_is_complete(script: str) -> None:
    done = script_says(script.removesuffix(".py"), "--help")
    assert done.returncode == 0
    for option in ("--cuda", "--device", "--game", "--seed", "--max-env-steps", "--max-minutes", "--batch-size"):
        assert option in done.stdout
    actor_critic = "--entropy-weight FLOAT" in done.stdout or "--target-entropy FLOAT" in done.stdout
    assert ("--steps INT" in done.stdout) == (script != "01_baseline.py" and not actor_critic)
    assert done.stderr == ""
    text = (ROOT / "experiments" / script).read_text()
    assert " ".join(text.split("\n\n", 1)[0].strip('"').split()[:6]) in " ".join(done.stdout.split())


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs pseudo-terminals")
def test_the_display_on_a_terminal_of_80_columns(tmp_path: Path) -> None:
    """Every value and its name is there, whole, and the bar says what is going on."""
    words = ("--runs-dir", str(tmp_path), "--game", "tests.helpers.toys:Counter", "--replay-size", "5000")
    words += ("--batch-size", "4", "--replay-initial", "300", "--max-env-steps", "900000")
    words += ("--train-seconds", "3", "--log-seconds", "0.3")
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
    for name in ("env steps", "env steps/s", "games", "mean-100", "epsilon", "loss", "elapsed", "left"):
        assert name in text
    assert re.search(r"0% of the limit, \d+ env steps to the first update", text)
    assert re.search(r"% of the limit, training", text)
    assert re.search(r"\d+:\d\d:\d\d +\d+:\d\d:\d\d", text)  # elapsed and left, side by side and not cut off
    assert "…" not in text
    assert max(len(line.rstrip()) for line in text.replace("\r", "\n").splitlines() if "Noop" not in line[:4]) > 40


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--game", "pnog"), "did you mean pong"),
        (("--stps", "3"), "error: There is no option --stps; did you mean --steps?"),
        (("--batch-size", "many"), "error: --batch-size takes a whole number, not many; --help lists all options."),
        (("--max-env-steps=1e6",), "--max-env-steps takes a whole number (1000000) or None, not 1e6"),
        (("--max-minutes", "soon"), "--max-minutes takes a number or None, not soon"),
        (("--learning-rate", "--cuda"), "--learning-rate needs a value"),
        (("--seed", "1e999"), "--seed takes a whole number, not 1e999"),
        (("--player-device", "moon"), "--player-device takes one of same, cpu, all, not moon"),
        (("--replay-size", "5"), "--replay-initial 10000 cannot be more than --replay-size 5"),
        (("--replay-size", "900000000"), "would fit"),
        (("--game", "nowhere:make"), "error: The environment 'nowhere:make' cannot be loaded: ModuleNotFoundError"),
        (("--game", "gymnasium.envs.classic_control:CartPoleEnv"), "shows Box of float32 (4,), but an agent here"),
        (("--game", "gymnasium.envs.classic_control:PendulumEnv"), "action space Box of float32 (1,), but an agent"),
        (("--game", "tests.helpers.own:Breaks"), "failed in its constructor: TypeError: "),
        (("--runs-dir", "/dev/null/runs"), "Cannot write to /dev/null/runs: a file has its name"),
        (("--runs-dir", "README.md"), "Cannot write to README.md: a file has its name"),
    ],
)
def test_mistakes_end_scripts_without_a_traceback(words: tuple[str, ...], said: str) -> None:
    done = script_says("03_parallel", *words)
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
        (("--precision", "fp8"), "--precision takes one of auto, fp32, bf16, not fp8"),
        (("--n-step", "20", "--num-envs", "900"), "--replay-initial 10000 is too little for 900 games at once"),
        (("--max-env-steps", "10007"), "--max-env-steps 10007 ends the run of 8 games by its first update"),
    ],
)
def test_mistakes_with_many_games_end_without_a_traceback(words: tuple[str, ...], said: str) -> None:
    done = script_says("09_cuda_graph", *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


def test_a_terminal_without_special_letters_is_told_the_same() -> None:
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    words = [sys.executable, "experiments/01_baseline.py", "--batch-size", "many"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, env=ascii_only, timeout=120, check=False)
    assert done.stderr.startswith("error: --batch-size takes a whole number, not many")
    assert "---" not in done.stderr


def test_scripts_run_from_any_folder(tmp_path: Path) -> None:
    assert run(str(ROOT / "experiments" / "02_play_steps.py"), "--help", cwd=tmp_path).returncode == 0
    done = run(str(ROOT / "experiments" / "01_baseline.py"), "--game", "pnog", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: There is no Atari game called 'pnog'; did you mean pong")


def test_a_file_is_no_reason_to_connect_to_a_cluster(runs: TrainedRuns, tmp_path: Path) -> None:
    run = Path(shutil.copytree(runs["09"], tmp_path / "run"))
    saved = changed(parse("41_ppo_ranks"), {"ranks": {"engine": "ray", "engine_address": "ray://somebody:10001"}})
    refused = r"was started by ray at ray://somebody:10001\. Its files are no reason to connect there"
    with pytest.raises(UserError, match=refused):
        resuming._refuse_address(run, saved, ["--resume", str(run), "--engine", "ray"])
    resuming._refuse_address(run, saved, ["--engine-address", "None", "--engine", "None"])
    resuming._refuse_address(run, parse("41_ppo_ranks", "--engine", "ray"), [])
    resuming._refuse_address(run, parse("09_cuda_graph"), [])
