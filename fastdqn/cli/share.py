"""`fastdqn push` and `fastdqn pull`: trained networks to and from others, by a folder or the Hugging Face hub."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import Annotated

import tyro

from fastdqn.cli.folders import RUNS, RunFolder, folder_of
from fastdqn.errors import UserError
from fastdqn.terminal import say, typed


@dataclasses.dataclass(frozen=True)
class Push:
    """Give a trained network to others: its weights, its options and a page about it."""

    run: RunFolder
    """Folder of the run, or "latest" for the newest in --runs-dir."""
    target: Annotated[str, tyro.conf.Positional]
    """A folder that is empty or none yet, or hf:owner/name on the Hugging Face hub."""
    private: bool = False
    """For nobody else on the hub."""
    runs_dir: Path = RUNS
    """Where "latest" looks."""


@dataclasses.dataclass(frozen=True)
class Pull:
    """Fetch a trained network of somebody else's as a run, to evaluate and watch it."""

    source: Annotated[str, tyro.conf.Positional]
    """A folder that was pushed to, or hf:owner/name, or hf:owner/name@revision."""
    into: Path | None = None
    """Where the run is put; by default pulled-NAME in --runs-dir."""
    game: str | None = None
    """The environment of your own that it was trained in, module:function: only if it is named here."""
    runs_dir: Path = RUNS
    """Where runs are."""


def push(options: Push) -> int:
    """Push; return the exit code."""
    run = folder_of(options.run, options.runs_dir)
    from fastdqn.envs.games import named_again
    from fastdqn.runs.folder import read_config
    from fastdqn.tools.hub import is_hub, upload
    from fastdqn.tools.share import pack

    own = named_again(read_config(run)["game"]["name"])
    if not is_hub(options.target):
        if options.private:
            raise UserError("--private is for the hub; a folder has the permissions that you give it.")
        pack(run, Path(options.target))
        say(f"{run}: written to {options.target}; fastdqn pull {typed(options.target)}{own} fetches it")
        return 0
    with tempfile.TemporaryDirectory(prefix="fastdqn-push-") as folder:
        packed = Path(folder) / "packed"
        pack(run, packed)
        where = upload(packed, options.target, options.private)
    say(f"{run}: pushed to {where}; fastdqn pull {typed(options.target)}{own} fetches it")
    return 0


def pull(options: Pull) -> int:
    """Pull; return the exit code."""
    from fastdqn.envs.games import named_again
    from fastdqn.tools.hub import download, is_hub
    from fastdqn.tools.share import unpack

    hub = is_hub(options.source)
    stem = (
        options.source.partition("/")[2].replace("@", "-").replace("/", "-")
        if hub
        else Path(options.source).absolute().name
    )
    into = options.into or options.runs_dir / f"pulled-{stem}"
    if hub:
        with tempfile.TemporaryDirectory(prefix="fastdqn-pull-") as folder:
            download(options.source, Path(folder))
            try:
                unpack(Path(folder), into, options.game, options.source)
            except UserError as error:  # nobody knows the folder that it was fetched into
                raise UserError(str(error).replace(folder, options.source)) from error
    else:
        if not Path(options.source).is_dir():
            raise UserError(f"{options.source}: there is no such folder; a network on the hub is hf:owner/name.")
        unpack(Path(options.source), into, options.game, options.source)
    own = named_again(options.game or "")
    said = f"fastdqn evaluate {typed(into)}{own}, or fastdqn watch {typed(into)}{own}"
    say(f"{options.source}: its run is {into}; {said}")
    return 0
