"""The command line of the scripts: options from dataclasses, mistakes as one sentence."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn, TypeVar, cast

from fastdqn import startup
from fastdqn.config import (
    SCRIPT_OPTIONS,
    VARIANTS,
    AgentOptions,
    Options,
    RainbowOptions,
    RecordOptions,
    RunOptions,
    VectorOptions,
    check,
    flat,
    options_from,
    preset_for,
    with_record,
    with_variant,
    without_epsilon,
)
from fastdqn.envs import games
from fastdqn.errors import RunError, UserError
from fastdqn.parsing import parsed

OptionsT = TypeVar("OptionsT", bound=Options)


def parse(options_type: type[OptionsT], description: str, argv: Sequence[str] | None = None) -> OptionsT:
    """Return the options that `argv` (default: the command line) asks for.

    The game's preset gives the defaults, so that `--help --game breakout` shows Breakout's.

    Raises:
        UserError: no such game or option, a value out of range, or options that contradict each other.
        SystemExit: after `--help`.
    """
    words = [_dashed(word) for word in (sys.argv[1:] if argv is None else argv)]
    resume = _value_of("--resume", words)
    if resume is not None:
        options = _resumed(options_type, description, words, resume)
        check(options)
        return options
    if _flag("resume-previous", words, False):
        raise UserError("--resume-previous goes with --resume, which names the run.")
    defaults = with_preset(options_type(), _value_of("--game", words) or options_type().run.game)
    variant = _value_of("--variant", words)
    if isinstance(defaults, RainbowOptions) and variant in VARIANTS:  # tyro refuses other names
        defaults = with_variant(defaults, variant)
    if isinstance(defaults, AgentOptions) and _flag("noisy", words, defaults.parts.noisy):
        defaults = without_epsilon(defaults)
    if isinstance(defaults, RecordOptions):
        defaults = with_record(defaults, _flag("small", words, False), _trains_on_cuda(words, defaults.run))
    options = parsed(options_type, words, defaults, description, pairs=isinstance(defaults, AgentOptions))
    check(options)
    return _with_num_envs(options)


def _with_num_envs(options: OptionsT) -> OptionsT:
    """Return `options` with the number of games that this machine plays by default, which a resumed run keeps."""
    if not isinstance(options, VectorOptions) or options.num_envs is not None:
        return options
    from fastdqn.device import num_envs_of

    return dataclasses.replace(options, num_envs=num_envs_of(options))


MAY_CHANGE = frozenset(
    {
        *(field.name for field in dataclasses.fields(RunOptions) if field.name not in ("game", "seed")),
        *("env_threads", "where", "player_device", "player_timeout"),
    }
)
"""Options that a resumed run may be given anew: none of them changes what is learnt."""


def _resumed(options_type: type[OptionsT], description: str, words: list[str], resume: str) -> OptionsT:
    """Return the options of the run to go on with, and what `words` change of them.

    Raises:
        UserError: there is no such run or checkpoint, it is another script's, or `words` contradict it.
    """
    from fastdqn.checkpoint import latest_run, newest

    if _value_of("--variant", words) == "all" or (_value_of("--seeds", words) or "1") != "1":
        raise UserError("--resume goes on with one run; leave out --variant all and --seeds.")
    runs_dir = Path(_value_of("--runs-dir", words) or RunOptions().runs_dir)
    folder = latest_run(runs_dir) if resume == "latest" else Path(resume)
    header = newest(folder, _flag("resume-previous", words, False))
    script = Path(sys.argv[0]).stem
    if SCRIPT_OPTIONS.get(header.script) is not options_type or (script in SCRIPT_OPTIONS and script != header.script):
        raise UserError(f"The run {folder} is one of {header.script}; go on with it by that script.")
    saved = cast(OptionsT, options_from({**header.config, "script": header.script}))
    run = dataclasses.replace(saved.run, resume=None, resume_previous=False, runs_dir=runs_dir)
    if _value_of("--device", words) or _flag("cuda", words, False):  # the one that is named now is meant
        run = dataclasses.replace(run, device=None, cuda=False)
    saved = dataclasses.replace(saved, run=run)
    options = parsed(options_type, _with_game_of(saved, words), saved, description, pairs=True)
    before, now = flat(dataclasses.asdict(saved)), flat(dataclasses.asdict(options))
    for name, value in now.items():
        if name not in MAY_CHANGE and value != before[name]:
            raise UserError(
                f"--{name.replace('_', '-')} {value} contradicts the checkpoint {header.path}, which has "
                f"{before[name]}; it cannot change in the middle of a run."
            )
    return dataclasses.replace(options, run=dataclasses.replace(options.run, resume=str(folder)))


def _with_game_of(options: Options, words: list[str]) -> list[str]:
    """Return `words` with the run's own spelling of its game."""
    game = _value_of("--game", words)
    if game is not None and game.strip().lower() == options.run.game.strip().lower():
        return [*words, "--game", options.run.game]
    return words


def with_preset(options: OptionsT, game: str) -> OptionsT:
    """Return `options` with everything that the name of the game implies.

    Raises:
        UserError: there is no such game.
    """
    preset = preset_for(game, game if games.is_custom(game) else games.rom_of(game))
    run = dataclasses.replace(options.run, game=game, stop_score=preset.stop_score, max_env_steps=preset.max_env_steps)
    has = {field.name for field in dataclasses.fields(options)}
    execution = {name: value for name, value in preset.execution.items() if name in has}
    return dataclasses.replace(options, run=run, dqn=preset.dqn, **execution)


def start(train: Callable[[OptionsT], int], options_type: type[OptionsT], description: str | None) -> NoReturn:
    """Run a script: parse, train, and leave with its exit code.

    0 after a run that ended by itself, 130 after Ctrl-C, 2 for a mistake in the options, 1 for a run that failed.
    """
    try:
        options = parse(options_type, description or "")
        try:
            code = train(options)
        except RuntimeError as error:
            if type(error).__name__ != "OutOfMemoryError":
                raise
            raise RunError(_out_of_memory(options)) from error
    except (UserError, RunError) as error:
        print(f"error: {error}", file=sys.stderr)
        code = error.exit_code
    sys.exit(startup.exit_code() or code)


def _out_of_memory(options: Options) -> str:
    """Return the sentence for a CUDA device whose memory did not suffice."""
    import torch

    from fastdqn.replay.frames import frame_replay_bytes, frames_that_fit

    size = options.dqn.replay_size
    peak = torch.cuda.max_memory_allocated()
    said = "The memory of the CUDA device did not suffice; lower --batch-size"
    if peak < frame_replay_bytes(size):  # the replay was not there: it is not what takes the memory
        return f"{said}."
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
