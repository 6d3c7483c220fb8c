"""Players that send experience: order, bounds, shared weights, states, and all the ways to die."""

from __future__ import annotations

import time

import psutil
import pytest
import torch

from fastdqn import process
from fastdqn.errors import RunError
from fastdqn.execution import crew, processes
from fastdqn.execution.experience import Experience
from fastdqn.types import Piece
from tests.helpers.crews import Toy, network, plan_of, weights_of


def who(pieces: list[Piece]) -> list[tuple[int, int]]:
    """Return the player and the number of each piece."""
    return [(int(piece.obs[0]), int(piece.obs[1])) for piece in pieces]


def gone(players: Experience) -> bool:
    return not any(one.pid is not None and psutil.pid_exists(one.pid) for one in players._children)


def test_every_piece_comes_once_and_in_its_players_order() -> None:
    with Experience(plan_of(), weights_of(network()), begun=50) as players:
        pieces = [piece for _ in range(20) for piece in players.take(3)]
        begun = {int(piece.obs[2]) for piece in pieces}
    for player in (0, 1):
        numbers = [count for number, count in who(pieces) if number == player]
        assert numbers == list(range(1, len(numbers) + 1))
        assert len(numbers) > 5  # both are heard
    assert {end.place for piece in pieces for end in piece.episodes} == {0, 3}  # player 1's second game of two
    assert begun == {50}
    assert gone(players)


def test_no_more_pieces_wait_than_there_are_players() -> None:
    with Experience(plan_of(2), weights_of(network())) as players:
        for _ in range(10):
            assert len(players.take(2)) == 2
            time.sleep(0.05)
            assert players.queued() <= 2
        time.sleep(0.5)
        assert players.queued() == 2


def test_a_change_of_the_weights_is_noticed_without_a_message() -> None:
    """In memory: what is asked of players, and how many pieces they are ahead, stays the same."""
    module = network()
    with Experience(plan_of(1), weights_of(module)) as players, torch.no_grad():
        for value in (3.0, 5.0, -1.0):
            next(iter(module.parameters())).fill_(value)
            players.take(3)  # those played before: one that waited, one in hand
            assert {float(piece.obs[3]) for piece in players.take(5)} == {value}


def test_players_that_wait_play_in_turn_and_nothing_ahead() -> None:
    module = network()
    with Experience(plan_of(2, synchronous=True), weights_of(module)) as players, torch.no_grad():
        for i in range(4):
            next(iter(module.parameters())).fill_(float(i))
            pieces = players.take(4)
            assert who(pieces) == [(0, 2 * i + 1), (1, 2 * i + 1), (0, 2 * i + 2), (1, 2 * i + 2)]
            assert {float(piece.obs[3]) for piece in pieces} == {float(i)}
            time.sleep(0.1)
            assert players.queued() == 0


def test_players_that_wait_are_continued() -> None:
    plan = plan_of(2, synchronous=True)
    with Experience(plan, weights_of(network())) as players:
        players.take(4)
        state = players.state()
        assert state == {"players": [{"count": 2}, {"count": 2}]}
        players.take(2)
    assert players.state() == {"players": [{"count": 3}, {"count": 3}]}  # as a checkpoint at the end has it
    with Experience(plan, weights_of(network()), begun=9) as players:
        assert players.load(state).tolist() == [False, False, True, False]
        assert who(players.take(2)) == [(0, 3), (1, 3)]


def test_a_signal_while_players_begin_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    state = {"players": [{"count": 2}, {"count": 2}]}
    with Experience(plan_of(2, synchronous=True, toy=Toy(beginning=1.0)), weights_of(network())) as players:
        monkeypatch.setattr(process, "_first", 2)
        assert not players.load(state).any()
        assert players.take(2) == []
    assert players.state() == state


def test_players_that_play_on_begin_anew() -> None:
    with Experience(plan_of(2), weights_of(network())) as players:
        players.take(4)
        state = players.state()
        assert state == {"players": []}
    with Experience(plan_of(2, synchronous=True), weights_of(network())) as players:
        assert players.load(state).tolist() == [True] * 4


@pytest.mark.parametrize("synchronous", [pytest.param(False, marks=pytest.mark.slow), True])
def test_an_exception_in_a_player_is_raised_here_with_its_traceback(synchronous: bool) -> None:
    with (
        pytest.raises(RunError) as caught,
        Experience(plan_of(2, synchronous, Toy("raise", 1)), weights_of(network())) as players,
    ):
        while True:
            players.take(2)
    said = str(caught.value)
    assert said.startswith("Traceback")
    assert "ValueError: the toy player broke as it was told to" in said
    assert said.endswith("\nThe player 2 process failed; its traceback is above.")
    assert gone(players)


@pytest.mark.parametrize(
    ("fault", "said"),
    [("sentence", r"^The toy player has had enough\.$"), ("leave", r"^The player process ended with exit code 7\.$")],
)
def test_other_ends_of_a_player_are_one_sentence(fault: str, said: str) -> None:
    with pytest.raises(RunError, match=said), Experience(plan_of(1, toy=Toy(fault)), weights_of(network())) as players:
        while True:
            players.take(1)


@pytest.mark.parametrize("synchronous", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_killed_player_is_noticed(synchronous: bool) -> None:
    with Experience(plan_of(2, synchronous), weights_of(network())) as players:
        players.take(4)
        psutil.Process(players._children[1].pid).kill()
        begin = time.monotonic()
        with pytest.raises(RunError, match=r"^The player 2 process was killed by SIGKILL\.$"):
            while True:
                players.take(2)
        assert time.monotonic() - begin < 5
    assert gone(players)


@pytest.mark.parametrize("synchronous", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_hung_player_is_noticed_though_others_play_on(synchronous: bool) -> None:
    toy = Toy("hang", 1, 0.01)
    with Experience(plan_of(2, synchronous, toy), weights_of(network())) as players:
        players.take(4)
        for child in players._children:
            child._timeout = 1.5
        begin = time.monotonic()
        with pytest.raises(
            RunError, match=r"^The player 2 process has sent nothing for 1\.5 seconds \(--player-timeout\) and counts"
        ):
            while True:
                players.take(2)
        assert time.monotonic() - begin < 8
    assert time.monotonic() - begin < 8 + processes.LEAVE_SECONDS
    assert gone(players)


@pytest.mark.slow
def test_all_players_that_hang_are_ended_together() -> None:
    plan = plan_of(3, toy=Toy(seconds=3600.0))
    with Experience(plan, weights_of(network())) as players:
        players._begin(1)
        time.sleep(0.2)
        begin = time.monotonic()
    assert time.monotonic() - begin < processes.LEAVE_SECONDS + 3.0
    assert gone(players)


@pytest.mark.slow
def test_a_signal_ends_the_waiting_and_a_round_is_finished_for_the_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    with Experience(plan_of(2, True, Toy(seconds=0.4)), weights_of(network())) as players:
        players.take(2)
        monkeypatch.setattr(process, "_first", 2)
        assert who(players.take(2)) == [(0, 2), (1, 2)]
        monkeypatch.setattr(crew, "PATIENCE", 0.0)
        assert len(players.take(4)) < 4  # not in time: the run cannot be continued exactly
    assert players.state() == {"players": []}
    monkeypatch.setattr(process, "_first", 0)
    with Experience(plan_of(2, False, Toy(seconds=30.0)), weights_of(network())) as players:
        players._begin(1)
        monkeypatch.setattr(process, "_first", 2)
        begin = time.monotonic()
        assert players.take(2) == []
        assert time.monotonic() - begin < 1.0


def test_an_error_in_the_trainer_ends_the_players() -> None:
    with pytest.raises(ZeroDivisionError), Experience(plan_of(2), weights_of(network())) as players:
        players.take(2)
        raise ZeroDivisionError
    assert gone(players)
