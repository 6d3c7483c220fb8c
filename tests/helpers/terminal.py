"""A terminal that wraps lines which have become too long anew, as most do when they are resized."""

from __future__ import annotations

import io
import re

_TOKEN = re.compile(r"\x1b\[(\??[0-9;]*)([A-Za-z])|(\r)|(\n)|([^\x1b\r\n]+)")


class Terminal(io.StringIO):
    """A file that understands what rich writes: text, line ends, cursor up, erasing a row; it ignores colours."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.rows: list[tuple[str, bool]] = [("", False)]  # text, and whether it goes on in the next row
        self._row = self._column = 0

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        for token in _TOKEN.finditer(text):
            number, letter, back, end, plain = token.groups()
            if letter == "A":
                self._row = max(0, self._row - int(number or 1))
            elif letter == "K":
                assert number == "2"
                self.rows[self._row] = ("", False)
                if self._row and self.rows[self._row - 1][1]:
                    self.rows[self._row - 1] = (self.rows[self._row - 1][0], False)
            elif back:
                self._column = 0
            elif end:
                self._next(False)
            elif plain:
                for letter in plain:
                    self._put(letter)
            else:
                assert letter in ("m", "h", "l"), token[0]
        return len(text)

    def resize(self, width: int) -> None:
        """Wrap every line anew; the cursor stays at its letter."""
        lines: list[str] = [""]
        place = (0, 0)
        for i, (text, goes_on) in enumerate(self.rows):
            if i == self._row:
                place = (len(lines) - 1, len(lines[-1]) + self._column)
            lines[-1] += text
            if not goes_on and i + 1 < len(self.rows):
                lines.append("")
        self.width, self.rows = width, []
        for i, line in enumerate(lines):
            parts = [line[at : at + width] for at in range(0, len(line), width)] or [""]
            if i == place[0]:
                row = min(place[1] // width, len(parts) - 1)
                self._row, self._column = len(self.rows) + row, place[1] - row * width
            self.rows += [(part, j + 1 < len(parts)) for j, part in enumerate(parts)]

    def shown(self) -> list[str]:
        return [text.rstrip() for text, _ in self.rows]

    def _next(self, goes_on: bool) -> None:
        self.rows[self._row] = (self.rows[self._row][0], goes_on)
        self._row, self._column = self._row + 1, 0
        if self._row == len(self.rows):
            self.rows.append(("", False))

    def _put(self, letter: str) -> None:
        if self._column >= self.width:
            self._next(True)
        text = self.rows[self._row][0].ljust(self._column)
        self.rows[self._row] = (text[: self._column] + letter + text[self._column + 1 :], self.rows[self._row][1])
        self._column += 1
