"""Which data in bench/results feed which table of the pages."""

from __future__ import annotations

from typing import NamedTuple

from bench.records import Setting


class Sources(NamedTuple):
    """Which data feed which table: names in bench/results."""

    ladder: str  # of bench/fps.py, without the ending; its picture stands beside it
    ladder_before: str  # the same on an older processor
    ladder_gpu: tuple[str, ...]  # of bench/fps.py on a GPU, cut short: 01 in the first
    steps: str  # of bench/fps.py --sweep
    parts: str
    pong: tuple[Setting, ...]  # all solved, and none refuted by its fresh games
    pong_unseen: tuple[Setting, ...]  # seeds that were announced before they were run, by older settings
    pong_gpu: tuple[Setting, ...]  # on a GPU: too few, or not all of them solved
    variants: str  # a folder with a run's folder for each of VARIANTS
    actor_critics: str  # of bench/fps.py --only "20, 21 --players 1, ..."
    trainer_thread: str  # of bench/trainer_thread.py
    curves: str  # of bench/beside_dopamine.py, without the ending; its picture stands beside it


NEWEST = Sources(
    ladder="20261130-225537-fps-cpu",
    ladder_before="20261122-054313-fps-cpu",
    ladder_gpu=("20261127-223413-fps-cuda", "20261127-223622-fps-cuda"),
    steps="20261121-123913-sweep-cpu",
    parts="20261122-201750-sweep-cpu",
    pong=(
        Setting("11", "pong-11-zen5-seed", tuple(range(110, 120))),
        Setting("11", "pong-11-zen5-seed", (0, 1, 2, 3, 4)),
        Setting("11 --network narrow", "pong-11-narrow-zen5-seed", (0, 1, 2, 3, 4)),
        Setting("11", "pong-11-aside-zen4-seed", (0, 1, 2, 3, 4)),
    ),
    pong_unseen=(Setting("11", "pong-11-unseen-zen4-seed", tuple(range(100, 110))),),
    pong_gpu=(
        Setting("11", "pong-11-h200-seed", (0, 1, 2, 3, 4)),
        Setting("11", "pong-11-h100-seed", (0, 1)),
        Setting("11 --num-envs 32 --game-groups 2", "pong-11-h100-32-seed", (0, 1, 2, 3, 4)),
        Setting("11 --num-envs 24 --game-groups 2 --env-threads 24", "pong-11-h200-24-seed", (0, 1, 2, 3)),
    ),
    variants="variants-pong-4samples",
    actor_critics="20261123-194413-fps-cpu",
    trainer_thread="20261124-012834-trainer-thread",
    curves="curves",
)
