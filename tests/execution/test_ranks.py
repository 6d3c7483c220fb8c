"""Ranks: two of them, one this process, do all that needs several at once; here is what must have come of it."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import pytest
import torch

from fastdqn import process
from fastdqn.errors import RunError, UserError
from fastdqn.execution.exchange import dist
from fastdqn.execution.ranks import ALONE, Ranks
from fastdqn.options.ranks import RanksOptions
from fastdqn.seeds import rank_seeds, seeds_of
from fastdqn.types import EpisodeEnd
from tests.helpers.ranks import both, everything, learners, weights

KINDS = ("sac", "a2c", "ppo", "ppo_on_vectors", "dqn")


@pytest.fixture(scope="module", params=[False, True], ids=["by_default", "by_gloo"])
def found(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    """What both ranks have found, as they exchange on this machine, and as they do between several."""
    made = both(everything, by_gloo=request.param)
    expected = sys.platform == "linux" and not request.param
    assert [rank["on_one_machine"] for rank in made] == [expected, expected]
    return made


@pytest.fixture(scope="module")
def alone() -> dict[str, Any]:
    """Weights after one process's update on the joint batch, and how large its gradient was for its clip."""
    made: dict[str, Any] = {}
    for kind, learner, batch in learners(lambda: None):
        learner.update(batch)
        made[kind] = weights(learner)
    return made


def apart(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    """Return the largest difference between two weights of the same name."""
    return max(float((one[name] - other[name]).abs().max()) for name in one)


@pytest.mark.parametrize("kind", KINDS)
def test_two_ranks_on_halves_are_one_process_on_the_whole_batch(
    found: list[dict[str, Any]], alone: dict[str, Any], kind: str
) -> None:
    for rank in found:
        assert apart(rank[f"joint_{kind}"], alone[kind]) < 1e-5


@pytest.mark.parametrize("kind", ["a2c", "ppo", "ppo_on_vectors"])
def test_the_control_that_clips_before_it_averages_is_not(
    found: list[dict[str, Any]], alone: dict[str, Any], kind: str
) -> None:
    """The halves' gradients are of unlike size; after a clip each they would count alike."""
    assert apart(found[0][f"clip_first_{kind}"], alone[kind]) > 1e-4
    assert apart(found[0][f"clip_first_{kind}"], found[1][f"clip_first_{kind}"]) == 0.0


@pytest.mark.parametrize("kind", KINDS)
def test_after_updates_on_other_data_all_ranks_are_equal(found: list[dict[str, Any]], kind: str) -> None:
    """Bit by bit, targets and temperature too; each alone would have gone elsewhere."""
    (one, one_alone), (two, two_alone) = (rank["equal"][kind] for rank in found)
    assert one == two
    assert len({one, one_alone, two_alone}) == 3


def test_a_rank_without_a_gradient_has_one_of_zero(found: list[dict[str, Any]]) -> None:
    for rank in found:
        assert rank["no_gradient"] == [-2.0, -2.0]  # of 2 and 2, and of 4 and none


def test_gradients_are_averaged_however_weights_lie(found: list[dict[str, Any]]) -> None:
    """Channels last in one of two, on all ranks or on one alone: fused Adam takes both as they lie."""
    assert [rank["layouts"] for rank in found] == [[pytest.approx([0.0, 0.0], abs=1e-3)] * 2] * 2


def test_all_begin_with_what_rank_0_has(found: list[dict[str, Any]]) -> None:
    """Weights, targets, temperature, Adam's moments and steps, and learning rates: the next update is the same, too."""
    (first, first_moments, first_rates, first_after), (other, moments, rates, after) = (rank["begun"] for rank in found)
    assert apart(first, other) == 0.0
    assert len(first_moments) == len(moments) > 10
    assert all(torch.equal(one, two) for one, two in zip(first_moments, moments, strict=True))
    assert max(float(one.max()) for one in moments if one.dim() == 0) == 3.0  # steps
    assert first_rates == rates == [3e-4] * 3
    assert first_after == after


@pytest.mark.parametrize("what", ["drift", "drift_of_moments"])
def test_a_rank_that_drifts_by_one_bit_is_found_and_named(found: list[dict[str, Any]], what: str) -> None:
    for rank in found:
        assert rank[what].startswith("Rank 1 no longer has the weights of rank 0, or the moments of its optimisers")


def test_ranks_whose_builds_of_pytorch_differ_begin_together(found: list[dict[str, Any]]) -> None:
    """One knows NCCL, the other one does not: they make the same exchanges all the same."""
    assert [rank["unlike_builds"] for rank in found] == [None, None]


def test_decisions_on_a_mean_are_the_same_on_all_ranks(found: list[dict[str, Any]]) -> None:
    """What target_kl asks for; each rank's own divergence would stop at another batch, and the other would wait."""
    assert [rank["mean"] for rank in found] == [1.5, 1.5]
    (together, own), (together_too, own_too) = (rank["early_stop"] for rank in found)
    assert together == together_too == 6
    assert [own, own_too] == [11, 4]


def test_what_all_have_played_is_known_to_all(found: list[dict[str, Any]]) -> None:
    """In the order in which games ended, at their places among 8."""
    ends = (EpisodeEnd(10.0, 5, False, 4, 1), EpisodeEnd(0.0, 5, False, 0, 2), EpisodeEnd(11.0, 5, True, 5, 3))
    assert [rank["gathered"] for rank in found] == [(15, ends)] * 2


def test_each_rank_can_send_and_rank_0_tells(found: list[dict[str, Any]]) -> None:
    assert [rank["sent"] for rank in found] == [[b"of rank 0", b"of rank 1"]] * 2
    assert [rank["told"] for rank in found] == [5, 5]
    assert [rank["collected"] for rank in found] == [[b"", b"a longer one of rank 1"], []]


def test_who_waits_counts_for_how_long(found: list[dict[str, Any]]) -> None:
    """Rank 0 comes 0.3 seconds late."""
    late, other = (rank["waited"] for rank in found)
    assert other > 0.25
    assert late < other


def test_ranks_of_one_machine_know_each_others_processes(found: list[dict[str, Any]]) -> None:
    (own, pids), (other, too) = (rank["pids"] for rank in found)
    assert pids == too == [own, other]
    assert own == os.getpid()


def test_alone_there_is_no_group_and_nothing_is_averaged() -> None:
    with Ranks(RanksOptions()) as ranks:
        assert (ranks.rank, ranks.world, ranks.alone, ranks.first, ranks.descent) == (0, 1, True, True, None)
        ranks.begin(mock.sentinel.not_looked_at)
        ranks.look()
        assert not dist.is_initialized()
    assert ALONE.notes == ()
    assert ALONE.threads(None) is None


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"MASTER_ADDR": "127.0.0.1"},
        *({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port} for port in ("abc", "99999")),
    ],
)
def test_without_rank_0s_address_there_is_one_sentence(said: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"RANK": "0", **said}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match="not where rank 0 is: MASTER_ADDR and MASTER_PORT"), Ranks(RanksOptions(2)):
        pass


def test_ranks_that_nobody_has_started_are_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the script's own function is called, instead of its command line."""
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(UserError, match=r"^--processes 2 needs as many processes, and RANK is not in the env"):
        Ranks(RanksOptions(2))


@pytest.mark.parametrize("here", ["0", "a", ""])
def test_a_number_of_processes_that_is_none_is_one_sentence(here: str, monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "LOCAL_WORLD_SIZE": here}
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    with (
        pytest.raises(UserError, match=f"^LOCAL_WORLD_SIZE {here} in the environment is no number"),
        Ranks(RanksOptions(2)),
    ):
        pass


def test_a_rank_0_that_goes_before_its_line_is_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}.items():
        monkeypatch.setenv(name, value)
    store = mock.Mock()
    store.check.side_effect = dist.DistNetworkError("Connection reset by peer")
    monkeypatch.setattr("fastdqn.execution.ranks.meet_first", lambda *_: store)
    with pytest.raises(RunError, match=r"^Rank 0 is gone: Connection reset by peer\.$"), Ranks(RanksOptions(2)):
        pass


class Start(NamedTuple):
    """Rank 0 of two, as it begins; the other one is nobody."""

    abandoned: mock.Mock
    made: mock.MagicMock  # Presence
    presence: mock.MagicMock  # one


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Start:
    for name, value in {"RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}.items():
        monkeypatch.setenv(name, value)
    abandoned = mock.Mock()
    monkeypatch.setattr(process, "abandon", abandoned)
    monkeypatch.setattr(process, "fail", lambda: None)
    monkeypatch.setattr(dist, "rendezvous", lambda *_, **__: iter([(None,)]))
    monkeypatch.setattr(dist, "init_process_group", lambda *_, **__: None)
    presence = mock.MagicMock()
    presence.return_value.__exit__.return_value = None
    presence.return_value.lost = None
    monkeypatch.setattr("fastdqn.execution.ranks.Presence", presence)
    return Start(abandoned, presence, presence.return_value)


def test_where_one_is_lost_before_all_have_met_nobody_waits_for_threads(
    monkeypatch: pytest.MonkeyPatch, start: Start
) -> None:
    """Those of the group, which may wait for ever for the one that is lost."""
    monkeypatch.setattr(Ranks, "meet_here", mock.Mock(side_effect=RunError("Rank 1 is gone.")))
    with pytest.raises(RunError, match=r"Rank 1 is gone\."), Ranks(RanksOptions(2)):
        pass
    start.abandoned.assert_called_once_with()


@pytest.mark.parametrize("gone", [False, True])
def test_a_group_is_not_waited_for_by_the_main_thread(
    monkeypatch: pytest.MonkeyPatch, start: Start, gone: bool
) -> None:
    """PyTorch looks at no signals then. A rank that does not come, or is gone, ends the wait, and the thread is left,
    which has taken no signal meanwhile.
    """
    over, seen = threading.Event(), list[Any]()

    def wait_for_ever(*_: Any, **__: Any) -> None:
        seen.extend([threading.current_thread().daemon, signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])])
        if gone:
            start.presence.lost = start.presence.notice.return_value = "Rank 1 is gone."
        over.wait(60.0)

    monkeypatch.setattr(dist, "init_process_group", wait_for_ever)
    ranks = Ranks(RanksOptions(2))
    ranks._start = 60.0 if gone else 0.3
    said = r"^Rank 1 is gone\.$" if gone else r"^Not all 2 ranks were connected within 0\.3 seconds: one hangs, or set "
    began = time.monotonic()
    with pytest.raises(RunError, match=said), ranks:
        pass
    assert time.monotonic() - began < 30.0
    assert seen == [True, True]
    start.abandoned.assert_called_once_with()
    over.set()


def test_ranks_that_cannot_reach_each_other_are_told_what_to_set(monkeypatch: pytest.MonkeyPatch, start: Start) -> None:
    monkeypatch.setattr(dist, "init_process_group", mock.Mock(side_effect=RuntimeError("no route\nand more")))
    with (
        pytest.raises(RunError, match=r"^Ranks cannot reach each other \(no route\); set GLOO_"),
        Ranks(RanksOptions(2)),
    ):
        pass
    start.abandoned.assert_called_once_with()


@pytest.mark.parametrize(("timeout", "patience"), [(60.0, 5.0), (600.0, 50.0)])
def test_ranks_that_are_patient_are_so_with_a_silent_one(
    monkeypatch: pytest.MonkeyPatch, start: Start, timeout: float, patience: float
) -> None:
    monkeypatch.setattr(Ranks, "meet_here", mock.Mock(side_effect=RunError("It begins.")))
    with pytest.raises(RunError), Ranks(RanksOptions(2, rank_timeout=timeout)):
        pass
    assert start.made.call_args.args[-1] == pytest.approx(patience)


@pytest.mark.parametrize(("timeout", "seconds"), [(1.0, 600.0), (600.0, 1200.0)])
def test_nccl_ends_a_process_later_than_the_sentence_would_come(
    monkeypatch: pytest.MonkeyPatch, timeout: float, seconds: float
) -> None:
    for name in ("RANK", "LOCAL_RANK"):
        monkeypatch.setenv(name, "1")
    new_group = mock.Mock()
    monkeypatch.setattr(dist, "new_group", new_group)
    for name in ("_share_moments", "check"):
        monkeypatch.setattr(Ranks, name, mock.Mock())
    monkeypatch.setattr(Ranks, "gather", lambda *_: [[1.0, 1.0]] * 2)
    group = SimpleNamespace(parameters=[SimpleNamespace(device=torch.device("cuda", 1))], optimizer=None)
    learner: Any = SimpleNamespace(groups=lambda: [group], tensors=dict)
    Ranks(RanksOptions(2, rank_timeout=timeout)).begin(learner)
    new_group.assert_called_once_with(backend="nccl", timeout=timedelta(seconds=seconds))


def test_ranks_come_together_once_each_has_looked_for_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    gathered = mock.Mock()
    monkeypatch.setattr(Ranks, "gather", gathered)
    ALONE.together()
    gathered.assert_not_called()
    Ranks(RanksOptions(2)).together()
    gathered.assert_called_once()


def test_seeds_are_distinct_and_rank_0_has_the_runs_own() -> None:
    drawn = [child.generate_state(1)[0] for rank in range(4) for child in rank_seeds(7, rank)]
    assert len(set(drawn)) == len(drawn)
    assert [one.generate_state(1)[0] for one in rank_seeds(7, 0)] == [one.generate_state(1)[0] for one in seeds_of(7)]


def test_each_rank_has_a_share_of_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "cores", lambda: 6)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    ranks = Ranks(RanksOptions(4))
    assert [ranks.threads(None), ranks.threads(5)] == [1, 5]
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")  # the others are on another machine
    assert ranks.threads(None) == 3
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    assert ranks.threads(None) == 1
    assert ALONE.threads(None) is None


@pytest.mark.parametrize(
    ("gpus", "asked", "cuda", "named"),
    [
        (2, None, True, "cuda:1"),
        (2, "auto", True, "cuda:1"),
        (2, "cuda", False, "cuda:1"),
        (2, "auto", False, "cuda:1"),
        (4, "cuda", False, "cuda:3"),
        (1, "cuda", False, "cuda"),  # which all share
        (2, "cuda:0", True, "cuda:0"),
        (2, "cpu", True, "cpu"),
        (2, None, False, None),
    ],
)
def test_each_rank_has_the_gpu_of_its_number(
    monkeypatch: pytest.MonkeyPatch, gpus: int, asked: str | None, cuda: bool, named: str | None
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setenv("RANK", "7")
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert Ranks(RanksOptions(8)).device_name(asked, cuda) == named
    assert ALONE.device_name(asked, cuda) == asked
