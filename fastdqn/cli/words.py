"""What the words of a command line say, before they are parsed: it decides the defaults."""

from __future__ import annotations

from collections.abc import Sequence


def asked(words: Sequence[str]) -> set[str]:
    """Return the options that are named, each as --name, also where --no-name is said."""
    return {dashed(word).partition("=")[0].replace("--no-", "--", 1) for word in words if word.startswith("--")}


def dashed(word: str) -> str:
    """Return an option's name with dashes where it was spelled with underscores."""
    name, equals, value = word.partition("=")
    return f"{name.replace('_', '-')}{equals}{value}" if name.startswith("--") else word


def value_of(option: str, words: Sequence[str]) -> str | None:
    """Return the value that `words` give to `option`, found before the real parse because it decides the defaults."""
    for i, word in reversed(list(enumerate(words))):  # the last one counts, as for every option
        if word.startswith(f"{option}="):
            return word.removeprefix(f"{option}=")
        if word == option and i + 1 < len(words):
            return words[i + 1]
    return None


def flag(name: str, words: Sequence[str], default: bool) -> bool:
    """Return what `words` say of --name and --no-name; the last one counts."""
    said = [word for word in words if word in (f"--{name}", f"--no-{name}")]
    return said[-1] == f"--{name}" if said else default
