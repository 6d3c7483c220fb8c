"""Options that list several words."""

import pytest

from bench.lists import names, numbers, whole_numbers
from fastdqn.errors import UserError


def test_lists() -> None:
    assert names("sac, ppo", "--only", ("ppo", "sac"), "algorithm") == ["sac", "ppo"]
    assert whole_numbers("1, 2", "--processes") == [1, 2]
    assert numbers("0.5, 4e-6", "--mbytes") == [0.5, 4e-6]


@pytest.mark.parametrize("said", ["", "0", "1,x", "-1", "1,,2"])
def test_what_is_no_list_is_one_sentence(said: str) -> None:
    for read in (numbers, whole_numbers):
        with pytest.raises(UserError, match=rf"^--these must be .*above 0, separated by commas, not {said}\.$"):
            read(said, "--these")
    with pytest.raises(UserError, match=r"^--these .*: there is no such kind; there are one, two\.$"):
        names(said, "--these", ("one", "two"), "kind")


def test_nothing_is_listed_twice() -> None:
    """Figures of both would be taken together, or one of them be lost."""
    with pytest.raises(UserError, match=r"^--only has ppo twice\.$"):
        names("ppo,sac, ppo", "--only", ("ppo", "sac"), "algorithm")
    with pytest.raises(UserError, match=r"^--processes has 2 twice\.$"):
        whole_numbers("2,02", "--processes")
    with pytest.raises(UserError, match=r"^--mbytes has 0\.5 twice\.$"):
        numbers("0.5,0.50", "--mbytes")


@pytest.mark.parametrize("said", ["inf", "nan", "1e999"])
def test_a_number_is_finite(said: str) -> None:
    with pytest.raises(UserError, match="above 0"):
        numbers(said, "--these")
