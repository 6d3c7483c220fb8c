"""41 and 42 over ranks with Ctrl-C, kill -9, exceptions and hangs: all ranks end within 10 s, one says why, and what is
left behind can be resumed.

The slow ones are the same for other ranks and scripts, and what takes longer.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path

import psutil
import pytest

from fastdqn.execution.exchange import dist
from fastdqn.runs.checkpoint import newest
from tests.helpers import forks
from tests.helpers.marks import posix_signals
from tests.helpers.ranks import environment
from tests.helpers.scripts import CATCH, ROOT, Started, command, only_run, records, started, summary

pytestmark = posix_signals

ENDLESS = ("--max-env-steps", "None", "--stop-score", "None", "--threads", "1", "--checkpoint-env-steps", "100")
SMALL = ("--num-envs", "2", "--rollout-steps", "16", "--batch-size", "16", "--epochs", "2")
PPO = ("--game", "CartPole-v1", *SMALL, *ENDLESS)
FAULTY = ("--game", "tests.helpers.toys:Faulty", *SMALL, *ENDLESS)
SAC = ("--game", "Pendulum-v1", "--batch-size", "16", "--replay-initial", "20", *ENDLESS)
TWO = ("--processes", "2")
P41, P42 = ("41_ppo_ranks", (*PPO, *TWO)), ("42_sac_ranks", (*SAC, *TWO))
P09 = ("09_cuda_graph", (*CATCH, *ENDLESS, *TWO, "--num-envs", "4"))
OTHER = pytest.param(*P42, marks=pytest.mark.slow)
GLOO, WANDER = (str(ROOT / "tests" / "helpers" / name) for name in ("gloo_ranks.py", "wander_ranks.py"))
"""41 whose ranks exchange as those of several machines do, and 42 where games end by chance."""
BY_GLOO = pytest.param(GLOO, P41[1], id="by_gloo")
WAYS = ["41_ppo_ranks", pytest.param(GLOO, id="by_gloo")]


def a_while(run: Started) -> None:
    """Wait until there is a checkpoint to keep."""
    run.wait_until(lambda: run.updates() > 3 and any(only_run(run.folder).glob("checkpoints/*.checkpoint")))


def pressed(run: Started, presses: int, seconds: float = 0.05) -> float:
    """Press Ctrl-C so often, with so many seconds in between; return when that was."""
    run.ctrl_c()
    if presses == 2:
        time.sleep(seconds)
        if run.process.poll() is None:
            run.ctrl_c()
    return time.monotonic()


@pytest.mark.parametrize("presses", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("script", "words"), [P41, OTHER, pytest.param(*BY_GLOO.values, marks=pytest.mark.slow, id="by_gloo")]
)
def test_ctrl_c(tmp_path: Path, script: str, words: tuple[str, ...], presses: int) -> None:
    with started(script, tmp_path, *words) as run:
        a_while(run)
        pressed(run, presses)
        code, out, err = run.finish()
    assert code == 130
    assert "Traceback" not in out + err
    if presses == 1:
        assert summary(only_run(tmp_path))["reason"] == "interrupted"
        assert "(interrupted) after" in out


def _as_without_torchrun(rank: int, port: int) -> dict[str, str]:
    """Return the environment of a rank that somebody has started by hand: rank 0 keeps the store itself."""
    return {**environment(rank, port), "TORCHELASTIC_USE_AGENT_STORE": "False"}


def test_ctrl_c_while_rank_0_waits_for_the_others(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with started("41_ppo_ranks", tmp_path, *PPO, env=_as_without_torchrun(0, port)) as run:
        run.wait_until(lambda: socket.create_connection(("127.0.0.1", port), timeout=1.0).close() is None)
        run.ctrl_c()
        code, out, err = run.finish()
    assert (code, out) == (130, "")
    assert "Interrupted." in err
    assert "frame #" not in err


def test_ctrl_c_while_another_waits_for_rank_0(tmp_path: Path) -> None:
    """Somebody answers at its port, but is no rank 0: PyTorch then waits for what it says."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        env = _as_without_torchrun(1, silent.getsockname()[1])
        with started("41_ppo_ranks", tmp_path, *PPO, env=env) as run:
            silent.settimeout(60.0)
            look, _ = silent.accept()
            pytorch, _ = silent.accept()
            run.ctrl_c()
            code, out, err = run.finish()
            look.close()
            pytorch.close()
    assert (code, out) == (130, "")
    assert "Interrupted." in err
    assert "frame #" not in err


@pytest.mark.parametrize(("script", "words"), [P41, OTHER, pytest.param(GLOO, P41[1], marks=pytest.mark.slow)])
def test_kill_9_of_a_rank(tmp_path: Path, script: str, words: tuple[str, ...]) -> None:
    with started(script, tmp_path, *words) as run:
        a_while(run)
        run.players()[0].kill()
        code, out, err = run.finish()
    assert code == 1
    assert ("exchanged by Gloo" in out) == (script == GLOO)
    assert re.fullmatch(r"error: Rank 1 \(process \d+ on .+\) is gone: it was killed, or its machine was\.\n", err)
    assert summary(only_run(tmp_path))["reason"] == "failed"
    assert list(only_run(tmp_path).glob("checkpoints/*.checkpoint"))


@pytest.mark.parametrize("fault", ["kill", *(pytest.param(one, marks=pytest.mark.slow) for one in ("stop", "raise"))])
def test_all_others_leave_with_1_in_10_seconds(tmp_path: Path, fault: str) -> None:
    """Three ranks that this test has started itself, as torchrun does, so that it hears the exit code of each."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with contextlib.ExitStack() as stack:
        ranks: list[Started] = []
        for rank in range(3):
            there = {**environment(rank, store.port, 3), "TOY_RANK": "1" if fault == "raise" else "none"}
            ranks.append(stack.enter_context(started("41_ppo_ranks", tmp_path, *FAULTY, env=there)))
        first, lost, last = ranks
        if fault == "raise":
            assert lost.process.wait(120.0) == 1
        else:
            a_while(first)
            os.kill(lost.process.pid, signal.SIGKILL if fault == "kill" else signal.SIGSTOP)
        end = time.monotonic() + 10.0
        said = [one.finish(max(0.1, end - time.monotonic())) for one in (first, last)]
    assert [code for code, *_ in said] == [1, 1]
    assert said[0][2].startswith("error: Rank 1 ")
    assert "Traceback" not in "".join(out + err for _, out, err in said)


@pytest.mark.slow
@pytest.mark.parametrize("presses", [0, 1])
def test_kill_9_or_ctrl_c_while_ranks_begin(tmp_path: Path, presses: int) -> None:
    with started("41_ppo_ranks", tmp_path, *PPO, *TWO) as run:
        run.wait_until(lambda: len(run.players()) == 1)
        if presses:
            pressed(run, presses)
        else:
            run.players()[0].kill()
        code, _, err = run.finish()
    assert code == (130 if presses else 1)
    assert ("Interrupted." if presses else "error: The rank 1 process was killed by SIGKILL.\n") in err
    assert "Traceback" not in err
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_second_of_three_is_named(tmp_path: Path) -> None:
    with started("41_ppo_ranks", tmp_path, *PPO, "--processes", "3") as run:
        a_while(run)
        ranks = sorted(run.players(), key=lambda one: one.pid)
        ranks[1].kill()
        code, _, err = run.finish()
    assert code == 1
    assert err.startswith(f"error: Rank 2 (process {ranks[1].pid} on ")


@pytest.mark.slow
def test_kill_9_of_rank_0(tmp_path: Path) -> None:
    with started("41_ppo_ranks", tmp_path, *PPO, *TWO) as run:
        a_while(run)
        run.process.kill()
        code, _, _ = run.finish()
    assert code == -signal.SIGKILL


@pytest.mark.slow
@pytest.mark.parametrize(("script", "words"), [P41, P42, BY_GLOO])
def test_a_rank_that_is_stopped(tmp_path: Path, script: str, words: tuple[str, ...]) -> None:
    with started(script, tmp_path, *words) as run:
        a_while(run)
        run.players()[0].suspend()
        code, _, err = run.finish()
    assert code == 1
    assert re.fullmatch(r"error: Rank 1 \(.+\) has been silent for 5 seconds: it was stopped, or cut off\.\n", err)


@pytest.mark.slow
@pytest.mark.parametrize("presses", [1, 2])
@pytest.mark.parametrize("script", WAYS)
def test_ctrl_c_while_a_rank_is_stopped(tmp_path: Path, script: str, presses: int) -> None:
    """The checkpoint of the end is left out: without that rank it would not be of one moment."""
    with started(script, tmp_path, *PPO, *TWO) as run:
        a_while(run)
        run.players()[0].suspend()
        time.sleep(1.0)
        began = pressed(run, presses, 0.5)
        code, _, _ = run.finish()
    assert code == 130
    if presses == 2:
        assert time.monotonic() - began < 2.0
    else:
        assert summary(only_run(tmp_path))["reason"] == "interrupted"


@pytest.mark.slow
@pytest.mark.parametrize("rank", ["0", "1"])
def test_an_exception_in_a_ranks_game(tmp_path: Path, rank: str) -> None:
    with started("41_ppo_ranks", tmp_path, *FAULTY, *TWO, env={"TOY_RANK": rank}) as run:
        code, _, err = run.finish(120)
    assert code == 1
    named = "Rank 1 failed: " if rank == "1" else ""
    said = "tests.helpers.toys:Faulty failed in step: RuntimeError: the toy emulator broke as it was told to (toys.py, "
    assert err.startswith(f"error: {named}The environment {said}line ")
    assert err.count("\n") == 1
    assert summary(only_run(tmp_path))["reason"] == "failed"


@pytest.mark.slow
@pytest.mark.parametrize("rank", ["0", "1"])
@pytest.mark.parametrize("script", WAYS)
def test_a_rank_that_hangs(tmp_path: Path, script: str, rank: str) -> None:
    """It lives, and so is not silent; but it does not come. Rank 0 hangs deaf: it is ended where it stands."""
    words = (*FAULTY, *TWO, "--rank-timeout", "8")
    with started(script, tmp_path, *words, env={"TOY_FAULT": "hang", "TOY_RANK": rank}) as run:
        code, _, err = run.finish(120)
    assert code == 1
    assert re.search(
        rf"error: (Rank 1 failed: )?Rank {rank} \(.+\) did not come for 8 seconds \(--rank-timeout\) and counts as h",
        err,
    )


@pytest.mark.parametrize("what", ["moment", pytest.param("weight", marks=pytest.mark.slow)])
def test_a_rank_that_drifts_by_one_bit_is_found_at_the_next_record(tmp_path: Path, what: str) -> None:
    """With so small a learning rate that weights stay as they are: of a moment nothing else is seen."""
    words = (*FAULTY, *TWO, "--num-envs", "1", "--learning-rate", "1e-30", "--no-checkpoints")
    fault = {"TOY_FAULT": what, "TOY_RANK": "1", "TOY_FRAME": "50"}
    with started("41_ppo_ranks", tmp_path, *words, env=fault) as run:
        code, _, err = run.finish(120)
    assert code == 1
    said = "Rank 1 no longer has the weights of rank 0, or the moments of its optimisers, although all step by the "
    assert err.removeprefix("error: ").removeprefix("Rank 1 failed: ") == f"{said}same gradients; the run ends.\n"
    assert summary(only_run(tmp_path))["reason"] == "failed"


@pytest.mark.slow
@pytest.mark.parametrize(("script", "words"), [P41, P42, P09, BY_GLOO])
def test_a_run_of_two_is_resumed_by_two_and_by_nobody_else(tmp_path: Path, script: str, words: tuple[str, ...]) -> None:
    """Bit for bit: the games, the replays, the noise and the order of both ranks continue where they were.

    What was begun by Gloo goes on as the script itself exchanges.
    """
    own = P41[0] if script == GLOO else script
    words = (*words, "--checkpoint-env-steps", "1000000")
    words += ("--learning-rate-decay", "1000") if own == P41[0] else ()
    enough = ("500", "240") if script != P09[0] else ("900", "500")

    def trained(name: str, folder: Path, *more: str) -> Path:
        done = forks.run(command(name, folder, *more))
        assert done.returncode == 0, done.stderr
        return only_run(folder)

    whole = trained(own, tmp_path / "whole", *words, "--max-env-steps", enough[0])
    part = trained(script, tmp_path / "part", *words, "--max-env-steps", enough[1])
    trained(own, tmp_path / "part", "--resume", str(part), *words[:2], "--max-env-steps", enough[0])
    assert (whole / "weights.safetensors").read_bytes() == (part / "weights.safetensors").read_bytes()
    scores = [[one["score"] for one in records(run, "episodes.jsonl")] for run in (whole, part)]
    assert scores[0] == scores[1] != []
    more = ("--processes", "3", "--max-env-steps", "1900")
    again = command(own, tmp_path / "part", "--resume", str(part), *words[:2], *more)
    refused = forks.run(again)
    assert refused.returncode == 2
    assert refused.stderr.startswith("error: --processes 3 contradicts the checkpoint ")
    assert refused.stderr.endswith(", which has --processes 2; it cannot change in the middle of a run.\n")


@pytest.mark.slow
@pytest.mark.parametrize("script", ["41_ppo_ranks", pytest.param(WANDER, id="42")])
def test_resets_that_differ_hold_nobody_up(tmp_path: Path, script: str) -> None:
    """2,000 rounds of games that end at other times in each rank: all exchanges meet, and weights stay equal.

    A rank that counted its own env steps alone would make other updates than the other one.
    """
    if script == WANDER:
        words = (*RARELY, *FEW, "--max-env-steps", "4000")
    else:
        rollouts = ("--num-envs", "1", "--rollout-steps", "4", "--epochs", "1")
        words = (*PPO, *RARELY, *rollouts, "--max-env-steps", "15000")
    done = forks.run(command(script, tmp_path, *words), timeout=280.0)
    assert done.returncode == 0, done.stderr
    said = summary(only_run(tmp_path))
    assert said["updates"] >= 1_900
    assert said["episodes"] > 300


RARELY = (*TWO, "--checkpoint-env-steps", "1000000", "--batch-size", "2", "--learning-rate", "1e-6", "--threads", "1")
FEW = ("--replay-initial", "20", "--hidden", "8", "--stop-score", "None")


@pytest.mark.slow
def test_the_control_that_counts_its_own_env_steps_ends(tmp_path: Path) -> None:
    """A rank whose game was reset has no update due, and the other waits for it, or hears of something else."""
    words = (*RARELY, *FEW, "--max-env-steps", "4000", "--rank-timeout", "5")
    done = forks.run(command(WANDER, tmp_path, *words), env={**os.environ, "TOY_OWN": "1"}, timeout=280.0)
    assert done.returncode == 1, done.stdout
    assert summary(only_run(tmp_path))["updates"] < 200


@pytest.mark.slow
def test_torchrun_joins(tmp_path: Path) -> None:
    words = [*PPO, "--max-env-steps", "400"]
    script = command("41_ppo_ranks", tmp_path, *words)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *script]
    done = subprocess.run(torchrun, capture_output=True, text=True, cwd=ROOT, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert "2 processes learn together" in done.stdout
    assert done.stdout.count("ended (max-env-steps) after") == 1  # rank 0 alone says so
    assert summary(only_run(tmp_path))["env_steps"] >= 400


@contextlib.contextmanager
def under_torchrun(folder: Path) -> Generator[subprocess.Popen[str]]:
    """Yield the agent of torchrun whose two ranks of 41 have written a checkpoint; kill what is left at the end."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    words = [*torchrun, *command("41_ppo_ranks", folder, *PPO)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as agent:
        try:
            end = time.monotonic() + 120
            while not any(folder.glob("*/checkpoints/*.checkpoint")):
                assert time.monotonic() < end
                time.sleep(0.1)
            yield agent
        finally:
            for one in psutil.Process(agent.pid).children(recursive=True) if agent.poll() is None else []:
                one.kill()
            agent.kill()


@pytest.mark.slow
def test_torchrun_that_is_told_to_stop(tmp_path: Path) -> None:
    """Its agent hands the signal to every rank: they finish their round, and rank 0 writes a checkpoint of now."""
    with under_torchrun(tmp_path) as agent:
        agent.send_signal(signal.SIGTERM)
        _, err = agent.communicate(timeout=60)
    assert "is gone" not in err
    said = summary(only_run(tmp_path))
    assert said["reason"] == "interrupted"
    assert newest(only_run(tmp_path)).env_steps == said["env_steps"]


@pytest.mark.slow
def test_torchrun_with_a_rank_that_is_killed(tmp_path: Path) -> None:
    script = command("41_ppo_ranks", tmp_path)[0]
    with under_torchrun(tmp_path) as agent:
        ranks = [one for one in psutil.Process(agent.pid).children() if script in one.cmdline()]
        (second,) = [one for one in ranks if one.environ().get("RANK") == "1"]
        second.kill()
        _, err = agent.communicate(timeout=40)
    assert agent.returncode == 1
    assert f"error: Rank 1 (process {second.pid} on " in err
    assert summary(only_run(tmp_path))["reason"] == "failed"
