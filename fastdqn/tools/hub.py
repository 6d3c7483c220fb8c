"""The Hugging Face hub: three files of a trained network up and down; imported only if it is asked for."""

from __future__ import annotations

import contextlib
import importlib
import re
from collections.abc import Generator
from pathlib import Path
from typing import Any

from fastdqn.errors import RunError, UserError
from fastdqn.tools.share import FILES

PREFIX = "hf:"
"""What a name on the hub begins with, and a folder's does not."""


def is_hub(name: str) -> bool:
    """Tell whether `name` is one on the hub."""
    return name.startswith(PREFIX)


def upload(folder: Path, name: str, private: bool) -> str:
    """Send the files in `folder` to `hf:owner/name`, and return where they are to be found.

    Raises:
        UserError: `name` is none, huggingface_hub is not installed, or the repository is there and public, where a
            private one is asked for.
        RunError: the hub does not take them.
    """
    repository, revision = _parts(name)
    if revision is not None:
        raise UserError(f"{name}: leave out @{revision}; what is pushed becomes the newest.")
    hub = _imported()
    with _said(f"{name} cannot be pushed"):
        api = hub.HfApi()
        api.create_repo(repository, private=private or None, exist_ok=True)  # None: as its owner's are by default
        public = private and not api.repo_info(repository).private
    if public:  # the hub does not say so: what is there stays as it is
        raise UserError(f"{name} is there and public, and --private changes no repository; nothing was pushed.")
    with _said(f"{name} cannot be pushed"):
        api.upload_folder(
            repo_id=repository,
            folder_path=str(folder),
            allow_patterns=list(FILES),
            commit_message="Weights trained by fastdqn",
        )
    return f"https://huggingface.co/{repository}"


def download(name: str, folder: Path) -> None:
    """Fetch the files of `hf:owner/name`, or of a revision `@...` of it, into `folder`; no other file of it is.

    Raises:
        UserError: `name` is none, or huggingface_hub is not installed.
        RunError: the hub does not give them.
    """
    repository, revision = _parts(name)
    hub = _imported()
    with _said(f"{name} cannot be pulled"):
        hub.HfApi().snapshot_download(repository, revision=revision, local_dir=str(folder), allow_patterns=list(FILES))


def _parts(name: str) -> tuple[str, str | None]:
    found = re.fullmatch(r"hf:([\w.-]+/[\w.-]+)(?:@([\w./-]+))?", name)
    if found is None:
        raise UserError(f"{name} is no name on the hub; one is hf:owner/name.")
    return found[1], found[2]


def _imported() -> Any:
    try:
        return importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise UserError(
            "The Hugging Face hub needs huggingface_hub, which is not installed: pip install 'fastdqn[hub]'. A folder "
            "as the target or the source needs nothing."
        ) from error


@contextlib.contextmanager
def _said(what: str) -> Generator[None]:
    """Turn whatever the hub's client raises into one sentence."""
    try:
        yield
    except Exception as error:
        why = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise RunError(f"{what}: {why.rstrip('.')}.") from error
