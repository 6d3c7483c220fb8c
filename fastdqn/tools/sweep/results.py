"""What has come of a run of a sweep: one small JSON file, from which the sweep continues on any machine."""

from __future__ import annotations

import contextlib
import json
import statistics
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from fastdqn.errors import RunError, UserError
from fastdqn.options.groups import as_of_now, learnt_by
from fastdqn.runs.folder import is_words, read_object, write_json
from fastdqn.tools.reading import is_number, read_run
from fastdqn.tools.sweep.plan import FORMAT, PLAN, RUNNING, Task, are_words, difference, set_aside

FOLDER = "results"
_WHAT = "result of a fastdqn sweep"
_TRAINING = "training"
"""What a result calls its score where nothing was evaluated: the mean of the last 100 games of the training."""
_LIMITS = ("max_env_steps", "max_minutes", "train_seconds", "stop_score")
_LAST = ("nature", "fresh")
"""Evaluations that a run makes after it was solved; any other is the script's own, and comes first."""
_NUMBERS = ("mean", "median", "standard_error")


class Found(NamedTuple):
    """What the results folder of a sweep holds."""

    results: dict[str, dict[str, Any]]  # by the name of the run
    notes: list[str]  # a sentence for each file that was set aside


def result_of(script: str, task: Task, run: Path, cores: int) -> dict[str, Any]:
    """Return the result of a run that has finished.

    Args:
        script: its name.
        task: what was asked for.
        run: its folder.
        cores: that it had for itself, or of a Ray cluster: its machine may have more.

    Raises:
        RunError: its folder does not say that it has, it has finished no game, or it cannot be read.
    """
    try:
        data = read_run(run)
    except UserError as error:
        raise RunError(str(error)) from error
    if not data.finished:
        raise RunError(f"The run {run} has left no summary of an end of its own: {data.ended}.")
    summary, config = data.summary, data.config
    machine: dict[str, Any] = {}
    with contextlib.suppress(OSError, ValueError):
        machine = read_object(run / "environment.json")
    before: Any = machine.get("earlier")
    earlier = cast(list[Any], before) if isinstance(before, list) else []
    processes = [*(cast(dict[str, Any], one) for one in earlier if isinstance(one, dict)), machine]
    evaluations = _evaluations(summary)
    own = [name for name in evaluations if name not in _LAST]
    judged = next((name for name in (*own, *_LAST) if name in evaluations), _TRAINING)
    score = data.mean_100 if judged == _TRAINING else evaluations[judged]["mean"]
    if not is_number(score):
        raise RunError(f"The run {run} has no score: it has finished no game, and was not evaluated.")
    said: dict[str, Any] = {
        "script": script,
        "name": task.name,
        "asked": task.asked,
        "game": data.game,
        "agent": task.asked.get("agent") or config.get("dqn", {}).get("agent"),
        "seed": data.seed,
        "score": score,
        "score_of": judged,
        "ended": data.ended,
        "minutes": round(summary.get("elapsed", 0.0) / 60.0, 3),
        **_evaluation_minutes(summary[name] for name in evaluations),
        "env_steps": summary.get("env_steps"),
        "updates": summary.get("updates"),
        "mean_100": data.mean_100,
        "evaluations": evaluations,
        "options": learnt_by(as_of_now(config)),
        "limits": {name: config["run"].get(name) for name in _LIMITS},
        "version": config.get("version"),
        "python": machine.get("python"),
        "packages": machine.get("packages"),
        "cpu": _each(processes, "cpu"),
        "cores": cores,
        "gpu": _each(processes, "gpu"),
        "commit": _each(processes, "commit"),
        "time": machine.get("time"),
    }
    return sealed(said)


def sealed(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a file of results holds that says so much: what it is, and its checksum, too."""
    whole = {"what": _WHAT, "format": FORMAT, **said}
    return {**whole, "crc32": _checksum(whole)}


def write_result(folder: Path, result: dict[str, Any]) -> None:
    """Write a result into a sweep's folder, whole or not at all."""
    place = folder / FOLDER
    place.mkdir(parents=True, exist_ok=True)
    write_json(place / f"{result['name']}.json", result)


def read_result(path: Path) -> dict[str, Any]:
    """Return the result in a file.

    Raises:
        UserError: it is damaged, or none.
    """
    try:
        result = read_object(path)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise UserError(f"{path} is damaged: it is no JSON object.") from error
    if result.get("what") != _WHAT:
        raise UserError(f"{path} is no result of a sweep.")
    if result.get("format") != FORMAT:
        raise UserError(
            f"{path} is a result in format {str(result.get('format'))[:20]}, which this version does not read."
        )
    if result.get("crc32") != _checksum({name: value for name, value in result.items() if name != "crc32"}):
        raise UserError(f"{path} is damaged: its checksum is wrong.")
    if not _is_whole(result):
        raise UserError(f"{path} is damaged: it does not say what a result says.")
    return result


def found_in(folder: Path, script: str, tasks: Sequence[Task], planned: bool) -> Found:
    """Return the results of these runs that a sweep's folder has.

    What is damaged, or of another run than its name says, is set aside, so that the run is done again.

    Args:
        folder: of the sweep.
        script: name of its script.
        tasks: its runs.
        planned: whether a plan in the folder says that the sweep is this one.

    Raises:
        UserError: there is no such plan, and all results are of other options: then it is another sweep.
        OSError: a file cannot be set aside.
    """
    found = Found({}, [])
    wrong: dict[Path, str] = {}
    foreign = ""
    for task in tasks:
        path = folder / FOLDER / f"{task.name}.json"
        if not path.exists():
            continue
        try:
            result = read_result(path)
        except UserError as error:
            wrong[path] = str(error).rstrip(".")
            continue
        if result["script"] != script:
            foreign = f"it is of {result['script']}"
        elif result["asked"] != task.asked:
            foreign = f"it has {difference(result['asked'], task.asked)}"
        else:
            found.results[task.name] = result
            continue
        wrong[path] = f"{path} is the result of another run: {foreign}"
    if foreign and not planned and not found.results:
        raise UserError(
            f"The results in {folder / FOLDER} are of another sweep than is asked for now: of one, {foreign}; give the "
            "same options, or name another folder with --into."
        )
    for path, why in wrong.items():
        found.notes.append(f"{why}; it is now {set_aside(path).name}, and the run is done again")
    return found


def results_in(folder: Path) -> Found:
    """Return all results in a sweep's folder, or in a folder of results, by the names of their files; what cannot be
    read has a sentence.
    """
    place = folder / FOLDER if (folder / FOLDER).is_dir() else folder
    found = Found({}, [])
    for path in sorted(place.glob("*.json")):
        if path.name in (PLAN, RUNNING):
            continue
        try:
            result = read_result(path)
        except UserError as error:
            found.notes.append(str(error))
            continue
        found.results[path.stem] = result  # two of one name are two
    return found


def _evaluations(summary: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return what of a run's summary are games that it was evaluated in, by name."""
    kept = ("protocol", "epsilon", "games", "seed", *_NUMBERS, "scores")
    found: dict[str, dict[str, Any]] = {}
    for name, said in summary.items():
        if isinstance(said, dict):
            one = cast(dict[str, Any], said)
            if is_number(one.get("mean")):
                found[name] = {key: value for key, value in one.items() if key in kept}
    return found


def _evaluation_minutes(evaluations: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Return the minutes of all evaluations; nothing if one does not say how long it was."""
    seconds: list[Any] = [one.get("seconds") for one in evaluations]
    return {"evaluation_minutes": round(sum(seconds) / 60.0, 3)} if all(map(is_number, seconds)) else {}


def _each(processes: Sequence[Mapping[str, Any]], name: str) -> str | None:
    """Return what the processes of a run say under `name`, each word once: one that was resumed has several."""
    return ", then ".join(dict.fromkeys(str(one[name]) for one in processes if one.get(name) is not None)) or None


def _is_whole(result: dict[str, Any]) -> bool:
    """Tell whether a result has what is read from it, each of its type."""
    try:
        good = all(is_words(result[name]) for name in ("script", "name", "game", "score_of", "ended"))
        good = good and all(is_number(result[name]) for name in ("score", "minutes", "seed", "env_steps"))
        good = good and all(is_words(result.get(name) or "") for name in ("agent", "cpu", "gpu", "commit"))
        good = good and all(is_number(result.get(name) or 0) for name in ("evaluation_minutes", "updates", "cores"))
        return good and "agent" in result and are_words(result["asked"]) and _says_how(result)
    except KeyError:
        return False


def _says_how(result: Mapping[str, Any]) -> bool:
    """Tell whether what a result says of options and evaluations, if anything, is of its type."""
    learnt, evaluations = result.get("options", {}), result.get("evaluations", {})
    if not isinstance(learnt, dict) or not isinstance(evaluations, dict):
        return False
    plain = all(one is None or isinstance(one, str | int | float) for one in cast(dict[str, Any], learnt).values())
    each = list(cast(dict[str, Any], evaluations).values())
    return plain and all(
        isinstance(one, dict)
        and all(is_number(cast(dict[str, Any], one).get(name) or 0) for name in ("games", "epsilon"))
        for one in each
    )


def _checksum(said: dict[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(said, sort_keys=True).encode()):08x}"


def minutes_of(result: Mapping[str, Any]) -> float:
    """Return the minutes that a run took, with the evaluation at its end where its result says how long that was."""
    return result["minutes"] + (result.get("evaluation_minutes") or 0.0)


def median_minutes(results: Iterable[Mapping[str, Any]]) -> float | None:
    """Return the median of the minutes that runs took, None where there are none."""
    return statistics.median(found) if (found := [minutes_of(one) for one in results]) else None
