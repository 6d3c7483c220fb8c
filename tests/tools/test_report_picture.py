"""The picture of a report: whatever agents are called, and however many there are, it holds their names."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from fastdqn.tools.report.page import own_intervals
from fastdqn.tools.report.picture import draw_report
from fastdqn.tools.report.read import read_report
from tests.helpers.sweeps import make_results


@pytest.mark.parametrize(
    ("agents", "label"),
    [
        (12, "100k-fast, learning rate {}e-4"),
        (3, "100k-fast, learning rate {}e-4, trace decay 0.9, a reset every 40000 updates until 100000"),
        (10, "100k-fast, learning rate {}e-4, trace decay 0.9, a reset every 40000 updates until 100000"),
        (2, "module:a_game_whose_name_is_one_long_word_and_nothing_else_at_all_{}"),
    ],
)
def test_labels_lie_within_the_picture_and_apart(
    agents: int, label: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, path, **_: drawn.append(figure) or path.touch())
    report = read_report([make_results(tmp_path, {"pong": [1.0, 2.0], "alien": [300.0, 500.0]})])
    entries = [report.entries[0]._replace(label=label.format(number)) for number in range(agents)]
    report = report._replace(entries=entries)
    draw_report(report, own_intervals(report), tmp_path / "report.png")
    (figure,) = drawn
    FigureCanvasAgg(figure).draw()
    whole = figure.bbox
    texts = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text()]
    shown = [text for text in texts if text.get_text().replace("\n", "").startswith(label[:9])]
    assert len(shown) >= 3 * agents  # among the aggregates, the profile's lines and the games' marks
    for text in shown:
        box = text.get_window_extent()
        assert whole.x0 <= box.x0 < box.x1 <= whole.x1, text.get_text()
        assert whole.y0 <= box.y0 < box.y1 <= whole.y1, text.get_text()
    for axes in figure.axes:
        legend = axes.get_legend()
        assert legend is None or legend.get_window_extent().width <= whole.width
    rows = [text.get_window_extent() for text in figure.axes[0].get_yticklabels()]
    assert all(below.y1 < above.y0 + 2 for below, above in itertools.pairwise(rows))  # pixels
