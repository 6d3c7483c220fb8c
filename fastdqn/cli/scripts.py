"""The command line of the scripts: options from groups, mistakes as one sentence."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from fastdqn import process
from fastdqn.cli.parser import parsed
from fastdqn.envs import games
from fastdqn.errors import RunError, UserError
from fastdqn.options.fields import changes_learning
from fastdqn.options.groups import check, defaults_of, flag_of, groups_of, options_from
from fastdqn.options.parts import VARIANTS
from fastdqn.options.presets import NO_EPSILON, changed, record_changes, variant_changes, with_preset
from fastdqn.options.run import RunOptions

OptionsT = TypeVar("OptionsT")


def start(
    train: Callable[[OptionsT], int | None],
    options_type: type[OptionsT],
    description: str | None,
    game: str = "pong",
    device: str | None = None,
) -> NoReturn:
    """Run a script: parse, train, and leave with its exit code.

    0 after a run that ended by itself, 130 after Ctrl-C, 2 for a mistake in the options, 1 for a run that failed.

    Args:
        train: of the script, whose name is its file's; it may return an exit code.
        options_type: a dataclass of groups.
        description: what --help begins with.
        game: the default of --game.
        device: the default of --device.
    """
    script = Path(inspect.getfile(train)).stem
    try:
        options = parse(options_type, description or "", game=game, device=device, script=script)
        try:
            code = train(options) or 0
        except RuntimeError as error:
            sentence = _out_of_memory(error, options)
            if sentence is None:
                raise
            raise RunError(sentence) from error
    except (UserError, RunError) as error:
        print(f"error: {error}", file=sys.stderr)
        code = error.exit_code
    sys.exit(process.exit_code() or code)


def parse(
    options_type: type[OptionsT],
    description: str,
    argv: Sequence[str] | None = None,
    game: str = "pong",
    device: str | None = None,
    script: str | None = None,
) -> OptionsT:
    """Return the options that `argv` (default: the command line) asks for.

    The game's preset gives the defaults, so that `--help --game breakout` shows Breakout's. Groups that a preset does
    not know keep their own.

    Raises:
        UserError: no such game or option, a value out of range, or options that contradict each other.
        SystemExit: after `--help`.
    """
    words = [_dashed(word) for word in (sys.argv[1:] if argv is None else argv)]
    resume = _value_of("--resume", words)
    if resume is not None:
        options = _resumed(options_type, description, words, resume, script)
        check(options)
        return options
    if _flag("resume-previous", words, False):
        raise UserError("--resume-previous goes with --resume, which names the run.")
    defaults = _defaults(options_type, words, game, device)
    pairs = groups_of(defaults).parts is not None  # flags that a preset or a variant may have set can be taken back
    options = parsed(options_type, words, defaults, description, pairs=pairs)
    check(options)
    return _with_num_envs(options)


def _defaults(options_type: type[OptionsT], words: Sequence[str], game: str, device: str | None) -> OptionsT:
    """Return what the names on the command line imply: game, variant, parts, and the kind of machine."""
    defaults = changed(defaults_of(options_type), {"run": {"device": device}})
    named = _value_of("--game", words) or game
    defaults = with_preset(defaults, named, named if games.is_custom(named) else games.rom_of(named))
    had = groups_of(defaults)
    variant = _value_of("--variant", words)
    if had.series is not None and had.dqn is not None and variant in VARIANTS:  # the parser refuses other names
        defaults = changed(defaults, variant_changes(variant, had.dqn))
    parts = groups_of(defaults).parts
    if parts is not None and _flag("noisy", words, parts.noisy):
        defaults = changed(defaults, NO_EPSILON)
    if had.freeze is not None:
        small = _flag("small", words, False)
        for changes in record_changes(named, small, _trains_on_cuda(words, had.run)):
            defaults = changed(defaults, changes)
    return defaults


def _with_num_envs(options: OptionsT) -> OptionsT:
    """Return `options` with the number of games that this machine plays by default, which a resumed run keeps."""
    vector = groups_of(options).vector
    if vector is None or vector.num_envs is not None:
        return options
    from fastdqn.envs.many import num_envs_of

    return changed(options, {"vector": {"num_envs": num_envs_of(vector)}})


def _resumed(
    options_type: type[OptionsT], description: str, words: list[str], resume: str, script: str | None
) -> OptionsT:
    """Return the options of the run to resume, and what `words` change of them.

    Raises:
        UserError: there is no such run or checkpoint, it is another script's, or `words` contradict it.
    """
    from fastdqn.runs.checkpoint import latest_run, newest

    if _value_of("--variant", words) == "all" or (_value_of("--seeds", words) or "1") != "1":
        raise UserError("--resume resumes one run; leave out --variant all and --seeds.")
    runs_dir = Path(_value_of("--runs-dir", words) or RunOptions().runs_dir)
    folder = latest_run(runs_dir) if resume == "latest" else Path(resume)
    header = newest(folder, _flag("resume-previous", words, False))
    if script is not None and script != header.script:
        raise UserError(f"The run {folder} is one of {header.script}; resume it with that script.")
    anew: dict[str, Any] = {"resume": None, "resume_previous": False, "runs_dir": runs_dir}
    if _value_of("--device", words) or _flag("cuda", words, False):  # the one that is named now is meant
        anew |= {"device": None, "cuda": False}
    saved = changed(options_from(options_type, header.config), {"run": anew})
    options = parsed(options_type, _with_game_of(saved, words), saved, description, pairs=True)
    _refuse_changes(saved, options, str(header.path))
    return changed(options, {"run": {"resume": str(folder)}})


def _refuse_changes(saved: Any, options: Any, where: str) -> None:
    """Refuse other values of options that change what is learnt.

    Raises:
        UserError: with the first of them.
    """
    for group in dataclasses.fields(options):
        before: Any = getattr(saved, group.name)
        now: Any = getattr(options, group.name)
        for field in dataclasses.fields(now):
            old: Any = getattr(before, field.name)
            new: Any = getattr(now, field.name)
            if new != old and changes_learning(field):
                flag = flag_of(now.__class__, field.name)
                raise UserError(
                    f"{flag} {new} contradicts the checkpoint {where}, which has {old}; it cannot change in the middle "
                    "of a run."
                )


def _with_game_of(saved: Any, words: list[str]) -> list[str]:
    """Return `words` with the run's own spelling of its game."""
    game, own = _value_of("--game", words), groups_of(saved).game.name
    if game is not None and game.strip().lower() == own.strip().lower():
        return [*words, "--game", own]
    return words


def _out_of_memory(error: RuntimeError, options: Any) -> str | None:
    """Return the sentence for a device whose memory did not suffice, None where `error` is of another kind."""
    if str(error).startswith("MPS backend out of memory"):  # of a type of its own in newer versions alone
        return "The memory of the MPS device did not suffice; lower --batch-size, or --replay-size, which shares it."
    if type(error).__name__ != "OutOfMemoryError":
        return None
    import torch

    from fastdqn.replay.memory import frame_replay_bytes, frames_that_fit

    dqn = groups_of(options).dqn
    peak = torch.cuda.max_memory_allocated()
    said = "The memory of the CUDA device did not suffice; lower --batch-size"
    if dqn is None or peak < frame_replay_bytes(dqn.replay_size):  # the replay was not there: it takes no memory
        return f"{said}."
    size = dqn.replay_size
    fits = frames_that_fit(size, torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved(), peak)
    fits = min(fits, size - size // 10)  # what could not be had any more is in no count
    return f"{said}, or keep fewer frames than {size}: --replay-size {fits} would fit."


def _dashed(word: str) -> str:
    """Return an option's name with dashes where it was spelled with underscores."""
    name, equals, value = word.partition("=")
    return f"{name.replace('_', '-')}{equals}{value}" if name.startswith("--") else word


def _value_of(option: str, words: Sequence[str]) -> str | None:
    """Return the value that `words` give to `option`, found before the real parse because it decides the defaults."""
    for i, word in reversed(list(enumerate(words))):  # the last one counts, as for every option
        if word.startswith(f"{option}="):
            return word.removeprefix(f"{option}=")
        if word == option and i + 1 < len(words):
            return words[i + 1]
    return None


def _flag(name: str, words: Sequence[str], default: bool) -> bool:
    """Return what `words` say of --name and --no-name; the last one counts."""
    said = [word for word in words if word in (f"--{name}", f"--no-{name}")]
    return said[-1] == f"--{name}" if said else default


def _trains_on_cuda(words: Sequence[str], run: RunOptions) -> bool:
    """Tell whether `words` name a CUDA device, or leave the choice and there is one."""
    device = "cuda" if "--cuda" in words else _value_of("--device", words) or run.device or "cpu"
    if device != "auto":
        return device.startswith("cuda")
    import torch

    return torch.cuda.is_available()
