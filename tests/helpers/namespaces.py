"""Two network namespaces that stand for two machines, with a cable between them that can be cut."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator

ADDRESSES = ("10.77.13.1", "10.77.13.2")
"""Of the two; known to nobody else."""


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Machines:
    """The two; `command(i)` begins a command line that is run in the i-th."""

    def __init__(self) -> None:
        self.names = [f"fastdqn{os.getpid()}{end}" for end in "ab"]

    def command(self, number: int) -> list[str]:
        return ["ip", "netns", "exec", self.names[number]]

    def cut(self) -> None:
        """Cut the cable: what is sent is lost, and nobody is told."""
        for name in self.names:
            _ip("-n", name, "addr", "flush", "dev", "cable")
            _ip("-n", name, "link", "set", "cable", "down")


def can_make() -> bool:
    """Tell whether this process may make namespaces."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    name = f"fastdqn{os.getpid()}try"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode == 0
    if made:
        _ip("netns", "delete", name)
    return made


@contextlib.contextmanager
def two_machines() -> Iterator[Machines]:
    """Make them; nothing of them is left afterwards."""
    machines = Machines()
    one, other = machines.names
    try:
        for name in machines.names:
            _ip("netns", "add", name)
            _ip("-n", name, "link", "set", "lo", "up")
        _ip("-n", one, "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", other)
        for name, address in zip(machines.names, ADDRESSES, strict=True):
            _ip("-n", name, "addr", "add", f"{address}/24", "dev", "cable")
            _ip("-n", name, "link", "set", "cable", "up")
        yield machines
    finally:
        for name in machines.names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)
