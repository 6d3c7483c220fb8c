"""What a container lets its processes have: the limits of Linux's control groups, versions 1 and 2.

Neither the CPUs that a process may run on nor the memory that a system has free say anything of them.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path

OWN = Path("/proc/self/cgroup")
MOUNTED = Path("/sys/fs/cgroup")


@functools.cache
def cpu_quota() -> float | None:
    """Return how many cores' time this process and those beside it may use; None for no limit."""
    quotas: list[float] = []
    for group in _groups("cpu"):
        words = _words(group / "cpu.max")
        if not words:
            words = _words(group / "cpu.cfs_quota_us") + _words(group / "cpu.cfs_period_us")
        with contextlib.suppress(ValueError):  # "max", or too few of them
            quota, period = (int(word) for word in words)
            if quota > 0 and period > 0:  # -1 is no limit
                quotas.append(quota / period)
    return min(quotas, default=None)


def memory_left() -> int | None:
    """Return the bytes that may still be taken before the system kills a process for it; None for no limit.

    What was read from files, and would be given up first, does not count as taken.
    """
    left: list[int] = []
    for group in _groups("memory"):
        for limit, used, whole in (
            ("memory.max", "memory.current", ""),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
        ):
            with contextlib.suppress(ValueError):
                (most,), (taken,) = map(int, _words(group / limit)), map(int, _words(group / used))
                words = _words(group / "memory.stat")
                said = dict(zip(words[::2], map(int, words[1::2]), strict=True))
                files = said.get(f"{whole}inactive_file", 0) + said.get(f"{whole}active_file", 0)
                left.append(max(0, most - max(0, taken - files)))
    return min(left, default=None)


def available_memory() -> int:
    """Return the bytes that this process may still take: those that the system has free, or fewer in a container."""
    import psutil  # which a Python without fastdqn's packages lacks

    free: int = psutil.virtual_memory().available
    left = memory_left()
    return free if left is None else min(free, left)


def what_fits(option: str, most: int) -> str:
    """Return a few words on the largest value of `option` for which there is memory."""
    return f"{option} {most} would fit" if most > 0 else "not even one would fit"


def _groups(controller: str) -> Iterator[Path]:
    """Yield the folders of this process's group that limit what `controller` does, and of those that it is in."""
    with contextlib.suppress(OSError, ValueError):
        for line in OWN.read_text(encoding="utf-8").splitlines():
            _, names, place = line.split(":", 2)
            if controller in names.split(","):
                mounts = [MOUNTED / names, MOUNTED / controller]
            elif not names:
                mounts = [MOUNTED]
            else:
                continue
            mount = next((one for one in mounts if one.is_dir()), None)
            if mount is not None:
                group = mount / place.lstrip("/")
                yield from (group, *(one for one in group.parents if one.is_relative_to(mount)))


def _words(file: Path) -> list[str]:
    """Return the words of a file; none where it cannot be read, as in a container that is not shown its group."""
    with contextlib.suppress(OSError):
        return file.read_text(encoding="utf-8").split()
    return []
