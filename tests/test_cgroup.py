"""Limits of control groups, as files of both versions say them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastdqn import cgroup, process

GB = 1_000_000_000


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with `own`, this process's groups, and `mounted`, their files."""
    monkeypatch.setattr(cgroup, "OWN", tmp_path / "own")
    monkeypatch.setattr(cgroup, "MOUNTED", tmp_path / "mounted")
    (tmp_path / "mounted").mkdir()
    monkeypatch.setattr(cgroup, "cpu_quota", cgroup.cpu_quota.__wrapped__)  # asks each time
    return tmp_path


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text + "\n")


def test_version_2_the_tightest_of_all_groups_around_counts(system: Path) -> None:
    (system / "own").write_text("0::/pods/mine\n")
    inner, outer = system / "mounted" / "pods" / "mine", system / "mounted" / "pods"
    write(inner, cpu__max="350000 100000", memory__max="max", memory__current=str(GB), memory__stat="inactive_file 5")
    said = f"anon 1\ninactive_file {2 * GB}\nactive_file {GB}"
    write(outer, cpu__max="max 100000", memory__max=str(6 * GB), memory__current=str(6 * GB), memory__stat=said)
    assert cgroup.cpu_quota() == 3.5
    assert cgroup.memory_left() == 3 * GB  # what it has of files would be given up
    write(outer, cpu__max="150000 100000")
    assert cgroup.cpu_quota() == 1.5


def test_version_1_as_a_container_sees_it(system: Path) -> None:
    """Its own group is what is mounted, whatever path the system says."""
    (system / "own").write_text("5:memory:/docker/4f\n4:cpu,cpuacct:/docker/4f\n3:cpuset:/docker/4f\n0::/\n")
    write(system / "mounted" / "cpu,cpuacct", cpu__cfs_quota_us="200000", cpu__cfs_period_us="100000")
    limits = {"memory__limit_in_bytes": str(4 * GB), "memory__usage_in_bytes": str(3 * GB)}
    write(system / "mounted" / "memory", **limits, memory__stat=f"inactive_file 1\ntotal_inactive_file {GB}")
    assert (cgroup.cpu_quota(), cgroup.memory_left()) == (2.0, 2 * GB)
    assert cgroup.available_memory() <= 2 * GB
    write(system / "mounted" / "cpu,cpuacct", cpu__cfs_quota_us="-1")
    assert cgroup.cpu_quota() is None


@pytest.mark.parametrize("own", [None, "", "0::/\n", "0::/gone\n4:cpu:/\n", "what is this?\n"])
def test_without_files_there_are_no_limits(system: Path, own: str | None) -> None:
    if own is not None:
        (system / "own").write_text(own)
    assert (cgroup.cpu_quota(), cgroup.memory_left()) == (None, None)


@pytest.mark.parametrize(("quota", "cores"), [(None, 8), (0.5, 1), (2.0, 2), (2.1, 3), (64.0, 8)])
def test_cores_are_those_of_the_quota(monkeypatch: pytest.MonkeyPatch, quota: float | None, cores: int) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(cgroup, "cpu_quota", lambda: quota)
    assert process.cores() == cores
