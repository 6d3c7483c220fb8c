"""Where the time of a script goes until it ends: what its main thread is at, looked at every so often.

    python bench/start.py SCRIPT [WORDS OF THE SCRIPT ...]

    python bench/start.py experiments/11_pong_in_seconds.py --max-env-steps 5100 --fresh-games 0 --no-checkpoints

One line for each line of this project's code that was met: the seconds since the start at which it was met first, those
that it took in all, where it stands, and what it says. An import is one line, with all that it imports. A call that
keeps Python's lock is seen when it is over, and has all of its time. What Python itself needs to begin, some hundredths
of a second, is not seen, nor what fastdqn.process is to do first.
"""

import startup  # noqa: F401 - first: Ctrl-C during the imports below

import linecache
import runpy
import sys
import threading
import time
from pathlib import Path
from types import FrameType

EVERY = 0.002
"""Seconds between two looks, where nothing keeps Python's lock."""
LEAST = 0.02
"""Lines that took less are put together."""
ROOT = Path(__file__).resolve().parent.parent
OUTSIDE = (str(ROOT / ".venv"), __file__)
Place = tuple[str, int]
"""File and line."""


class Looks:
    """A thread that looks at what the thread which made it is at.

    Args:
        root: folder of the code whose lines are told apart.
    """

    def __init__(self, root: Path = ROOT) -> None:
        self.first: dict[Place, float] = {}  # seconds since the start
        self.seconds: dict[Place, float] = {}
        self._root = f"{root}/"
        self._watched = threading.get_ident()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._began = time.perf_counter()
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._over.set()
        self._thread.join()

    def told(self) -> list[str]:
        """Return a line for each place, in the order in which they were met."""
        lines: list[str] = []
        for (path, line), first in self.first.items():
            seconds = self.seconds[path, line]
            if seconds >= LEAST:
                name, says = path.removeprefix(self._root), linecache.getline(path, line).strip()
                lines.append(f"{first:6.2f} {seconds:6.2f}  {name}:{line}  {says}")
        return [
            *lines,
            f"       {sum(seconds for seconds in self.seconds.values() if seconds < LEAST):6.2f}  elsewhere",
        ]

    def _look(self) -> None:
        before = self._began
        while not self._over.wait(EVERY):
            frame = sys._current_frames().get(self._watched)  # pyright: ignore[reportPrivateUsage]
            now = time.perf_counter()
            if frame is not None:
                place = self._place(frame)
                self.first.setdefault(place, before - self._began)
                self.seconds[place] = self.seconds.get(place, 0.0) + now - before
            before = now

    def _place(self, frame: FrameType) -> Place:
        """Return the newest call of the folder's code."""
        newest: FrameType | None = frame
        while newest is not None:
            path = newest.f_code.co_filename
            if path.startswith(self._root) and not path.startswith(OUTSIDE):
                return path, newest.f_lineno
            newest = newest.f_back
        return frame.f_code.co_filename, frame.f_lineno


def main() -> int:
    words = sys.argv[1:]
    if not words or words[0] in ("-h", "--help"):
        from fastdqn.terminal import say

        say((__doc__ or "").strip())
        return 0 if words else 2
    if not Path(words[0]).is_file():
        print(f"error: there is no script {words[0]}.", file=sys.stderr)
        return 2
    sys.argv = words
    sys.path.insert(0, str(Path(words[0]).resolve().parent))
    sys.setswitchinterval(EVERY / 2)
    code: object = 0
    looks = Looks()
    try:
        runpy.run_path(str(Path(words[0]).resolve()), run_name="__main__")
    except SystemExit as ended:
        code = ended.code
    looks.stop()
    print("\n".join(looks.told()))
    return code if isinstance(code, int) else int(code is not None)


if __name__ == "__main__":
    sys.exit(main())
