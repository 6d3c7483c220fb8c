"""The command line of the scripts: options from groups, mistakes as one sentence."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from fastdqn import process
from fastdqn.cli.parser import parsed
from fastdqn.cli.resuming import resumed_options
from fastdqn.cli.train import scripts
from fastdqn.cli.words import asked, dashed, flag, value_of
from fastdqn.envs import games
from fastdqn.errors import RunError, UserError, told
from fastdqn.options.agents import AGENTS
from fastdqn.options.dqn import AgentName
from fastdqn.options.game import OWN_GAME, PRESENTATIONS, ProtocolName
from fastdqn.options.groups import Groups, check, defaults_of, groups_of
from fastdqn.options.idle import idle_notes, refuse_idle
from fastdqn.options.parts import VARIANTS
from fastdqn.options.presets import NO_EPSILON, agents_of, changed, record_changes, with_names
from fastdqn.options.ranks import published_changes
from fastdqn.options.run import STOP_EPSILON
from fastdqn.terminal import complain, console, typed

if TYPE_CHECKING:
    from fastdqn.runs.ranked import FollowingRun
    from fastdqn.runs.run import Run

OptionsT = TypeVar("OptionsT")


def start(
    train: Callable[[OptionsT], Run | FollowingRun | int],
    options_type: type[OptionsT],
    description: str | None,
    game: str = "pong",
    device: str | None = None,
    others: Mapping[str, tuple[type[Any], str]] | None = None,
) -> NoReturn:
    """Run a script: parse, train, play fresh games if that was solved, and leave with its exit code.

    0 after a run that ended by itself, 128 and its number after a signal (130 after Ctrl-C), 2 for a mistake in the
    options, 3 for a checkpoint that cannot be resumed, 1 for a run that failed, or that could not be saved after
    Ctrl-C.

    Args:
        train: of the script, whose name is its file's; returns its run, or an exit code if it was none of its own.
        options_type: a dataclass of groups.
        description: what --help begins with.
        game: the default of --game.
        device: the default of --device.
        others: for values of --algorithm, another dataclass of groups and another default of --game.
    """
    process.take_over()
    script = Path(inspect.getfile(train)).stem
    try:
        options = parse(options_type, description or "", game=game, device=device, script=script, others=others)
        _say_idle(groups_of(options), sys.argv[1:])
        try:
            code = _trained(train, options)
        except (RuntimeError, MemoryError) as error:
            sentence = _out_of_memory(error, options)
            if sentence is None:
                raise
            raise RunError(sentence) from error
    except (UserError, RunError, OSError) as error:
        sentence = told(error)
        if sentence is None:
            raise
        complain(f"error: {sentence}")
        code = sentence.exit_code
    process.leave(code or process.exit_code())


def _say_idle(groups: Groups, words: Sequence[str]) -> None:
    """Say which of the options that were asked for change nothing, and whether one leaves no stop score; of several
    ranks the first one does.
    """
    if os.environ.get("RANK", "0") == "0":
        name = groups.game.name
        pictures = None if games.is_custom(name) and not games.is_own_id(name) else games.is_atari(name)
        for note in idle_notes(groups, asked(words), pictures, not games.is_atari(name)):
            console().print(note, soft_wrap=True)
        low = groups.dqn is not None and groups.dqn.epsilon_final < STOP_EPSILON
        if low and groups.run.stop_score is None and value_of("--epsilon-final", words) is not None:
            said = f"no stop score: games count from an epsilon of {STOP_EPSILON:g} on"
            console().print(f"{said}, and --epsilon-final is less", soft_wrap=True)


def _trained(train: Callable[[Any], Run | FollowingRun | int], options: Any) -> int:
    """Train, in as many processes as `options` ask for; return the exit code."""
    if groups_of(options).ranks is None:
        return _examined(train(options))
    from fastdqn.execution.launch import launch

    return launch(train, options, Path(inspect.getfile(train)), _examined)


def _examined(run: Run | FollowingRun | int) -> int:
    """Do what follows a run; return its exit code."""
    from fastdqn.runs.checkpoint import checkpoints_in
    from fastdqn.runs.run import Run
    from fastdqn.tools.fresh import play_fresh

    if not isinstance(run, Run):
        return run if isinstance(run, int) else 0
    saved = [int(path.stem) for path in checkpoints_in(run.folder)]
    if run.reason == "interrupted" and saved:
        there = f"env step {saved[-1]:,}" + (", the newest checkpoint" if saved[-1] != run.env_steps else "")
        own = games.named_again(run.game)
        console().print(f"--resume {typed(run.folder)}{own} resumes at {there}", soft_wrap=True)
    play_fresh(run)
    return 0


def parse(
    options_type: type[OptionsT],
    description: str,
    argv: Sequence[str] | None = None,
    game: str = "pong",
    device: str | None = None,
    script: str | None = None,
    others: Mapping[str, tuple[type[Any], str]] | None = None,
) -> OptionsT:
    """Return the options that `argv` (default: the command line) asks for.

    The names of game, agent, variant and protocol give the defaults, so that `--help --agent rainbow` shows Rainbow's.
    Groups that they do not know keep their own.

    Raises:
        UserError: no such game or option, a value out of range, or options that contradict each other.
        SystemExit: after `--help`.
    """
    words = [dashed(word) for word in (sys.argv[1:] if argv is None else argv)]
    ranks = groups_of(defaults_of(options_type)).ranks is not None
    if ranks or "WORLD_SIZE" in os.environ:
        from fastdqn.execution.launch import refuse_others, words_of_environment

        if ranks:
            words = words_of_environment(words, value_of("--processes", words))
        else:
            refuse_others()
    others = others or {}
    resume = value_of("--resume", words)
    if resume is not None:
        kinds = [kind for kind, _ in others.values()]
        options = resumed_options(options_type, description, words, resume, script, game, kinds)
        check(options)
        return _with_stop_score(options, words)
    if flag("resume-previous", words, False):
        raise UserError("--resume-previous goes with --resume, which names the run.")
    algorithms = {
        "another --algorithm": options_type,
        **{f"--algorithm {name}": kind for name, (kind, _) in others.items()},
    }
    options_type, game = others.get(value_of("--algorithm", words) or "", (options_type, game))
    defaults = _defaults(options_type, words, game, device)
    elsewhere = {said: kind for said, kind in algorithms.items() if kind is not options_type}
    options = parsed(options_type, words, defaults, description, pairs=True, others=elsewhere)
    check(options)
    refuse_idle(groups_of(options), asked(words))
    return _completed(_with_stop_score(options, words))


def _defaults(options_type: type[OptionsT], words: Sequence[str], game: str, device: str | None) -> OptionsT:
    """Return what the names on the command line imply: game, agent, protocol, variant and parts.

    Names that do not exist imply nothing here: the parser refuses them.
    """
    defaults = changed(defaults_of(options_type), {"run": {"device": device}})
    named, had = value_of("--game", words) or game, groups_of(defaults)
    if had.continuous:
        games.control_id(named)  # raises the sentence for what it is not
    custom = games.is_custom(named) and not games.is_own_id(named) if had.dqn else not games.is_atari(named)
    rom = (games.registered_id(named) or named) if custom else games.rom_of(named, had.dqn is None)
    agent, variant, protocol = (value_of(option, words) for option in ("--agent", "--variant", "--protocol"))
    if agent in AGENTS:
        _check_has(had, cast(AgentName, agent))
    defaults = with_names(
        defaults,
        named,
        rom,
        cast(AgentName, agent) if agent in AGENTS else None,
        variant if had.variant is not None and variant in VARIANTS else None,
    )
    if custom:
        defaults = changed(defaults, {"game": OWN_GAME})
    if protocol is None and had.evaluation is not None and not custom:
        protocol = "atari-100k"
        defaults = changed(defaults, {"game": {"protocol": protocol}})
    if protocol in PRESENTATIONS:
        if custom:
            raise UserError(f"The protocol {protocol} is for Atari's games; {named} has rules of its own.")
        defaults = changed(defaults, {"game": PRESENTATIONS[cast(ProtocolName, protocol)]})
    if had.ranks is not None and flag("published", words, False):
        if had.dqn is not None:
            raise UserError("--published has settings for PPO and soft actor-critic; leave it out.")
        world = value_of("--processes", words) or "1"
        if world.isdecimal() and int(world) > 0:  # the parser refuses others
            defaults = changed(defaults, published_changes(rom, int(world), bool(had.continuous)))
    chosen = groups_of(defaults)
    explores = chosen.dqn is not None and AGENTS[chosen.dqn.agent].explores
    if chosen.parts is not None and not explores and flag("noisy", words, chosen.parts.noisy):
        defaults = changed(defaults, NO_EPSILON)
    if chosen.parts is not None and value_of("--noise", words) == "independent":
        defaults = changed(defaults, {"parts": {"noisy_sigma": None}})  # an agent's is that of the factorised noise
    if chosen.freeze is not None and chosen.dqn is not None:
        from fastdqn.execution.devices import has_gpu

        gpu = has_gpu(value_of("--device", words) or device, flag("cuda", words, False))
        for changes in record_changes(chosen.dqn.agent, rom, gpu):
            defaults = changed(defaults, changes)
    return defaults


def _check_has(groups: Groups, agent: AgentName) -> None:
    """Refuse an agent that is made of what this script lacks.

    Raises:
        UserError: with the first script of the ladder that has it.
    """
    if agent in agents_of(groups):
        return
    needed = AGENTS[agent].needs
    having = [path.name for path in scripts().values() if f"\n    {needed}: " in path.read_text(encoding="utf-8")]
    said = f"; {having[0]} has it" if having else ""
    raise UserError(f"This script lacks what the agent {agent} is made of{said}.")


def _with_stop_score(options: OptionsT, words: Sequence[str]) -> OptionsT:
    """Return `options` without a stop score where no game would count towards it, because epsilon ends below 0.02.

    Raises:
        UserError: the stop score was asked for.
    """
    groups = groups_of(options)
    score, noisy = groups.run.stop_score, groups.parts is not None and groups.parts.noisy
    if score is None or noisy or groups.dqn is None or groups.dqn.epsilon_final >= STOP_EPSILON:
        return options
    if value_of("--stop-score", words) is None:
        return changed(options, {"run": {"stop_score": None}})
    raise UserError(
        f"--stop-score {score:g} counts games that are played with epsilon of at least {STOP_EPSILON:g}, but "
        f"--epsilon-final is {groups.dqn.epsilon_final:g}; raise it, or leave the stop score out."
    )


def _completed(options: OptionsT) -> OptionsT:
    """Return `options` with what the machine or other options settle, which a resumed run keeps: the numbers of games,
    players and sessions, and the env steps over which beta rises or PPO's learning rate falls.

    Raises:
        UserError: beta rises over the whole run, which has no limit, or players cannot share an update out.
    """
    groups = groups_of(options)
    if groups.vector is not None and groups.vector.num_envs is None:
        from fastdqn.envs.many import num_envs_of

        options = changed(options, {"vector": {"num_envs": num_envs_of(groups.vector)}})
        groups_of(options).check()  # what is asked for may not go with so many
    if groups.ppo is not None and groups.ppo.learning_rate_decay is None:
        options = changed(options, {"ppo": {"learning_rate_decay": groups.run.max_env_steps}})
    if groups.players is not None:
        players = groups.players.with_number(process.cores(), groups.shares)
        options = changed(options, {"players": {"players": players}})
    if groups.sessions is not None:
        options = changed(options, {"sessions": {"sessions": groups.sessions.with_number(process.cores())}})
        check(options)  # each session needs a share of the env steps
    if groups.parts is None or not groups.parts.prioritized or groups.parts.importance_decay is not None:
        return options
    if groups.run.max_env_steps is None:
        raise UserError("--importance-decay needs a number of env steps where --max-env-steps is None.")
    return changed(options, {"parts": {"importance_decay": groups.run.max_env_steps}})


def _out_of_memory(error: RuntimeError | MemoryError, options: Any) -> str | None:
    """Return the sentence for a device whose memory did not suffice, None where `error` is of another kind."""
    if isinstance(error, MemoryError) or "DefaultCPUAllocator" in str(error):
        why = next(iter(str(error).splitlines()), "").rpartition("DefaultCPUAllocator: ")[2].rstrip(".")
        return f"The memory of this machine did not suffice{f' ({why})' if why else ''}; lower --batch-size."
    if str(error).startswith("MPS backend out of memory"):  # of a type of its own in newer versions alone
        return "The memory of the MPS device did not suffice; lower --batch-size, or --replay-size, which shares it."
    if type(error).__name__ != "OutOfMemoryError":
        return None
    import torch

    from fastdqn.replay.memory import frame_replay_bytes, frames_that_fit

    groups = groups_of(options)
    dqn, frame_bytes = groups.dqn, 84**2 if groups.vector is None else groups.vector.frame_size**2
    peak = torch.cuda.max_memory_allocated()
    said = "The memory of the CUDA device did not suffice; lower --batch-size"
    if dqn is None or peak < frame_replay_bytes(
        dqn.replay_size, frame_bytes
    ):  # the replay was not there: it takes no memory
        return f"{said}."
    size = dqn.replay_size
    fits = frames_that_fit(size, torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved(), peak, frame_bytes)
    fits = min(fits, size - size // 10)  # what could not be had any more is in no count
    return f"{said}, or keep fewer frames than {size}: --replay-size {fits} would fit."
