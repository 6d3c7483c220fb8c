"""bench/speedup.py and bench/scaling.py: figures by hand, the published settings word by word, mistakes."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from bench.scaling import Link, all_reduce_seconds, fitted, numbers, speed_up, table
from bench.speedup import PLAIN, SpeedupOptions, Trial, bench, command_of, curve_of, draw, draw_sizes, said, speed_ups
from fastdqn.errors import UserError
from tests.helpers.scripts import parse

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
    options = SpeedupOptions(env_steps=100, rollout_steps=64)
    for world, steps in ((PLAIN, 64), (1, 64), (4, 16)):
        command = command_of("ppo", world, options, {}, "somewhere")
        parsed = parse(Path(command[1]).stem, *command[2:])
        assert (parsed.ppo.rollout_steps, parsed.run.max_env_steps) == (steps, 100 * max(world, 1))


def test_four_figures_and_one_of_sizes(tmp_path: Path) -> None:
    written = draw("ppo", TRIALS, 1, tmp_path / "speedup-ppo")
    assert [path.name.rpartition("-")[2] for path in written] == ["process.png", "total.png", "time.png", "speedup.png"]
    draw_sizes("sac", {(256, 64): 1.2, (1024, 64): 1.6, (256, 128): 1.4}, 2, 1, tmp_path / "sizes.png")
    assert all(path.stat().st_size > 5_000 for path in (*written, tmp_path / "sizes.png"))


@pytest.mark.parametrize("world", [PLAIN, 1, 4])
@pytest.mark.parametrize("name", ["ppo", "sac"])
def test_runs_have_the_published_settings(name: str, world: int) -> None:
    options = SpeedupOptions(env_steps=6_000, rollout_steps=32_768)
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
    assert speed_up(link, 2, 1e6, 9e-3) == pytest.approx(2 * 9 / 12)
    assert speed_up(link, 1, 1e6, 9e-3) == 1.0
    lines = table(link, 1e6, 9e-3)
    assert "| 2 | 3.00 | 1.50 | 75% |" in lines
    assert lines[-1].startswith("| 64 | ")


def test_latency_and_bandwidth_are_found_again() -> None:
    link = Link(2e-4, 5e8)
    sizes = [(n, size, all_reduce_seconds(link, n, size)) for n in (2, 4) for size in (4e4, 5.6e5, 6.8e6)]
    found = fitted(sizes)
    assert found.latency == pytest.approx(2e-4, rel=1e-6)
    assert found.bandwidth == pytest.approx(5e8, rel=1e-6)
    assert math.isfinite(fitted([(2, 4e4, 1e-3), (2, 6.8e6, 1e-3)]).bandwidth)


@pytest.mark.parametrize(
    "options", [{"only": "dqn"}, {"worlds": "1,x"}, {"threads": 0}, {"env_steps": 0}, {"hidden": "0"}]
)
def test_mistakes_are_one_sentence(options: dict[str, object]) -> None:
    with pytest.raises(UserError, match=r"^--.*\.$"):
        bench(SpeedupOptions(**options))  # type: ignore[arg-type]
    assert numbers("1, 2", "--worlds") == [1, 2]
