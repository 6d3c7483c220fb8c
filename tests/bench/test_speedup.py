"""bench/speedup.py and bench/scaling.py: figures by hand, published settings word by word, mistakes, small runs."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from bench import scaling, speedup
from bench.scaling import Link, ScalingOptions, all_reduce_seconds, fitted, speed_up, table
from bench.speedup import (
    PLAIN,
    SpeedupOptions,
    Trial,
    bench,
    command_of,
    curve_of,
    draw,
    draw_sizes,
    label,
    lines_of_sizes,
    said,
    sizes_of,
    speed_ups,
)
from fastdqn.errors import UserError
from fastdqn.execution.same_machine import network_here
from tests.helpers import forks
from tests.helpers.scripts import parse, summary

TRIALS = [
    Trial(PLAIN, 110.0, 1000, 10, [(500, 50.0, 1.0), (1000, 110.0, 2.0)]),
    Trial(1, 100.0, 1000, 10, [(1000, 100.0, 2.0)]),
    Trial(4, 125.0, 4000, 10, [(2000, 60.0, 1.5), (4000, 125.0, 3.0)]),
]


def test_speed_ups_by_hand() -> None:
    """Four times the env steps in 1.25 times the time: 3.2."""
    assert speed_ups(TRIALS) == {1: 1.0, 4: pytest.approx(3.2)}
    lines = said(TRIALS)
    assert lines[0] == "Run times"
    assert "  plain: 110.0 s, 1,000 env steps" in lines
    assert lines[-3:] == ["Speedups", "  1 process: 1.00", "  4 processes: 3.20"]


def test_games_that_are_counted_together_are_one_point() -> None:
    lines = [(8, 1.0, None), (8, 1.1, 3.0), (8, 1.2, 4.0), (16, 2.0, 5.0)]
    games = [dict(zip(("env_steps", "elapsed", "mean_100"), line, strict=True)) for line in lines]
    assert curve_of(games) == [(8, 1.2, 4.0), (16, 2.0, 5.0)]


def test_a_rollout_is_divided_among_the_processes() -> None:
    options = SpeedupOptions(env_steps_each=100, total_rollout_steps=64)
    for world, steps in ((PLAIN, 64), (1, 64), (4, 16)):
        command = command_of("ppo", world, options, {}, "somewhere")
        parsed = parse(Path(command[1]).stem, *command[2:])
        assert (parsed.ppo.rollout_steps, parsed.run.max_env_steps) == (steps, 100 * max(world, 1))


def test_four_figures_and_one_of_sizes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Looked at is what is drawn when a figure is saved: its lines, bars and labels."""
    panels: list[Any] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, path, **__: panels.extend(figure.axes) or path.touch())
    written = draw("ppo", TRIALS, 1, tmp_path / "speedup-ppo")
    assert [path.name.rpartition("-")[2] for path in written] == ["process.png", "total.png", "time.png", "speedup.png"]
    across = [[500, 1000], [1000], [500, 1000]], [[500, 1000], [1000], [2000, 4000]], [[50, 110], [100], [60, 125]]
    for panel, expected in zip(panels, across, strict=False):
        lines = panel.get_lines()
        assert [list(line.get_xdata()) for line in lines] == expected
        assert [list(line.get_ydata()) for line in lines] == [[1.0, 2.0], [2.0], [1.5, 3.0]]
        assert [line.get_label() for line in lines] == [label(PLAIN), label(1), label(4)]
    assert [panel.get_xlabel() for panel in panels[:3]] == [
        "env steps a process",
        "env steps of all processes",
        "wall time, s",
    ]
    assert [bar.get_height() for bar in panels[3].patches] == pytest.approx([1.0, 3.2, 1.0, 4.0])
    draw_sizes("sac", {(256, 64): 1.2, (1024, 64): 1.6, (256, 128): 1.4}, 2, 1, tmp_path / "sizes.png")
    drawn = {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in panels[4].get_lines()}
    assert drawn["64 units"] == ([256, 1024], [1.2, 1.6])
    assert drawn["128 units"] == ([256], [1.4])
    assert drawn["ideal"][1] == [2, 2]
    assert panels[4].get_xlabel() == "batch of each process"
    assert len(panels) == 5


def test_sizes_that_are_not_asked_for_are_those_of_the_algorithm() -> None:
    assert sizes_of("ppo", SpeedupOptions()) == [{}]
    hidden = SpeedupOptions(hidden="64,1024")
    assert sizes_of("ppo", hidden) == [{"batch_size": 4096, "hidden": size} for size in (64, 1024)]
    batches = SpeedupOptions(batch_sizes="256,512")
    assert sizes_of("sac", batches) == [{"batch_size": size, "hidden": 256} for size in (256, 512)]


def test_speed_ups_are_drawn_over_what_has_several_sizes() -> None:
    """With one batch size alone all points would lie above each other."""
    assert lines_of_sizes({(4096, 64): 1.2, (4096, 1024): 1.6}) == (
        "units of each hidden layer",
        {"batches of 4096": [(64, 1.2), (1024, 1.6)]},
    )
    assert lines_of_sizes({(512, 64): 1.6, (256, 64): 1.2, (256, 128): 1.4, (512, 128): 1.7}) == (
        "batch of each process",
        {"64 units": [(256, 1.2), (512, 1.6)], "128 units": [(256, 1.4), (512, 1.7)]},
    )


NO_PYGAME = 'no GIFs: CartPole-v1 cannot be drawn: pygame is not installed, run `pip install "gymnasium[classic'


def forked(command: list[str], _: str) -> str:
    """Run a program without the seconds that its imports take."""
    done = forks.run(command[1:])
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_small_run_leaves_records_figures_and_agents_to_look_at(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(speedup, "said_by", forked)
    words: dict[str, Any] = {"env_steps_each": 64, "total_rollout_steps": 64, "batch_sizes": "16,32"}
    assert bench(SpeedupOptions(only="ppo", processes="2", out=tmp_path, **words)) == 0
    (file,) = tmp_path.glob("*.jsonl")
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    trials = [line for line in lines if line["kind"] == "trial"]
    assert [(one["batch_size"], one["world"]) for one in trials] == [
        (batch, world) for batch in (16, 32) for world in (PLAIN, 1, 2)
    ]
    assert all(one["total"] >= 64 * max(one["world"], 1) and one["wall"] > 0 < one["updates"] for one in trials)
    gains = [line["speed_ups"] for line in lines if line["kind"] == "row"]
    assert [set(one) for one in gains] == [{"1", "2"}] * 2
    assert (tmp_path / f"{file.stem}-ppo-sizes.png").exists()
    run = next((tmp_path / file.stem / "ppo-b16-h64-2").iterdir())
    assert (run / "weights.safetensors").exists()
    assert summary(run)["env_steps"] == trials[2]["total"]
    drawn = sorted(path.name for path in tmp_path.glob("*.gif"))
    assert drawn == [f"{file.stem}-ppo-b{b}-h64-{kind}.gif" for b in (16, 32) for kind in ("trained", "untrained")] or (
        drawn == [] and capsys.readouterr().out.count(NO_PYGAME) == 2
    )


def test_both_agents_are_drawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    drawn: list[tuple[str, bool]] = []
    monkeypatch.setattr(speedup, "watch", lambda asked: drawn.append((asked.out.name, asked.untrained)))
    speedup.draw_games(tmp_path, tmp_path / "now-ppo")
    assert drawn == [("now-ppo-untrained.gif", True), ("now-ppo-trained.gif", False)]


@pytest.mark.parametrize("world", [PLAIN, 1, 4])
@pytest.mark.parametrize("name", ["ppo", "sac"])
def test_runs_have_the_published_settings(name: str, world: int) -> None:
    options = SpeedupOptions(env_steps_each=6_000, total_rollout_steps=32_768)
    command = command_of(name, world, options, {"batch_size": 512, "hidden": 32}, "somewhere")
    script = Path(command[1]).stem
    parsed = parse(script, *command[2:])
    published = parse("41_ppo_ranks" if name == "ppo" else "42_sac_ranks", *_published(name, max(world, 1)))
    ours, theirs = (getattr(one, name) for one in (parsed, published))
    for field in ("learning_rate", "gamma", "replay_size" if name == "sac" else "rollout_steps"):
        assert getattr(ours, field) == getattr(theirs, field), field
    assert (ours.batch_size, ours.hidden, parsed.run.max_env_steps) == (512, 32, 6_000 * max(world, 1))
    assert ("ranks" in script) == (world != PLAIN)


def _published(name: str, world: int) -> tuple[str, ...]:
    return ("--game", "CartPole-v1" if name == "ppo" else "Pendulum-v1", "--published", "--processes", str(world))


def test_the_model_on_paper_by_hand() -> None:
    """Two ranks: two messages of half the bytes each, 2 (1 ms + 1 MB / (2 x 1000 MB/s)) = 3 ms."""
    link = Link(1e-3, 1e9)
    assert all_reduce_seconds(link, 2, 1e6) == pytest.approx(3e-3)
    assert all_reduce_seconds(link, 1, 1e6) == 0.0
    assert speed_up(link, 2, [1e6], 9e-3) == pytest.approx(2 * 9 / 12)
    assert speed_up(link, 1, [1e6], 9e-3) == 1.0
    lines = table(link, [1e6], 9e-3)
    assert "| 2 | 3.00 | 1.50 | 75% |" in lines
    assert lines[-1].startswith("| 64 | ")


def test_all_reduces_of_an_update_add_up() -> None:
    """Three of 3 ms each, beside 9 ms: two ranks are as fast as one."""
    link = Link(1e-3, 1e9)
    assert speed_up(link, 2, [1e6] * 3, 9e-3) == pytest.approx(1.0)
    lines = table(link, [1e6, 1e6, 1e6], 9e-3)
    assert lines[0] == "on paper, updates of 9.00 ms alone and gradients of 1 and 1 and 1 MB:"
    assert "| 2 | 9.00 | 1.00 | 50% |" in lines


def test_an_update_takes_as_long_as_was_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A real all-reduce between two processes, and the table of updates that come 250 times a second."""
    file = tmp_path / "fps.jsonl"
    rows = [{"kind": "environment"}, *({"kind": "row", "row": f"41 {n}", "updates_per_s": n} for n in (250.0, 9.0))]
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    assert scaling.bench(ScalingOptions(ranks="2", repeats=1, fps=file)) == 0
    said_ = capsys.readouterr().out.splitlines()
    rows_ = [line.strip("| ").split(" | ") for line in said_[3:6]]
    assert [row[:2] for row in rows_] == [["2", f"{size:g}"] for size in scaling.MEGABYTES]
    assert all(float(row[2]) > 0.0 for row in rows_)
    assert all((row[3] == "-") == (network_here() == 0) for row in rows_)
    assert said_[7:9] == ["41 250.0", "on paper, updates of 4.00 ms alone and gradients of 0.04 MB:"]
    assert said_[11] == "| 1 | 0.00 | 1.00 | 100% |"


@pytest.mark.parametrize(
    "options",
    [
        *({"mbytes": "0"}, {"mbytes": "1,x"}, {"update_ms": 0.0}, {"ranks": "1"}),
        *({"fps": Path("none.jsonl")}, {"fps": Path(__file__)}, {"fps": Path("any"), "update_ms": 1.0}),
    ],
)
def test_mistakes_of_scaling_are_one_sentence(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "measured", None)
    with pytest.raises(UserError, match=r"^--.*\.$"):
        scaling.bench(ScalingOptions(**options))


def test_latency_and_bandwidth_are_found_again() -> None:
    link = Link(2e-4, 5e8)
    sizes = [(n, size, all_reduce_seconds(link, n, size)) for n in (2, 4) for size in (4e4, 5.6e5, 6.8e6)]
    found = fitted(sizes)
    assert found.latency == pytest.approx(2e-4, rel=1e-6)
    assert found.bandwidth == pytest.approx(5e8, rel=1e-6)
    assert math.isfinite(fitted([(2, 4e4, 1e-3), (2, 6.8e6, 1e-3)]).bandwidth)


@pytest.mark.parametrize(
    "options", [{"only": "dqn"}, {"processes": "1,x"}, {"threads": 0}, {"env_steps_each": 0}, {"hidden": "0"}]
)
def test_mistakes_are_one_sentence(options: dict[str, object]) -> None:
    with pytest.raises(UserError, match=r"^--.*\.$"):
        bench(SpeedupOptions(**options))  # type: ignore[arg-type]
