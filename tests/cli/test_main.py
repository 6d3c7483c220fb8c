"""The command `fastdqn`: evaluation, plots, tables, and every mistake as one sentence."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.helpers.folders import make_folder
from tests.helpers.scripts import TOY_CATCH, fastdqn, fastdqn_says, with_root
from tests.helpers.trained import TrainedRuns

TRUSTED = ("--game", TOY_CATCH)


def test_help_imports_nothing_large() -> None:
    """In a process of its own; so it comes at once."""
    code = """
import atexit, sys
atexit.register(lambda: print("imported:", *{"torch", "numpy", "matplotlib", "ale_py", "cv2"} & set(sys.modules)))
sys.argv = ["fastdqn", "--help"]
from fastdqn.cli.main import main
sys.exit(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=with_root())
    assert done.stdout.splitlines()[-1] == "imported:"
    assert "usage: fastdqn" in done.stdout


def test_help_is_quick_and_complete() -> None:
    fastest = 99.0
    for _ in range(3):
        begin = time.perf_counter()
        done = fastdqn("--help")
        fastest = min(fastest, time.perf_counter() - begin)
    assert fastest < 1.5  # on one busy core; LOG.md has the figure of a quiet one
    for command in ("train", "evaluate", "watch", "plot", "compare", "games"):
        assert f"\n  {command} " in done.stdout
    assert "\n    fastdqn games\n" in done.stdout
    for command, option in (("evaluate", "--protocol"), ("watch", "--values"), ("plot", "--what"), ("games", "NAME")):
        said = fastdqn(command, "--help")
        assert said.returncode == 0
        assert option.lower() in said.stdout.lower()


@pytest.mark.parametrize(
    "words", [("train",), ("games",), ("evaluate", "demo", "--games", "1", "--max-minutes", "0.02")]
)
def test_nobody_reads_what_is_printed(tmp_path: Path, words: tuple[str, ...]) -> None:
    """As `fastdqn train | head -1`, whose reader ends at once."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "fastdqn.cli.main", *words]
    with os.fdopen(writer, "wb") as out:
        done = subprocess.run(
            command,
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env=with_root(),
            timeout=120,
            check=False,
        )
    assert (done.returncode, done.stderr) == (int("evaluate" in words), "")  # in a second no game has ended


def test_a_folder_of_the_same_name_does_not_hide_what_is_installed(tmp_path: Path) -> None:
    """As the checkout's, where `python -m fastdqn` is said in the folder that it was cloned into."""
    (tmp_path / "fastdqn").mkdir()
    command = [sys.executable, "-m", "fastdqn", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("fastdqn ")


def test_evaluate_says_and_writes_what_it_found(runs: TrainedRuns) -> None:
    done = fastdqn("evaluate", str(runs["09"]), "--games", "3", "--num-envs", "2")
    assert done.returncode == 0, done.stderr
    assert "3 games" in done.stdout
    assert "from random play to a person" in done.stdout
    said = json.loads((runs["09"] / "evaluation-training.json").read_text())
    assert (said["games"], said["protocol"], len(said["scores"])) == (3, "training", 3)
    assert said["limits"] == {"games": 3, "env_steps": None, "minutes": None}
    nothing = fastdqn_says("evaluate", str(runs["09"]), "--protocol", "nature", "--max-minutes", "0.00001")
    assert (nothing.returncode, "no game has finished" in nothing.stdout) == (1, True)


def test_plot_and_compare(runs: TrainedRuns, tmp_path: Path) -> None:
    folders = [str(runs[name]) for name in ("catch0", "catch1")]
    for what in ("score", "speed"):
        done = fastdqn_says("plot", *folders, "--out", str(tmp_path / f"{what}.png"), "--what", what)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / f"{what}.png").read_bytes()[:4] == b"\x89PNG"
    assert fastdqn_says("plot", *folders, "--out", str(tmp_path / "x.svg"), "--each").returncode == 0
    table = fastdqn_says("compare", *folders).stdout
    assert "mean of 2 runs" in table
    assert table.count("max-env-steps") == 2


def test_plot_says_which_runs_it_leaves_out(tmp_path: Path) -> None:
    kept, older = make_folder(tmp_path / "kept"), make_folder(tmp_path / "older", time="2020-01-01T00:00:00+00:00")
    make_folder(tmp_path / "empty", seed=1, scores=())
    done = fastdqn_says("plot", str(tmp_path), "--out", str(tmp_path / "x.png"))
    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        f"left out: No game has finished in {tmp_path / 'empty'}.",
        f"left out: {older} has seed 0, as the newer {kept} has.",
    ]
    assert fastdqn_says("plot", str(tmp_path), "--out", str(tmp_path / "x.png"), "--each").stderr.count("\n") == 1


def test_speeds_need_no_finished_game(tmp_path: Path) -> None:
    run = make_folder(tmp_path / "run", scores=())
    (run / "speed.jsonl").write_text('{"elapsed": 1.0, "env_steps_per_s": 3.0}\n')
    words = ("--out", str(tmp_path / "x.png"), "--what", "speed")
    done = fastdqn_says("plot", str(run), *words)
    assert (done.returncode, done.stderr) == (0, "")
    begun = make_folder(tmp_path / "begun", seed=1, scores=())
    done = fastdqn_says("plot", str(run), str(begun), *words)
    assert (done.returncode, done.stderr.startswith(f"left out: {begun} has no speeds")) == (0, True)
    assert fastdqn_says("plot", str(begun), *words).returncode == 2


@pytest.fixture(scope="module")
def series(runs: TrainedRuns, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a series: two runs that can be evaluated, and one that cannot."""
    folder = tmp_path_factory.mktemp("runs") / "series"
    for seed, name in enumerate(("catch0", "catch1")):
        shutil.copytree(runs[name], folder / f"dqn-{seed}" / runs[name].name)
    broken = folder / "dqn-2" / "broken"
    shutil.copytree(runs["catch1"], broken)
    (broken / "weights.safetensors").write_bytes(b"no weights")
    return folder


def test_evaluate_takes_a_series(series: Path) -> None:
    done = fastdqn_says("evaluate", str(series), "--games", "2", *TRUSTED)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.partition(": ")[0] for line in lines[1:3]] == [str(path.parent) for path in good_runs(series)]
    assert all("2 games" in line for line in lines[1:3])
    assert lines[-2].strip() == "Catch"
    assert lines[-1].split()[:2] == ["09", "2"]
    assert done.stderr.startswith(f"left out: The weights of the run {series / 'dqn-2' / 'broken'} cannot be read")
    assert all(json.loads(path.read_text())["games"] == 2 for path in good_runs(series))


def good_runs(series: Path) -> list[Path]:
    return sorted(series.glob("*/*/evaluation-training.json"))


def test_ctrl_c_keeps_the_evaluations_that_have_finished(series: Path, tmp_path: Path) -> None:
    """The second evaluation would take for ever; it is interrupted as soon as the first has left its file."""
    first, second, _ = sorted(series.glob("*/*"))
    (first / "evaluation-training.json").unlink(missing_ok=True)
    program = (
        "import os, signal, sys, threading, time, pathlib\n"
        "from fastdqn.cli import evaluate as command\n"
        "from fastdqn.cli.main import main\n"
        "original = command._evaluated\n"
        "def evaluated(agent, run, options):\n"
        "    if 'dqn-1' in str(run):\n"
        "        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
        "        options = command.dataclasses.replace(options, episodes=10**6)\n"
        "    return original(agent, run, options)\n"
        "command._evaluated = evaluated\n"
        f"sys.argv = ['fastdqn', 'evaluate', {str(series)!r}, '--games', '2', *{TRUSTED}]\n"
        "sys.exit(main())\n"
    )
    environment = with_root()
    command = [sys.executable, "-c", program]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=120, check=False
    )
    assert done.returncode == 130, done.stderr
    assert (first / "evaluation-training.json").exists()
    assert (second / "evaluation-training-stopped.json").exists()
    assert done.stdout.splitlines()[-1].split()[:2] == ["09", "1"]
    assert "Traceback" not in done.stderr


def test_evaluate_fails_where_no_run_can_be_evaluated(series: Path) -> None:
    done = fastdqn_says("evaluate", str(series), "--protocol", "nature", *TRUSTED)
    assert done.returncode == 2
    assert done.stderr.count("left out: ") == 3
    assert done.stderr.splitlines()[-1] == "error: None of these runs can be evaluated."
    mistake = fastdqn_says("evaluate", str(series), "moon")
    assert (mistake.returncode, mistake.stdout) == (2, "")
    assert mistake.stderr == "error: moon is not the folder of a run: there is no such folder.\n"


def test_latest_is_the_newest_in_runs_dir(series: Path, tmp_path: Path) -> None:
    newest = sorted(series.glob("*/*"))[0]
    os.utime(newest / "config.json", (2e9, 2e9))
    done = fastdqn_says("evaluate", "latest", "--runs-dir", str(series.parent), "--games", "1", *TRUSTED)
    assert f"{newest}: 1 game" in done.stdout
    for command in ("compare", "plot", "watch"):
        out = ["--out", str(tmp_path / ("x.gif" if command == "watch" else "x.png"))] * (command != "compare")
        missing = fastdqn_says(command, "latest", "--runs-dir", str(tmp_path / "none"), *out)
        assert missing.stderr.startswith(f"error: There is no run in the folder {tmp_path / 'none'}")
        if command != "watch":  # which plays Atari's games alone
            done = fastdqn_says(command, "latest", "--runs-dir", str(series.parent), *out)
            assert done.returncode == 0, done.stderr


def test_the_command_imports_only_what_it_needs() -> None:
    program = (
        "import sys, fastdqn.cli.main; print(sorted({'torch', 'numpy', 'matplotlib', 'ale_py'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=with_root(),
        check=True,
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("name", ["montezuma", pytest.param("", marks=pytest.mark.slow)])
def test_games_lists_them(name: str) -> None:
    done = fastdqn_says("games", name)
    assert "montezuma_revenge" in done.stdout
    assert "…" not in done.stdout  # a pipe has room for whole names
    done = fastdqn_says("games", "invaders")
    assert "space_invaders" in done.stdout
    assert "1,668.7" in done.stdout
    assert " 6 " in done.stdout
    for known in ("PongNoFrameskip-v4", "ALE/Pong-v5"):  # names that --game takes
        assert " pong " in fastdqn_says("games", known).stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("evaluate", "moon"), "moon is not the folder of a run"),
        (("evaluate", "latest"), "no run in the folder runs"),
        (
            ("evaluate", "RUN", "--protocol", "moon"),
            "--protocol takes one of training, nature, nature-steps, machado, atari-100k, not moon",
        ),
        (("evaluate", "RUN", "--games", "0"), "--games must be at least 1"),
        (("evaluate", "RUN", "--games", "3", "--env-steps", "3"), "contradict each other"),
        (("evaluate", "RUN", "--epsilon", "2"), "--epsilon must be between 0 and 1"),
        (("evaluate", "RUN", "--seed", "-1"), "--seed must be at least 0"),
        (("evaluate", "CATCH", "--protocol", "nature", *TRUSTED), "has rules of its own"),
        (("evaluate", "CATCH"), f"if you trust it, name it too: --game {TOY_CATCH}"),
        (("watch", "CATCH"), f"if you trust it, name it too: --game {TOY_CATCH}"),
        (("evaluate", "SHAPELESS"), "shapeless is damaged"),
        (("evaluate", "GROUPLESS"), "groupless is damaged"),
        (("evaluate", "TYPELESS"), "The run's options are damaged: 'gamma' cannot be 'fast'"),
        (("plot", "SHAPELESS"), "shapeless is damaged"),
        (("watch", "RUN", "--seed", "-1"), "--seed must be at least 0"),
        (("evaluate", "RUN", "--device", "moon"), "--device moon is not a device"),
        (("evaluate", "RUN", "--protocol", "machado"), "has 18 actions"),
        (("evaluate", "BROKEN"), "no file of weights"),
        (("evaluate", "EMPTY"), "is not the folder of a run"),
        (("watch", "RUN", "--out", "game.avi"), "must end in .mp4 or .gif"),
        (("watch", "RUN", "--out", "no/such/folder/game.mp4"), "there is no folder"),
        (("watch", "RUN", "--out", "FOLDER.gif"), "folder.gif cannot be written: it is a folder"),
        (("compare", "a" * 300), "File name too long"),
        (("evaluate", "a" * 300), "File name too long"),
        (("report", "a" * 300), "File name too long"),
        (("sweep", "12", "--into", "FILE"), "file is a file; name a folder"),
        (("report", "DAMAGED"), "(left out: "),
        (("plot",), "at least one run"),
        (("evaluate",), "at least one run"),
        (("compare",), "at least one run"),
        (("plot", "RUN", "--what", "speed", "--over", "env-steps"), "Speeds are drawn over minutes"),
        (("plot", "RUN", "--mean-of", "0"), "--mean-of must be at least 1"),
        (("plot", "RUN", "--games", "0"), "--mean-of must be at least 1"),  # as in 0.1.0
        (("evaluate", "RUN", "--episodes=0"), "--games must be at least 1"),  # as in 0.1.0
        (("evaluate", "RUN", "--episodes", "x"), "--games takes a whole number or None, not x"),
        (("watch", "moon"), "moon is not the folder of a run"),
        (("compare", "EMPTY"), "is not the folder of a run"),
        (("plot", "moon"), "moon is not the folder of a run"),
        (("plot", "EMPTY"), "is not the folder of a run"),
        (("plot", "RUN", "--out", "x.jpg"), "must end in .png, .svg or .pdf"),
        (("plot", "RUN", "--out", "no/such/folder/x.png"), "cannot be written"),
        (("plot", "RUN", "--out"), "--out needs a value"),
        (("compare", "moon"), "moon is not the folder of a run"),
        (("compare", "demo"), "has no record of the games that were played while it learnt"),
        (("games", "moon"), "There is no game with 'moon'"),
        (("dance",), "dance"),
        (("push",), "fastdqn push needs RUN and TARGET; --help"),
        (("watch",), "fastdqn watch needs RUN; --help"),
        (("watch", "RUN", "--max-env-steps", "0"), "--max-env-steps must be at least 1, not 0"),
        (("sweep", "12", "--into", "new", "--cores", "999"), "--cores 999 is more than the "),
        (("sweep", "12", "--into", "new", "--max-env-steps", "5"), "--help lists all options. Options of the script"),
        (("pull", "RUN", "--into", "new", "--game", "breakout"), "plays pong, not breakout"),
    ],
)
def test_mistakes_are_one_sentence(runs: TrainedRuns, tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    done = fastdqn_says(*(place_of(word, words[0], runs, tmp_path) for word in words), cwd=tmp_path)
    assert done.returncode in (1, 2)
    assert said in done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


def place_of(word: str, command: str, runs: TrainedRuns, folder: Path) -> str:
    """Return the path that a word in capitals stands for, made in `folder` if need be; every other word as it is."""
    if word == "RUN":
        return str(runs["catch0" if command == "plot" else "09"])
    if word == "CATCH":
        return str(runs["catch0"])
    made = folder / word.lower()
    if word in ("EMPTY", "FOLDER.gif"):
        made.mkdir()
    elif word == "FILE":
        made.touch()
    elif word == "DAMAGED":
        (made / "results").mkdir(parents=True)
        (made / "results" / "pong-der-0.json").write_text("{")
    elif word == "BROKEN":
        shutil.copytree(runs["09"], made)
        weights = made / "weights.safetensors"
        weights.write_bytes(weights.read_bytes()[:1000])
    elif word in ("SHAPELESS", "GROUPLESS", "TYPELESS"):
        shutil.copytree(runs["catch0"], made)
        config = made / "config.json"
        damage = {"SHAPELESS": {"run": 3}, "GROUPLESS": {"dqn": 3}, "TYPELESS": {"dqn": {"gamma": "fast"}}}[word]
        config.write_text(json.dumps({**json.loads(config.read_text()), **damage}))
    else:
        return word
    return str(made)


def test_a_score_that_cannot_be_written_is_said(series: Path, tmp_path: Path) -> None:
    """And the next run is evaluated."""
    folder = tmp_path / "series"
    shutil.copytree(series, folder, ignore=shutil.ignore_patterns("evaluation-*", "broken"))
    first, second = sorted(path.parent for path in folder.glob("*/*/weights.safetensors"))
    (first / "evaluation-training.json").mkdir()
    done = fastdqn_says("evaluate", str(folder), "--games", "2", *TRUSTED)
    assert done.returncode == 1
    assert done.stderr == f"error: Cannot write {first / 'evaluation-training.json'}: Is a directory.\n"
    said = done.stdout.splitlines()
    assert [line.partition(": ")[0] for line in said[1:3]] == [str(first), str(second)]
    assert all("2 games" in line for line in said[1:3])
