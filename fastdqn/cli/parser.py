"""Command lines from dataclasses, and mistakes as one sentence; imports little, so that --help is quick."""

from __future__ import annotations

import contextlib
import difflib
import inspect
import io
import itertools
import re
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

import tyro

from fastdqn.cli.help import command_name, groups_of, help_of, is_command
from fastdqn.cli.synonyms import answer
from fastdqn.cli.words import value_of
from fastdqn.errors import UserError, listed
from fastdqn.terminal import say

AnyT = TypeVar("AnyT")
_BOX = "╭╮╰╯│─ "
_AT_HOME = re.compile(r"(--[\w-]+=)(~(?:/.*)?)", re.DOTALL)
_FLAG = re.compile(r"--[\w-]+")
_SAYING = threading.Lock()
"""Held while standard streams, which are all threads', are redirected."""


def parsed(
    options_type: Any,
    words: Sequence[str],
    default: AnyT,
    description: str,
    program: str | None = None,
    pairs: bool = False,
    elsewhere: str = "",
    others: Mapping[str, Any] = {},
) -> AnyT:
    """Return `words` parsed by tyro, whose boxed explanations are cut down to their sentence.

    Args:
        options_type: a dataclass, or a union of them for subcommands.
        words: the command line.
        default: what is not said is as here; None for a union.
        description: what --help begins with.
        program: what --help calls the program.
        pairs: whether every flag has both --name and --no-name.
        elsewhere: a sentence that says where else an option that is not known here may belong.
        others: dataclasses that other words would have instead of `options_type`, by these words.

    Raises:
        UserError: an option that does not exist, or a value of the wrong type.
        SystemExit: after `--help`, also if nobody reads it to its end.
    """
    words = [_at_home(word) for word in words]
    command = _command_of(options_type, words)
    if {"-h", "--help"} & set(words):
        called = f"{program} {command_name(command)}" if program and command is not options_type else program
        about = (inspect.getdoc(command) or "") if command is not options_type else description
        say(help_of(command, default, about, called).rstrip("\n"))
        raise SystemExit(0)
    if not is_command(command):
        raise UserError(_no_command(words, command))
    # in which tyro draws its boxes, whatever the terminal can show, and repeats words that may be no text
    said = io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace")
    options: dict[str, Any] = {} if default is None else {"default": default}
    try:
        with _SAYING, contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            parsed_options, unknown = tyro.cli(
                options_type,
                prog=program,
                args=words,
                return_unknown_args=True,
                add_help=False,
                config=(tyro.conf.OmitArgPrefixes, *(() if pairs else (tyro.conf.FlagCreatePairsOff,))),
                **options,
            )
    except SystemExit:
        said.seek(0)
        lines = [line.strip(_BOX) for line in said.read().splitlines()[1:]]
        sentence = " ".join(itertools.takewhile(bool, itertools.dropwhile(lambda line: not line, lines))).rstrip(".")
        sentence = _mistake(sentence, words, command, program)
        raise UserError(f"{sentence or 'The options cannot be understood'}; --help lists all options.") from None
    if unknown:
        raise UserError(_unknown(unknown, command, elsewhere, others, pairs))
    return parsed_options


def _command_of(options_type: Any, words: Sequence[str]) -> Any:
    """Return the dataclass of the subcommand that `words` begin with, else `options_type` itself."""
    if is_command(options_type):
        return options_type
    named = (one for one in get_args(options_type) if words and command_name(one) == words[0])
    return next(named, options_type)


def _no_command(words: Sequence[str], union: Any) -> str:
    """Return the sentence for words that begin with no subcommand."""
    names = [command_name(one) for one in get_args(union)]
    if not words:
        return f"Name a command, one of {', '.join(names)}; --help says what they do."
    meant = difflib.get_close_matches(words[0], names, n=1)
    return f"There is no command {words[0]}; {f'did you mean {meant[0]}?' if meant else '--help lists them all.'}"


def _mistake(sentence: str, words: Sequence[str], command: Any, program: str | None) -> str:
    """Return what is wrong with a value, or what is missing, in our words as far as we have any for tyro's sentence."""
    options = {option.flag: option for group in groups_of(command) for option in group.options}
    found = _FLAG.search(sentence)
    option = options.get(found.group()) if found else None
    said = None if option is None else value_of(option.flag, words)
    if option is not None and (said is not None or option.flag in words):
        if said is None or _FLAG.fullmatch(said):
            return f"{option.flag} needs a value"
        if option.takes:
            takes = option.takes
            if _is_whole(said):
                takes = takes.replace("whole number", f"whole number ({float(said):.0f})")
            return f"{option.flag} takes {takes}, not {said}"
    elif sentence.startswith("Missing"):
        # an argument without a name is told by the beginning of its help
        lacks = [
            one.flag for one in options.values() if one.needed and (one.flag in sentence or one.about[:25] in sentence)
        ]
        needed = lacks or [option.flag for option in options.values() if option.needed]
        needs = f"{f'{program} {command_name(command)}' if program else 'It'} needs {' and '.join(needed)}"
        return needs if needed else sentence
    return sentence


def _is_whole(said: str) -> bool:
    """Tell whether `said` is a whole number that is not written as one, such as 1e6."""
    try:
        return float(said).is_integer()
    except ValueError:
        return False


def _unknown(
    unknown: Sequence[str], command: Any, elsewhere: str, others: Mapping[str, Any], pairs: bool = False
) -> str:
    """Return the sentence for words that are no option of `command`, which says what may have been meant."""
    flags = _flags(command)
    first = next((word for word in unknown if word.startswith("--")), unknown[0]).partition("=")[0]
    plain = first.replace("--no-", "--", 1)
    for words, other in others.items():
        if plain in _flags(other) and plain not in flags:
            return f"There is no option {first} here; {words} has it."
    known = answer(first, flags)
    if known is not None:
        return f"{known} {elsewhere}".rstrip()
    if first.startswith("--no-") and f"--{first[5:]}" in flags:
        return f"There is no option {first}, only --{first[5:]}."
    options = [option for group in groups_of(command) for option in group.options]
    turned_off = [f"--no-{one.flag[2:]}" for one in options if one.off is False or (pairs and one.off is not None)]
    meant = difflib.get_close_matches(first, [*flags, *turned_off], n=1, cutoff=0.75)
    if not meant and "--game" in flags and _is_game(first):
        meant = [f"--game {first}"]
    hint = f"did you mean {meant[0]}?" if meant else "--help lists all options."
    what = f"There is no option {first}" if first.startswith("-") else f"Nothing takes {listed(unknown)} here"
    return f"{what}; {hint} {elsewhere}".rstrip()


def _is_game(word: str) -> bool:
    """Tell whether `word` alone may have been meant as a game."""
    from fastdqn.envs.games import registered_id, rom_of

    try:
        return bool(word) and bool(rom_of(word))
    except UserError:
        return registered_id(word) is not None


def _flags(command: Any) -> list[str]:
    return [option.flag for group in groups_of(command) for option in group.options]


def _at_home(word: str) -> str:
    """Return a word with the home folder that a shell leaves as ~ in --runs-dir=~/runs."""
    found = _AT_HOME.fullmatch(word)
    return word if found is None else found[1] + str(Path(found[2]).expanduser())
