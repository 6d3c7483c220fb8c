"""Seeds: one root, and children that do not collide."""

from __future__ import annotations

from fastdqn.seeds import as_int, seeds_of


def test_seeds_are_distinct_small_and_stable() -> None:
    seeds = seeds_of(3)
    numbers = [as_int(child) for child in seeds]
    assert len(set(numbers)) == len(numbers)
    assert all(type(n) is int and 0 <= n < 2**31 for n in numbers)
    assert numbers == [as_int(child) for child in seeds_of(3)]
    assert not set(numbers) & {as_int(child) for child in seeds_of(4)}
