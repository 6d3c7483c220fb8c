"""A script that seems to train: it writes what a run writes, checkpoints too, and resumes; for sweeps.

python tests/helpers/fake.py --game pong --seed 0 --seconds 0.1 --runs-dir RUNS

It needs hardly any time of its own. What it does it adds to the file that LEDGER names, a line each: `NAME begins`,
`NAME resumes at STEP`, `NAME ends`. Its last checkpoint takes as many seconds as FAKE_SAVES says, if it
plays the game that FAKE_SAVES_OF says, or any without that.
"""

import fastdqn.cli.begin  # noqa: F401 - first: the signals  # isort: skip

import argparse
import json
import os
import sys
import time
from pathlib import Path

from fastdqn import process
from fastdqn.errors import CheckpointError, UserError

STEPS = 10


def main() -> int:
    options = parsed()
    name = f"{options.game}-{options.agent}-{options.seed}"
    if os.environ.get("FAKE_REFUSES") == name:
        sys.stderr.write("error: it was refused.\n")
        return UserError.exit_code
    if options.refuse == name:
        sys.stderr.write("error: --refuse was given.\n")
        return 2
    if options.fail == name and (options.spoilt_by is None or Path(options.spoilt_by).exists()):
        sys.stderr.write("Traceback (most recent call last):\nValueError: it went wrong\n")
        return 1
    if options.resume is not None:
        run = Path(options.resume)
        saved = sorted((run / "checkpoints").glob("*.checkpoint"))[-2 if options.resume_previous else -1]
        try:
            step = json.loads(saved.read_text())["step"]
        except ValueError:
            sys.stderr.write(f"error: The checkpoint {saved} is damaged.\n")
            return CheckpointError.exit_code
        note(f"{name} resumes at {step}")
    else:
        run, step = options.runs_dir / f"{time.time_ns()}-fake", 0
        run.mkdir(parents=True)
        config = {"format": 3, "version": "0", "script": "fake", "wrappers": "vector"}
        game = {"name": options.game or "pong"}
        learnt = {"agent": options.agent, "learning_rate": options.learning_rate}
        limits = {"seed": options.seed, "max_env_steps": STEPS, "stop_score": None}
        write(run / "config.json", {**config, "run": limits, "game": game, "dqn": learnt})
        write(run / "environment.json", {"python": "3", "packages": {"torch": "2"}, "cpu": "fake", "cores": cores()})
        (run / "episodes.jsonl").touch()
        (run / "checkpoints").mkdir()
        note(f"{name} begins")
    with process.running():
        while step < STEPS and not process.stop_signal():
            time.sleep(options.seconds / STEPS)
            step += 1
            with (run / "speed.jsonl").open("a") as file:
                file.write(json.dumps({"env_steps": step}) + "\n")
            if process.stop_signal() and os.environ.get("FAKE_SAVES_OF", options.game) == options.game:
                time.sleep(float(os.environ.get("FAKE_SAVES", "0")))
            if step % 2 == 0 or process.stop_signal():
                write(run / "checkpoints" / f"{step:012}.checkpoint", {"step": step})
    if step < STEPS:
        return process.exit_code()
    scores = [float(options.seed + i) for i in range(3)]
    final = {"epsilon": 0.001, "games": 3, "mean": sum(scores) / 3, "median": scores[1], "scores": scores}
    final["seconds"] = 30.0
    ended = {"reason": "max-env-steps", "elapsed": options.seconds, "env_steps": STEPS, "updates": 5, "episodes": 0}
    if not (run / "summary.json").exists():
        scored = {"mean_100": None} if options.mute else {"mean_100": -5.0, "final": final}
        write(run / "summary.json", {**ended, **scored})
        note(f"{name} ends")
    return 0


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for option in ("--game", "--agent", "--resume", "--fail", "--refuse", "--threads", "--spoilt-by"):
        parser.add_argument(option)
    for option, kind, default in (("--seed", int, 0), ("--seconds", float, 0.1), ("--learning-rate", float, 1e-4)):
        parser.add_argument(option, type=kind, default=default)
    parser.add_argument("--runs-dir", type=Path, default=Path("runs"))
    parser.add_argument("--resume-previous", action="store_true")
    parser.add_argument("--mute", action="store_true")
    parser.add_argument("--double", action=argparse.BooleanOptionalAction)
    return parser.parse_args()


def note(line: str) -> None:
    if "LEDGER" in os.environ:
        with Path(os.environ["LEDGER"]).open("a") as file:
            file.write(f"{line}\n")


def write(path: Path, said: object) -> None:
    beside = path.with_name(f"{path.name}.{os.getpid()}.unfinished")
    beside.write_text(json.dumps(said))
    beside.replace(path)


def cores() -> list[int]:
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


if __name__ == "__main__":
    sys.exit(main())
