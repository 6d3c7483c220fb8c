"""`make engines` without an engine: where Java comes from, and that nothing is skipped in silence without it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.helpers.scripts import ROOT

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
SEVENTEEN, DEFAULT = "openjdk-17-jre-headless", "default-jre-headless"


class Machine:
    """A machine whose programs are toys: packages that it has bring a Java, and all that is called is written down."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.said = folder / "said.txt"
        self.said.touch()
        self.java = folder / "java" / "bin" / "java"
        self.java.parent.mkdir(parents=True)
        (folder / "venv" / "bin").mkdir(parents=True)
        self._program("venv/bin/python", f'echo "python $*" >> {self.said}')
        self._program("id", 'echo "$TOY_USER"')
        brings = f'echo "#!/bin/sh" > {self.java} && chmod +x {self.java}'
        install = f'case "$TOY_PACKAGES" in *"$4"*) {brings} ;; *) exit 100 ;; esac'
        self._program("apt-get", f'echo "apt-get $*" >> {self.said}\n[ "$1" = update ] || {install}')
        ready = folder / "venv" / "ready"
        ready.touch()
        newest = max((ROOT / name).stat().st_mtime_ns for name in ("pyproject.toml", "constraints.txt"))
        os.utime(ready, ns=(newest, newest))

    def _program(self, name: str, text: str) -> None:
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        path.chmod(0o755)

    def make(self, user: int, packages: str, *words: str) -> tuple[int, list[str], str]:
        """Make engines; return the exit code of make, what was called, and what was said on standard error."""
        environment = {
            "PATH": f"{self.folder}:/usr/bin:/bin",
            "JAVA_HOME": str(self.folder / "java"),
            "TOY_USER": str(user),
            "TOY_PACKAGES": packages,
        }
        command = ["make", "-s", "engines", f"VENV={self.folder / 'venv'}", *words]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        return done.returncode, self.said.read_text(encoding="utf-8").splitlines(), done.stderr


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def installed(called: list[str]) -> list[str]:
    """Return the packages that were asked for, in turn."""
    return [line.rpartition(" ")[2] for line in called if line.startswith("apt-get install ")]


@pytest.mark.parametrize(
    ("packages", "asked"), [(f"{SEVENTEEN} {DEFAULT}", [SEVENTEEN]), (DEFAULT, [SEVENTEEN, DEFAULT])]
)
def test_java_comes_from_the_systems_packages(machine: Machine, packages: str, asked: list[str]) -> None:
    code, called, _ = machine.make(0, packages)
    assert code == 0
    assert installed(called) == asked
    assert [line.split()[2] for line in called if line.startswith("python")] == ["pip", "pytest"]
    assert ".[engines]" in called[-2]


@pytest.mark.parametrize(("user", "asked"), [(0, [SEVENTEEN, DEFAULT]), (1000, [])])
def test_without_java_it_fails_in_one_sentence(machine: Machine, user: int, asked: list[str]) -> None:
    code, called, said = machine.make(user, "")
    assert code != 0
    assert installed(called) == asked
    assert not any(line.startswith("python") for line in called)
    assert [line for line in said.splitlines() if "NO_SPARK=1" in line] == [said.splitlines()[0]]


def test_a_java_that_is_there_stays(machine: Machine) -> None:
    machine._program("java/bin/java", "")
    code, called, _ = machine.make(0, SEVENTEEN)
    assert code == 0
    assert installed(called) == []
    assert len(called) == 2


def test_spark_can_be_left_out(machine: Machine) -> None:
    code, called, _ = machine.make(0, SEVENTEEN, "NO_SPARK=1")
    assert code == 0
    assert installed(called) == []
    assert called[0].endswith("--editable .[ray,sb3]")
    assert called[1] == "python -m pytest -m engines"
