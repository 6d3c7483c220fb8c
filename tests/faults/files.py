"""Files: damaged ones, well-formed ones that make no sense, strangers', and disks that are full."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from fastdqn.runs.encoding import to_bytes
from tests.faults.table import SCRIPT, SETTINGS, Row, Tally, a_sentence, script, try_all, whole_run
from tests.helpers.checkpoints import put_together, say_of_itself, taken_apart
from tests.helpers.scripts import ROOT

OFTEN = ("--checkpoint-env-steps", "50")
LOOKS = ("evaluate", "compare", "plot", "speed", "watch")
LOOK = """
import contextlib, io, json, sys, traceback
from fastdqn.cli import main
ends = []
for words in json.loads(sys.argv[1]):
    sys.argv = ["fastdqn", *words]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main.main()
        except SystemExit as end:
            code = end.code
        except BaseException:
            code = 1
            traceback.print_exc()
    ends.append([code, out.getvalue(), err.getvalue()])
print(json.dumps(ends))
"""
"""Looks at a run in several ways, one after the other, as the command line does."""


def damaged(folder: Path, count: int) -> Tally:
    """Change bytes of a file of a run, cut it, lengthen it, empty it or take it away; then look at the run and resume
    it. Damaged weights and checkpoints must be noticed, whatever was changed in them.
    """
    whole = _examined(folder)
    rng = random.Random(1)
    names = sorted(str(path.relative_to(whole)) for path in whole.rglob("*") if path.is_file())

    def trial(number: int, name: str, kind: str, seed: int) -> str | None:
        run = Path(shutil.copytree(whole, folder / f"{number}"))
        damage(run / name, kind, random.Random(seed))
        where = f"{name}, {kind}, seed {seed}: "
        seen = _used(run)
        codes, wrong = [done.returncode for done in seen.values()], _first_wrong(seen)
        if wrong:
            return where + wrong
        if name == "weights.safetensors" and codes[0] == 0:
            return where + "it was evaluated all the same"
        newest = sorted(one for one in names if one.endswith(".checkpoint"))[-1]
        if name == newest and kind != "taken away" and codes[-1] == 0:
            return where + "it was resumed all the same"
        return None

    kinds = ("a bit", "some bytes", "cut", "longer", "empty", "taken away", "zeros")
    trials = [partial(trial, i, names[i % len(names)], rng.choice(kinds), i) for i in range(count)]
    return try_all(trials)


def odd_checkpoints(folder: Path, count: int) -> Tally:
    """Resume from checkpoints that are whole, with the right checksum, and hold something else than they should."""
    whole = whole_run(folder / "whole", 100, *OFTEN)
    makers = _ODD[: count or len(_ODD)]

    def trial(number: int, change: Callable[[dict[str, Any], dict[str, Any]], bytes | None]) -> str | None:
        run = Path(shutil.copytree(whole, folder / f"{number}"))
        for path in run.glob("checkpoints/*.checkpoint"):
            header, states = taken_apart(path)
            made = change(header, states)
            put_together(path, header, to_bytes(states) if made is None else made)
        wrong = a_sentence(script("--resume", str(run), "--max-env-steps", "200"), (3,))
        return f"odd checkpoint {number}: {wrong}" if wrong else None

    return try_all([partial(trial, i, change) for i, change in enumerate(makers)])


def _without(*names: str) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    def change(_: dict[str, Any], states: dict[str, Any]) -> None:
        within = states
        for name in names[:-1]:
            within = within[name]
        del within[names[-1]]

    return change


def _with(value: Any, *names: str) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    def change(_: dict[str, Any], states: dict[str, Any]) -> None:
        within = states
        for name in names[:-1]:
            within = within[name]
        within[names[-1]] = value

    return change


def _bytes(data: bytes) -> Callable[[dict[str, Any], dict[str, Any]], bytes]:
    return lambda _header, _states: data


_ODD: Sequence[Callable[[dict[str, Any], dict[str, Any]], bytes | None]] = (
    _without("about"),
    _with("{", "about"),
    _with("[" * 100_000, "about"),
    _with(7, "about"),
    _without("run"),
    _without("parts"),
    _with([], "run"),
    _with("parts", "parts"),
    _without("run", "counters"),
    _with("many", "run", "elapsed"),
    _with(None, "run", "lines"),
    _without("run", "stop", "scores"),
    _with({"speed.jsonl": "long"}, "run", "lines"),
    _without("parts", "learner", "network"),
    _with({}, "parts", "learner", "optimizer"),
    _with(torch.zeros(3), "parts", "learner", "noise"),
    _with({"zstd": torch.zeros(4, dtype=torch.uint8), "shape": [1]}, "parts", "replay"),
    _with(5, "parts", "games"),
    _with(None, "parts", "policy"),
    _bytes(b""),
    _bytes(b"PK\x03\x04" + bytes(200)),
    _bytes(b"\x80\x02."),
    _bytes(b"[" * 100_000 + b"\n"),
    _bytes(b'["list", 1, 2]\n'),
    _bytes(b'["dict", ["run", ["tensor", 7]]]\n' + to_bytes({"0": torch.zeros(3)}).partition(b"\n")[2]),
    _bytes(b'["dict", ["run", ["module", "os"]]]\n'),
    _bytes(b'["dict"]\n' + (2**60).to_bytes(8, "little") + b"{}"),
)


WILD: Sequence[tuple[str, str, Any]] = (
    *(("game", "name", value) for value in (5, None, [], {}, "", "no-such-game", "\x00", "a" * 100_000)),
    *(("game", "frame_stack", value) for value in (10**9, 0, -1, "4", 2.5, True, None)),
    *(("game", "noop_max", value) for value in (10**12, -1, "many")),
    *(("game", "frame_skip", value) for value in (10**12, 0)),
    *(("game", "max_frames", value) for value in (-1, "long", 0)),
    *(("game", "sticky_actions", value) for value in (7.0, "often", float("nan"))),
    *(("game", "protocol", value) for value in ("own", 3)),
    *(("run", "seed", value) for value in (-1, 10**40, "zero", None, 1.5)),
    *(("run", "threads", value) for value in (0, "two")),
    *(("dqn", "replay_size", value) for value in (10**15, 0, "large")),
    *(("dqn", "learning_rate", value) for value in ("fast", None, -1.0)),
    *(("dqn", "batch_size", value) for value in (0, [4])),
    *(("vector", "num_envs", value) for value in (10**9, 0, "some")),
    *(("vector", "frame_size", value) for value in (10**6, 1, "84")),
    ("update", "precision", "fp4"),
    ("moon", "phase", 3),
    ("dqn", "moon", 3),
)
"""Values that a file may say of an option, by group and name."""


def wild_options(folder: Path, count: int) -> Tally:
    """Let config.json and the checkpoints of a run say wild things; then look at it and resume it."""
    whole = _examined(folder)
    rng = random.Random(2)
    chosen = list(WILD) if not count else rng.sample(WILD, count)

    def trial(number: int, group: str, name: str, value: Any) -> str | None:
        run = Path(shutil.copytree(whole, folder / f"{number}"))
        said = json.loads((run / "config.json").read_text(encoding="utf-8"))
        said.setdefault(group, {})[name] = value
        (run / "config.json").write_text(json.dumps(said), encoding="utf-8")
        for path in run.glob("checkpoints/*.checkpoint"):
            header = taken_apart(path)[0] | {"config": said}
            if (group, name) == ("game", "name"):
                header["game"] = value
            say_of_itself(path, header)
        wrong = _first_wrong(_used(run))
        return f"{group}.{name} = {str(value)[:30]!r}: {wrong}" if wrong else None

    return try_all([partial(trial, i, *one) for i, one in enumerate(chosen)])


def full_disk(folder: Path, count: int) -> Tally:
    """Let no file grow beyond some size, which stands for a full disk: the run ends with one sentence, and what it had
    saved before is whole: resumed with room, the run goes on.
    """
    sizes = [int(300 * 1.9 ** (i * 18 / max(1, count - 1))) for i in range(count)]

    def trial(size: int) -> str | None:
        runs = folder / f"{size}"

        def limited() -> None:
            import resource

            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

        words = (*SETTINGS, *OFTEN, "--max-env-steps", "300", "--runs-dir", str(runs))
        done = script(*words, preexec_fn=limited)
        return _after_a_full_disk(size, done, runs)

    return try_all([partial(trial, size) for size in sizes])


def own_disk(folder: Path, count: int) -> Tally:
    """Let runs have a disk of their own, in memory, that is full at some size: the same must hold. None are tried where
    this user may not mount one in a namespace.
    """
    sizes = [int(4_096 * 1.6**i) for i in range(count)]  # a run leaves some 300 kB
    mounted = 'mount -t tmpfs -o size="$1" none "$2" || exit 99; runs=$2; kept=$3; shift 3; "$@"; code=$?'
    within = (
        "unshare",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        f'{mounted}; cp -a "$runs" "$kept"; exit $code',
        "sh",
    )
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-rm", "true"], check=False).returncode:
        return Tally()

    def trial(size: int) -> str | None:
        runs, kept = folder / f"{size}", folder / f"{size} kept"
        runs.mkdir()
        program = (sys.executable, str(ROOT / "experiments" / f"{SCRIPT}.py"))
        words = (*SETTINGS, *OFTEN, "--max-env-steps", "300", "--runs-dir", str(runs))
        done = subprocess.run(
            [*within, str(size), str(runs), str(kept), *program, *words],
            capture_output=True,
            text=True,
            cwd=ROOT,
            timeout=120,
            check=False,
        )
        return _after_a_full_disk(size, done, kept)

    return try_all([partial(trial, size) for size in sizes])


def _after_a_full_disk(size: int, done: subprocess.CompletedProcess[str], runs: Path) -> str | None:
    """Return what is wrong with the end of a run on a disk of `size` bytes, and with what it has saved, or None."""
    wrong = None if done.returncode == 0 else a_sentence(done, (1,))
    if wrong:
        return f"{size:,} bytes: {wrong}"
    for run in runs.iterdir() if runs.exists() else ():
        for path in run.rglob("*.json"):
            json.loads(path.read_text(encoding="utf-8"))
        if list(run.glob("checkpoints/*.checkpoint")):
            more = script("--resume", str(run), "--max-env-steps", "340")
            if more.returncode:
                return f"{size:,} bytes, resumed: {more.stderr[-300:]}"
    return None


def strangers(folder: Path, count: int) -> Tally:
    """Give a run's files the name of code; whatever is done with the run must not run it."""
    whole = _examined(folder)
    ways = ("evaluate", "watch", "compare", "plot", "resume", "resume with another --game")
    chosen = [(name, way) for name in ("evil:make", "os:abort", "evil.py:make") for way in ways]

    def trial(number: int, name: str, way: str) -> str | None:
        place = folder / f"{number}"
        run = Path(shutil.copytree(whole, place / "run"))
        (place / "evil.py").write_text("open('ran', 'w').close()\ndef make():\n    raise SystemExit(0)\n")
        for path in (run / "config.json", *run.glob("checkpoints/*.checkpoint")):
            _name_code(path, name)
        more = ("--game", "pong") if way.startswith("resume with") else ()
        resumed = way.startswith("resume")
        done = script("--resume", "run", *more, cwd=place) if resumed else _looks(place, Path("run"), way)[0]
        if (place / "ran").exists() or done.returncode < 0:
            return f"{name}, {way}: its code ran"
        if way in ("compare", "plot"):
            return "a traceback" if "Traceback" in done.stderr else None
        return a_sentence(done, (2,))

    return try_all(
        [
            partial(trial, i, *one)
            for i, one in enumerate(chosen[:: max(1, len(chosen) // count) | 1] if count else chosen)
        ]
    )


def _name_code(path: Path, name: str) -> None:
    """Let a file of a run say that its game is `name`."""
    if path.suffix == ".json":
        said = json.loads(path.read_text(encoding="utf-8"))
        said["game"]["name"] = name
        path.write_text(json.dumps(said), encoding="utf-8")
        return
    header = taken_apart(path)[0]
    header["config"]["game"]["name"] = header["game"] = name
    say_of_itself(path, header)


def _examined(folder: Path) -> Path:
    """Return a run that has everything that a run can have."""
    run = whole_run(folder / "whole", 300, *OFTEN)
    (done,) = _looks(run.parent, run, "evaluate")
    assert done.returncode == 0, done.stderr
    return run


def damage(path: Path, kind: str, rng: random.Random) -> None:
    """Change a file of a run in some way."""
    data = bytearray(path.read_bytes())
    if kind == "taken away":
        path.unlink()
        return
    if kind == "a bit" and data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif kind == "some bytes" and data:
        for _ in range(8):
            data[rng.randrange(len(data))] = rng.randrange(256)
    elif kind == "zeros" and data:
        begin = rng.randrange(len(data))
        data[begin : begin + 64] = bytes(len(data[begin : begin + 64]))
    elif kind == "cut":
        del data[rng.randrange(max(1, len(data))) :]
    elif kind == "longer":
        data += rng.randbytes(rng.randrange(1, 100))
    else:
        data.clear()
    path.write_bytes(data)


def _looks(place: Path, run: Path, *looks: str) -> list[subprocess.CompletedProcess[str]]:
    """Look at the run from the folder `place`; return how each look ended."""
    words = {
        "evaluate": ["evaluate", str(run), "--games", "1", "--num-envs", "1", "--max-minutes", "1"],
        "watch": ["watch", str(run), "--out", "game.gif", "--max-env-steps", "5"],
        "compare": ["compare", str(run)],
        "plot": ["plot", str(run), "--out", "curves.png"],
        "speed": ["plot", str(run), "--what", "speed", "--out", "speed.png"],
    }
    done = subprocess.run(
        [sys.executable, "-c", LOOK, json.dumps([words[look] for look in looks])],
        cwd=place,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )
    if done.returncode:
        return [done] * len(looks)
    ends = json.loads(done.stdout.splitlines()[-1])
    return [subprocess.CompletedProcess(look, *end) for look, end in zip(looks, ends, strict=True)]


def _used(run: Path) -> dict[str, subprocess.CompletedProcess[str]]:
    """Look at a run in every way, resume it, and remove it; return how each of these ended."""
    place = run.with_name(f"{run.name}-looks")
    place.mkdir()
    ends = dict(zip(LOOKS, _looks(place, run, *LOOKS), strict=True))
    ends["resume"] = script("--resume", str(run), "--max-env-steps", "320")
    shutil.rmtree(run)
    shutil.rmtree(place)
    return ends


def _first_wrong(ends: Mapping[str, subprocess.CompletedProcess[str]]) -> str | None:
    """Return what is wrong with the first that neither succeeded nor ended with one sentence."""
    for what, done in ends.items():
        wrong = ("a traceback" if "Traceback" in done.stderr else None) if done.returncode == 0 else a_sentence(done)
        if wrong:
            return f"{what}: {wrong}"
    return None


ROWS = (
    Row("damage to any file of a run", "at most a one-line error; weights and checkpoints noticed", 200, 1, damaged),
    Row("malformed checkpoints, right checksum", "a one-line error", 0, 2, odd_checkpoints),
    Row("wild options in a run's files", "at most a one-line error", 0, 1, wild_options),
    Row("a full disk", "a one-line error, and what was saved is whole", 20, 1, full_disk),
    Row("a disk of its own, which is full", "the same", 14, 0, own_disk),
    Row("code named by a stranger's run", "it does not run", 0, 2, strangers),
)
