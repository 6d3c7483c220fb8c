"""Checkpoint files: whole or refused in a sentence, whatever kills the process that writes them."""

from __future__ import annotations

import os
import pickle
import random
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from fastdqn.errors import UserError
from fastdqn.runs import checkpoint
from fastdqn.runs.checkpoint import FORMAT, Checkpoints, newest, read, read_header
from fastdqn.states import Later, Packed, unpack
from tests.helpers.checkpoints import ABOUT, put_together, saved, taken_apart
from tests.helpers.older import older_run
from tests.helpers.scripts import SHORT, train


def test_what_is_saved_comes_back(tmp_path: Path) -> None:
    frames = np.random.default_rng(0).integers(256, size=(3, 5, 7), dtype=np.uint8)
    weights = torch.randn(4, 3).to(memory_format=torch.contiguous_format)
    states = {
        "tensor": weights,
        "later": Later(lambda: {"packed": Packed(frames)}),
        "nested": [{"empty": Packed(np.zeros((0, 4), np.uint8))}, 2, None, "text", (1, 2.5)],
        "number": np.float64(0.25),
    }
    done = saved(tmp_path, states)
    assert done.path == tmp_path / "checkpoints" / "000000000100.checkpoint"
    assert done.size == done.path.stat().st_size
    header = newest(tmp_path)
    assert (header.script, header.game, header.env_steps) == ("09_cuda_graph", "pong", 100)
    found = read(header)
    assert torch.equal(found["tensor"], weights)
    assert unpack(found["later"]["packed"]).numpy().tolist() == frames.tolist()
    assert unpack(found["nested"][0]["empty"]).shape == (0, 4)
    assert found["nested"][1:] == [2, None, "text", (1, 2.5)]
    assert found["number"] == 0.25


def test_the_previous_one_is_kept_and_older_ones_are_not(tmp_path: Path) -> None:
    for env_steps in (9, 10, 200, 1_000_000):
        saved(tmp_path, {"at": env_steps}, env_steps)
    (tmp_path / "checkpoints" / "x.unfinished").write_bytes(b"left by a kill")
    saved(tmp_path, {"at": 1_000_001}, 1_000_001)
    assert [path.name for path in sorted((tmp_path / "checkpoints").iterdir())] == [
        "000001000000.checkpoint",
        "000001000001.checkpoint",
    ]
    assert read(newest(tmp_path))["at"] == 1_000_001
    assert read(newest(tmp_path, previous=True))["at"] == 1_000_000


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc to name a descriptor's file")
def test_what_a_checkpoint_needs_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill does not show this: what a process has written is the system's by then."""
    done: list[tuple[str, str]] = []
    fsync, replace = os.fsync, Path.replace

    def synced(handle: int) -> None:
        done.append(("fsync", Path(f"/proc/self/fd/{handle}").readlink().name))
        fsync(handle)

    def replaced(path: Path, target: Path) -> Path:
        done.append(("replace", target.name))
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", replaced)
    run = train("01_baseline", tmp_path, *SHORT, "--checkpoint-env-steps", "150", "--checkpoint-minutes", "None")
    first = f"{150:012}.checkpoint"
    at = done.index(("replace", first))
    assert done[at - 1] == ("fsync", f"{first}.{os.getpid()}.unfinished")
    assert done[at + 1] == ("fsync", "checkpoints")
    logs = {("fsync", path.name) for path in (*run.glob("*.jsonl"), *run.glob("events.*"))}
    assert ("fsync", "episodes.jsonl") in logs & set(done[:at])
    assert logs - set(done[:at]) <= {("fsync", path.name) for path in run.glob("events.*")}
    renamed = [name for what, name in done if what == "replace"]
    assert {"config.json", "weights.safetensors", "summary.json"} <= set(renamed)
    for place, (what, name) in enumerate(done):
        if what == "replace":
            assert ("fsync", f"{name}.{os.getpid()}.unfinished") in done[:place]


def test_cut_short_at_any_byte_it_is_one_sentence(tmp_path: Path) -> None:
    saved(tmp_path, {"before": torch.arange(5)}, 1)
    path = saved(tmp_path, {"values": torch.arange(300)}, 2).path
    whole = path.read_bytes()
    body = whole.index(b"\n") + 1
    for size in (*range(0, body + 40, 7), *range(body, len(whole), 211), len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(UserError, match=r"(damaged.*|cannot be read).*; --resume-previous resumes from the one"):
            read(newest(tmp_path))
    path.write_bytes(whole)
    assert read(newest(tmp_path))["values"].tolist() == list(range(300))
    assert read(newest(tmp_path, previous=True))["before"].tolist() == list(range(5))


def test_a_flipped_bit_or_a_longer_file_is_noticed(tmp_path: Path) -> None:
    path = saved(tmp_path, {"values": torch.arange(300)}).path
    whole = path.read_bytes()
    for place in range(whole.index(b"\n") + 1, len(whole), 97):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        with pytest.raises(UserError, match="its checksum is wrong"):
            read(newest(tmp_path))
    path.write_bytes(whole + b"x")
    with pytest.raises(UserError, match="is damaged: it has"):
        read(newest(tmp_path))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 a zip", b"[1, 2]\n", b'{"what": "else"}\n', os.urandom(3000)])
def test_other_files_are_one_sentence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "checkpoints" / "000000000007.checkpoint"
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(UserError, match="is not a checkpoint of fastdqn, or a damaged one"):
        newest(tmp_path)


def test_a_later_format_is_refused_by_its_number(tmp_path: Path) -> None:
    path = saved(tmp_path, {"values": 1}).path
    path.write_bytes(path.read_bytes().replace(b'"format": %d' % FORMAT, b'"format": 9'))
    with pytest.raises(UserError, match=rf"in format 9; this version, .*, reads format {FORMAT}"):
        newest(tmp_path)


@pytest.mark.parametrize(
    "body",
    [
        pickle.dumps({"values": 1}),
        b'["dict", ["values", ["call", "os.mkdir", "made"]]]\n',
        b'["dict", ["values", {"__reduce__": "os.mkdir"}]]\n',
    ],
)
def test_what_is_no_state_is_one_sentence(tmp_path: Path, body: bytes) -> None:
    """A checkpoint from elsewhere cannot do more than fill tensors, text and numbers."""
    path = saved(tmp_path, {"values": 1}).path
    put_together(path, taken_apart(path)[0], body)
    with pytest.raises(UserError, match="holds something that this version does not read"):
        read(newest(tmp_path))


def test_what_cannot_be_read_again_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="A state holds a set, which no checkpoint does"):
        saved(tmp_path, {"values": {1, 2}})
    assert checkpoint.checkpoints_in(tmp_path) == []


def test_without_a_checkpoint_it_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no checkpoint to resume"):
        newest(tmp_path)
    with pytest.raises(UserError, match="there is no such folder of a run"):
        newest(tmp_path / "nothing")
    saved(tmp_path, {})
    with pytest.raises(UserError, match="has one checkpoint only"):
        newest(tmp_path, previous=True)
    with pytest.raises(UserError, match=r"no run in .* has a checkpoint"):
        checkpoint.latest_run(tmp_path)


def test_the_latest_run_is_one_of_the_script_that_asks(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
    saved(tmp_path / "a", {})
    other = Checkpoints(tmp_path / "b", {**ABOUT, "script": "31_sac"})
    other.begin(1, dict)
    other.ended(wait=True)
    assert checkpoint.latest_run(tmp_path, "09_cuda_graph") == tmp_path / "a"
    assert checkpoint.latest_run(tmp_path, "31_sac") == tmp_path / "b"
    with pytest.raises(UserError, match=r"no run of 01_baseline in .* has a checkpoint"):
        checkpoint.latest_run(tmp_path, "01_baseline")


def test_a_newer_run_of_another_script_and_version_hides_none(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    saved(tmp_path / "a", {})
    older = older_run(tmp_path)  # of 11
    assert checkpoint.latest_run(tmp_path, "09_cuda_graph") == tmp_path / "a"
    assert checkpoint.latest_run(tmp_path, "11_pong_in_seconds") == older  # whoever resumes it is told why it cannot be


def test_the_latest_run_may_be_one_of_a_sweep(tmp_path: Path) -> None:
    run = tmp_path / "sweep" / "runs" / "pong-0" / "run"
    run.mkdir(parents=True)
    saved(run, {})
    for runs in (tmp_path, tmp_path / "sweep"):
        assert checkpoint.latest_run(runs) == run


def test_a_failure_in_the_thread_is_raised_here_and_abandons_what_waits(tmp_path: Path) -> None:
    abandoned = []

    def fail() -> None:
        raise OSError(28, "No space left on device")

    checkpoints = Checkpoints(tmp_path, ABOUT)
    checkpoints.begin(1, lambda: {"a": Later(fail), "b": {"c": Later(dict, lambda: abandoned.append(1))}})
    with pytest.raises(OSError, match="No space left"):
        checkpoints.ended(wait=True)
    assert abandoned == [1]
    assert checkpoint.checkpoints_in(tmp_path) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_where_no_thread_can_be_started_it_is_written_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fails)
    checkpoints = Checkpoints(tmp_path, ABOUT)
    checkpoints.begin(7, lambda: {"a": torch.ones(2)})
    assert not checkpoints.writing
    done = checkpoints.ended(wait=True)
    assert done is not None
    assert done.path.exists()
    assert checkpoints.ended(wait=True) is None


def test_killed_at_any_moment_a_good_one_is_left(tmp_path: Path) -> None:
    """A process saves one checkpoint after the other and is killed, 55 times, whatever it is about."""
    rng = random.Random(0)
    values = np.arange(200_000)
    at = during = 0
    for _ in range(55):
        child = os.fork()
        if child == 0:
            try:
                for env_steps in range(at + 1, at + 1000):
                    saved(tmp_path, {"at": env_steps, "values": torch.from_numpy(values + env_steps)}, env_steps)
            finally:
                os._exit(1)
        before, deadline = at, time.monotonic() + 20.0
        while not (found := checkpoint.checkpoints_in(tmp_path)) or read_header(found[-1]).env_steps == before:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        time.sleep(rng.random() * 0.03)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        during += bool(list((tmp_path / "checkpoints").glob("*.unfinished")))
        state = read(newest(tmp_path))
        assert state["at"] > before
        np.testing.assert_array_equal(state["values"].numpy(), values + state["at"])
        at = state["at"]
    assert during > 5  # some of the kills did hit a save
