"""What --help prints: options by group, the common ones first, wrapped to the terminal.

tyro parses. Its own help has no group beside the dataclasses' own, wraps no description, and keeps the line breaks of
docstrings.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import re
import shutil
import sys
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import tyro
from rich.text import Text

from fastdqn import terminal
from fastdqn.options.groups import defaults_of, flag_of
from fastdqn.options.groups import groups_of as known_groups
from fastdqn.options.presets import agents_of
from fastdqn.options.texts import said_of

COMMON = (
    *("--game", "--agent", "--protocol", "--variant", "--cuda", "--device", "--seed"),
    *("--max-env-steps", "--max-minutes", "--stop-score", "--resume", "--runs-dir"),
)
"""Options that stand before all others, in this order."""
_WIDEST = 110
"""Columns; longer lines are hard to read."""
_NARROW = 60
"""Columns; in fewer, what an option means stands below it."""
_LONGEST_CHOICES, _LONGEST_OR_NONE = 30, 20
_NO_BREAK = "\xa0"
_TYPES = {int: "INT", float: "FLOAT", str: "STR", Path: "PATH"}
_IN_WORDS = {int: "a whole number", float: "a number"}


class Option(NamedTuple):
    """An option as --help shows it."""

    flag: str
    invocation: str
    about: str
    needed: bool = False
    takes: str = ""
    """What a value has to be, in words; empty where anything will do."""
    off: bool | None = None
    """Of a flag whether it is off by default; None for an option that takes a value."""


class OptionGroup(NamedTuple):
    """Options that stand together, below a line that says what they are about."""

    about: str
    options: list[Option]


def is_command(kind: Any) -> bool:
    """Tell whether `kind` is one dataclass of options, not a union of them for subcommands."""
    return dataclasses.is_dataclass(kind)


def command_name(kind: type[Any]) -> str:
    """Return what tyro calls a dataclass that is a subcommand: dashes between the words of its name."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", kind.__name__).lower()


def groups_of(kind: type[Any], default: Any = None) -> list[OptionGroup]:
    """Return the groups of a script's options, or of one command's, the common options first.

    Args:
        kind: a dataclass of groups, or a dataclass of options.
        default: says the defaults; None for the fields' own.
    """
    hints = get_type_hints(kind)
    composed = {f.name: hints[f.name] for f in dataclasses.fields(kind) if dataclasses.is_dataclass(hints[f.name])}
    if not composed:
        return [OptionGroup("Options", list(_options_of(kind, default)))]
    known = known_groups(defaults_of(kind))
    said, having = said_of(known), {"agent": agents_of(known)}
    found = [
        OptionGroup(
            _about(group, name),
            list(_options_of(group, None if default is None else getattr(default, name), said, having)),
        )
        for name, group in composed.items()
    ]
    every = {option.flag: option for group in found for option in group.options}
    common = OptionGroup("Common options", [every[flag] for flag in COMMON if flag in every])
    others = [OptionGroup(about, [one for one in options if one.flag not in COMMON]) for about, options in found]
    return [group for group in (common, *others) if group.options]


def help_of(kind: Any, default: Any, description: str, program: str | None) -> str:
    """Return what --help prints, as wide as the terminal (80 columns where there is none; COLUMNS says otherwise).

    Args:
        kind: a dataclass of options, a dataclass of groups of them, or a union of dataclasses for subcommands.
        default: an instance of it that says the defaults; None for the fields' own.
        description: paragraphs; what is indented stays as it is.
        program: as it is called; None for the script that runs.
    """
    width = max(40, min(shutil.get_terminal_size().columns, _WIDEST))
    script = sys.argv[0]
    program = program or (f"python {script}" if script.endswith(".py") else script)
    if is_command(kind):
        groups = groups_of(kind, default)
        flags = [option for group in groups for option in group.options]
        places = "".join(f" {option.invocation}" for option in flags if not option.flag.startswith("-"))
        usage = f"{program}{places} [OPTIONS]"
    else:
        commands = [Option("", command_name(one), _doc(one)) for one in get_args(kind)]
        groups = [OptionGroup("Commands", commands)]
        usage = f"{program} COMMAND [OPTIONS]"
    usage = textwrap.wrap(f"usage: {usage}", width, subsequent_indent=" " * 7, break_on_hyphens=False)
    lines = [*map(Text, usage), Text(""), *map(Text, wrapped(description, width))]
    longest = max(len(option.invocation) for group in groups for option in group.options)
    for group in groups:
        lines += [Text(""), *(Text(line, "bold") for line in textwrap.wrap(group.about, width))]
        lines += columns([(option.invocation, option.about) for option in group.options], width, longest)
    return rendered(lines)


def rendered(lines: Sequence[Text]) -> str:
    """Return these lines as they are printed here: with colours on a terminal, as plain text elsewhere."""
    console = terminal.console()
    with console.capture() as captured:
        for line in lines:
            console.print(line, crop=False, overflow="ignore", soft_wrap=True)
    return captured.get()


def columns(rows: Sequence[tuple[str, str]], width: int, longest: int) -> list[Text]:
    """Return rows of two columns, the second one wrapped; what is too long for the first has a line of its own.

    Args:
        rows: of the two columns.
        width: of both.
        longest: what the first has to hold, if there is room for it.
    """
    left = 6 if width < _NARROW else min(longest, 22 if width < 100 else 28) + 4
    lines: list[Text] = []
    for name, about in rows:
        text = textwrap.wrap(about, max(width - left, 20), break_on_hyphens=False) or [""]
        text = [line.replace(_NO_BREAK, " ") for line in text]
        first = "" if len(name) > left - 4 else text.pop(0)
        lines.append(Text.assemble("  ", (name, "cyan"), " " * (left - 2 - len(name)) if first else "", first))
        lines += [Text(" " * left + line) for line in text]
    return lines


def wrapped(text: str, width: int) -> list[str]:
    """Return the lines of paragraphs, wrapped; indented lines stay lines of their own."""
    lines: list[str] = []
    for paragraph in text.strip("\n").split("\n\n"):
        if paragraph.startswith(" "):
            for line in paragraph.splitlines():
                lines += textwrap.wrap(line, width, subsequent_indent=" " * 8, break_on_hyphens=False)
        else:
            lines += textwrap.wrap(" ".join(paragraph.split()), width, break_on_hyphens=False)
        lines.append("")
    return lines[:-1]


def _about(kind: type[Any], name: str) -> str:
    """Return the first sentence of the docstring of a group, else the name of its field."""
    return re.split(r"\.(?: (?=[A-Z])|$)", _doc(kind))[0] or f"{name} options"


def _doc(kind: type[Any]) -> str:
    """Return the docstring of a dataclass, empty if dataclasses wrote it."""
    said = kind.__doc__ or ""
    return "" if said.startswith(f"{kind.__name__}(") else " ".join(said.split())


def _options_of(
    kind: type[Any],
    default: Any,
    said: Mapping[str, str | None] | None = None,
    having: Mapping[str, Collection[str]] | None = None,
) -> Iterator[Option]:
    """Yield the options of a group.

    Args:
        kind: the dataclass of the group.
        default: says the defaults; None for the fields' own.
        said: other words for some fields, and None for those to leave out.
        having: of the choices of some fields, those that the script has; all for other fields.
    """
    hints = get_type_hints(kind, include_extras=True)
    about = {**_field_docs(kind), **(said or {})}
    for field in dataclasses.fields(kind):
        if tyro.conf.Suppress in get_args(hints[field.name])[1:] or about.get(field.name, "") is None:
            continue
        value: Any = field.default if default is None else getattr(default, field.name)
        text, kinds, choices = about.get(field.name) or "", [*_plain(hints[field.name])], ""
        or_none = "|None" if type(None) in kinds and value is not None else ""
        literals = [str(one) for kind_ in kinds if get_origin(kind_) is Literal for one in get_args(kind_)]
        if having and field.name in having:
            literals = [one for one in literals if one in having[field.name]]
        if literals:
            choices = f"{{{','.join(literals)}}}"
            if len(choices) > (_LONGEST_CHOICES if not or_none else _LONGEST_OR_NONE):
                choices, text = "NAME", f"{text} One of {', '.join(literals)}."
        numbers = [_IN_WORDS[one] for one in kinds if one in _IN_WORDS]
        takes = f"one of {', '.join(literals)}" if literals else " or ".join(numbers)
        if takes and type(None) in kinds and "None" not in literals:
            takes += " or None"
        metavar = choices or "|".join(_TYPES.get(one, "VALUE") for one in kinds if one is not type(None))
        metavar += or_none
        positional = tyro.conf.Positional in get_args(hints[field.name])[1:]
        flag = field.name.upper() if positional else flag_of(kind, field.name)
        if positional:
            place = flag if field.default is dataclasses.MISSING else f"[{flag}]"
            invocation = f"{place} ..." if any(get_origin(one) is tuple for one in kinds) else place
        elif kinds == [bool]:
            invocation = f"--[no-]{flag[2:]}" if value is True else flag
        else:
            invocation = f"{flag} {metavar}"
        needed = default is None and field.default is field.default_factory is dataclasses.MISSING
        off = value is not True if kinds == [bool] else None
        yield Option(flag, invocation, f"{text}{_default(value)}".strip(), needed, takes, off)


def _default(value: Any) -> str:
    if value is dataclasses.MISSING or value is None or value is False or value in ("", ()):
        return ""
    return f" (default:{_NO_BREAK}{'on' if value is True else value})"


def _plain(hint: Any) -> Iterator[Any]:
    """Yield the types that an annotation allows."""
    if get_origin(hint) is Annotated:
        yield from _plain(get_args(hint)[0])
    elif get_args(hint) and get_origin(hint) not in (Literal, tuple):
        for one in get_args(hint):
            yield from _plain(one)
    else:
        yield hint


def _field_docs(kind: type[Any]) -> dict[str, str]:
    """Return the strings below the fields of a dataclass, each on one line."""
    docs: dict[str, str] = {}
    for one in reversed([base for base in kind.__mro__ if dataclasses.is_dataclass(base)]):
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(one))).body
        body = tree.body if isinstance(tree, ast.ClassDef) else []
        for field, below in itertools.pairwise(body):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(below, ast.Expr)
                and isinstance(below.value, ast.Constant)
            ):
                docs[field.target.id] = " ".join(str(below.value.value).split())
    return docs
