"""bench/start.py: which lines a start waits for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bench import start
from tests.helpers.scripts import ROOT


def started(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "bench" / "start.py"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_lines_of_this_project_have_their_own_time_and_that_of_what_they_call(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "waits.py").write_text("import time\n\ndef wait(s):\n    time.sleep(s)\n")
    own = tmp_path / "own"
    own.mkdir()
    (own / "does.py").write_text("import waits\nwaits.wait(0.3)\nfor _ in range(3):\n    waits.wait(0.1)\n")
    code = (
        "import runpy, sys; sys.path.append('bench'); from pathlib import Path; from bench import start;"
        f"sys.path.append({str(tmp_path / 'outside')!r}); looks = start.Looks(Path({str(own)!r}));"
        f"runpy.run_path({str(own / 'does.py')!r}); looks.stop(); print('\\n'.join(looks.told()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT, timeout=60
    )
    lines = [line.split(maxsplit=2) for line in done.stdout.splitlines()]
    waited = {rest: (float(first), float(seconds)) for first, seconds, *rests in lines for rest in rests}
    once, thrice = waited["does.py:2  waits.wait(0.3)"], waited["does.py:4  waits.wait(0.1)"]
    assert once[1] > 0.25
    assert thrice[1] > 0.25
    assert thrice[0] - once[0] > 0.25


def test_a_script_keeps_its_words_output_and_exit_code(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import sys\nprint(sys.argv[1:])\nsys.exit(3)\n")
    done = started(str(script), "--a", "b")
    assert (done.returncode, done.stdout.splitlines()[0]) == (3, "['--a', 'b']")
    assert done.stdout.rstrip().endswith("elsewhere")
    missing = started("nowhere.py")
    assert (missing.returncode, missing.stderr) == (2, "error: there is no script nowhere.py.\n")
    assert started("--help").stdout.strip() == (start.__doc__ or "").strip()
