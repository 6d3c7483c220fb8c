"""Exchanges between ranks of one machine: three of them, each in a thread of this process."""

from __future__ import annotations

import itertools
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from fastdqn import process
from fastdqn.errors import Interrupted, RunError
from fastdqn.execution import exchange, same_machine
from fastdqn.execution.exchange import Exchanges
from fastdqn.execution.same_machine import LONGEST, SHORT, SameMachine, network_here

WORLD = 3

pytestmark = pytest.mark.skipif(network_here() == 0, reason="needs memory without a name, which Linux has")


@pytest.fixture
def lines() -> Iterator[list[SameMachine]]:
    """Lines of three ranks."""
    token = secrets.token_bytes(16)
    opened = [SameMachine(rank, WORLD, token) for rank in range(WORLD)]
    together(lambda rank: opened[rank].connect(10.0))
    yield opened
    for one in opened:
        one.close()


@pytest.fixture
def ranks(lines: list[SameMachine]) -> list[Exchanges]:
    """Three ranks with these lines."""
    made = [Exchanges(rank, WORLD, timeout=10.0) for rank in range(WORLD)]
    for one, here in zip(made, lines, strict=True):
        one._presence = cast(Any, Present())
        one._here = here
    return made


class Present:
    """A presence of ranks that are all there."""

    lost = None

    def __init__(self) -> None:
        self.begun = 0

    def exchange(self) -> None:
        self.begun += 1

    def behind(self) -> str:
        return "Another rank"


def together(work: Callable[[int], Any]) -> list[Any]:
    """Return what `work` returns for each rank, all at once."""
    with ThreadPoolExecutor(WORLD) as pool:
        return list(pool.map(work, range(WORLD)))


def mean_of(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the mean of what three ranks have, with the bits that it has there."""
    share = 1.0 / WORLD
    return parts[0] * share + parts[1] * share + parts[2] * share


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [1, SHORT // 4, 10_001])
def test_a_mean_is_that_of_all_ranks(ranks: list[Exchanges], kind: torch.dtype, size: int) -> None:
    """A short one goes by messages, a longer one by memory; all ranks have the same bits."""
    own = [
        (1000.0 * torch.randn(size, generator=torch.Generator().manual_seed(rank))).to(kind) for rank in range(WORLD)
    ]
    expected = mean_of(own)
    found = [one.clone() for one in own]
    together(lambda rank: ranks[rank].average(found[rank]))
    assert all(torch.equal(one, expected) for one in found)
    assert (cast(Any, ranks[0]._here)._memory is None) == (expected.nbytes <= SHORT)


def test_a_mean_keeps_its_shape_and_has_no_gradient(ranks: list[Exchanges]) -> None:
    found = [torch.full((2, 3), 1.0 + rank, requires_grad=True) for rank in range(WORLD)]
    together(lambda rank: ranks[rank].average(found[rank]))
    assert all(torch.equal(one.detach(), torch.full((2, 3), 2.0)) and one.grad_fn is None for one in found)


def test_ranks_of_unlike_speed_never_read_a_mean_that_is_over(ranks: list[Exchanges]) -> None:
    """Sizes that grow and shrink, and in turn one rank that is late: before what it says, and after."""
    sizes = [2_000, 5_000, 1, 3_000, 60_000, 2_000]

    def work(rank: int) -> list[float]:
        late = torch.Generator().manual_seed(rank)
        wrong: list[float] = []
        for count in range(120):
            parts = [torch.full((sizes[count % len(sizes)],), float(10 * count + one)) for one in range(WORLD)]
            part = parts[rank].clone()
            if torch.rand((), generator=late) < 0.2:
                time.sleep(0.003)
            ranks[rank].average(part)
            wrong += [] if torch.equal(part, mean_of(parts)) else [count]
        return wrong

    assert together(work) == [[], [], []]


def test_the_control_with_one_place_reads_what_comes_after(
    ranks: list[Exchanges], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 0 is over its next part before rank 2 has read the first one; with two places it is not."""
    read: dict[int, float] = {}
    say = SameMachine.say

    def slow(here: SameMachine, data: bytes) -> None:
        say(here, data)
        if here.rank == 2 and 2 not in read:
            read[2] = 0.0
            time.sleep(0.3)  # the others are in their next mean

    monkeypatch.setattr(SameMachine, "say", slow)

    def work(rank: int) -> list[float]:
        means: list[float] = []
        for count in (1.0, 100.0):
            part = torch.full((SHORT,), count)
            ranks[rank].average(part)
            means.append(float(part[0]))
        return means

    expected = [float(mean_of([torch.tensor(count)] * WORLD)) for count in (1.0, 100.0)]
    assert together(work) == [expected] * WORLD
    for one in ranks:
        here = cast(Any, one._here)
        here._memory = here._memory[:1].expand(2, -1, -1)
    read.clear()
    assert together(work)[2][0] > expected[0]


def test_what_all_say_is_known_to_all(ranks: list[Exchanges]) -> None:
    said = [[0.1, 2.0**53], [1.1, -1.0], [2.1, float("inf")]]
    assert together(lambda rank: ranks[rank].gather(said[rank])) == [said] * WORLD


def test_rank_0_tells_and_waits_for_nobody(ranks: list[Exchanges]) -> None:
    assert [ranks[0].tell(order) for order in (3, 4)] == [3, 4]
    assert [[ranks[rank].tell(0), ranks[rank].tell(0)] for rank in (1, 2)] == [[3, 4]] * 2


def test_all_count_the_same_exchanges(ranks: list[Exchanges]) -> None:
    """Who has begun fewer than others is named where one does not come."""

    def work(rank: int) -> None:
        ranks[rank].tell(1)
        for size in (2 * SHORT, 3, 4 * SHORT):
            ranks[rank].average(torch.ones(size))
        ranks[rank].gather([1.0])

    together(work)
    assert [cast(Any, one._presence).begun for one in ranks] == [7] * WORLD  # two of them are for more memory


def test_what_rank_0_tells_one_that_is_gone_is_an_error(
    ranks: list[Exchanges], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "fail", lambda: None)
    ranks[0]._presence = cast(Any, lost_after(0))
    with pytest.raises(RunError, match=r"Rank 2 is gone"):
        ranks[0].tell(0)


def test_what_is_too_long_for_a_message_goes_another_way(
    ranks: list[Exchanges], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(exchange.dist, "all_gather", lambda places, *_, **__: asked.append(len(places)) or Done())
    ranks[0].gather([0.0] * (LONGEST // 8 + 1))
    assert asked == [WORLD]
    assert len(together(lambda rank: ranks[rank].gather([1.0] * (LONGEST // 8)))[0][2]) == LONGEST // 8
    assert asked == [WORLD]


class Done:
    """An exchange that is over."""

    def is_completed(self) -> bool:
        return True

    def wait(self, _slice: object) -> None:
        return None


def test_a_rank_that_hangs_up_ends_the_run(ranks: list[Exchanges], monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, whatever it has not said; the reason that the others know is said where there is one."""
    monkeypatch.setattr(process, "fail", lambda: None)
    cast(Any, ranks[2]._here).close()
    ranks[0]._presence = cast(Any, lost_after(1))
    began = time.monotonic()
    with pytest.raises(RunError, match=r"Rank 2 is gone"):
        ranks[0].gather([1.0])
    assert time.monotonic() - began < 1.0


def lost_after(looks: int) -> Any:
    """Return a presence that knows after so many looks that a rank is gone."""

    class Presence:
        left = looks

        @property
        def lost(self) -> str | None:
            self.left -= 1
            return None if self.left >= 0 else "Rank 2 is gone."

        def exchange(self) -> None:
            return None

        def notice(self) -> str:
            return "Rank 2 is gone."

    return Presence()


def test_a_rank_that_does_not_come_counts_as_hung(ranks: list[Exchanges], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "fail", lambda: None)
    ranks[0]._timeout = 0.3
    with pytest.raises(RunError, match=r"Another rank did not come for 0\.3 seconds"):
        ranks[0].average(torch.ones(3))


def test_after_a_signal_it_is_waited_for_no_longer(ranks: list[Exchanges], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "PATIENCE", 0.05)
    monkeypatch.setattr(process, "stop_signal", lambda: 2)
    with pytest.raises(Interrupted):
        ranks[1].tell(0)


def test_other_users_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who comes first and says it is rank 1, but is somebody else's; the rank itself comes after."""
    token = secrets.token_bytes(16)
    first, other = SameMachine(0, 2, token), SameMachine(1, 2, token)
    users = [os.getuid() + 1, os.getuid()]
    monkeypatch.setattr(same_machine, "_user_of", lambda _: users.pop(0))
    stranger = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    stranger.connect(first._address(0))
    stranger.sendall(same_machine._WHO.pack(1))
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda one: one.connect(10.0), (first, other)))
    with pytest.raises(ConnectionResetError):
        stranger.recv(1)
    other.say(b"x")
    heard = first.hear(1)
    heard.wait(same_machine.SLICE)
    assert heard.messages == {1: b"x"}
    for one in (first, other, stranger):
        one.close()


def test_the_user_of_a_line_is_the_other_ends() -> None:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with one, other:
        assert same_machine._user_of(one) == os.getuid()


def test_a_rank_that_is_not_there_in_time_is_an_error() -> None:
    token = secrets.token_bytes(16)
    alone = SameMachine(0, 2, token)
    with pytest.raises(TimeoutError):
        alone.connect(0.05)
    alone.close()
    other = SameMachine(1, 2, token)
    with pytest.raises(ConnectionRefusedError):  # nobody listens any more
        other.connect(0.05)
    other.close()


def test_memory_that_cannot_be_had_is_one_sentence(ranks: list[Exchanges], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(RunError, match=r"There is no memory for the sums of 3 ranks: .*No space left"):
        ranks[0].average(torch.ones(SHORT))


@pytest.mark.parametrize("descriptors", [0, 1])
def test_memory_that_does_not_come_is_one_sentence_elsewhere(
    lines: list[SameMachine], monkeypatch: pytest.MonkeyPatch, descriptors: int
) -> None:
    """No descriptor could be taken, or none can be mapped; what comes after is not taken for it."""

    def map_none(*_: int) -> None:
        raise OSError("cannot allocate memory")

    lines[0].make_room(torch.ones(SHORT))
    monkeypatch.setattr(SameMachine, "_map", map_none)
    recv = socket.recv_fds
    if not descriptors:
        monkeypatch.setattr(socket, "recv_fds", lambda *told: (recv(*told)[0], [], 0, None))
    with pytest.raises(
        RunError, match=r"There is no memory for the sums of 3 ranks: (none has come|cannot allocate memory)"
    ):
        lines[1].take_room().wait(same_machine.SLICE)


def test_who_says_something_else_is_not_heard_again(lines: list[SameMachine]) -> None:
    """A mismatch of exchanges stays one, although the next message has the right size."""
    lines[1].say(b"xx")
    lines[1].say(b"x")
    heard = lines[0].hear(1, [1])
    for _ in range(2):
        with pytest.raises(RuntimeError, match="rank 1 says something else"):
            heard.wait(same_machine.SLICE)
    assert heard.is_completed()


def test_a_slice_is_not_one_for_each_rank(lines: list[SameMachine], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the first comes just in time, signals are looked at before the next; the control has time for both."""
    seconds = itertools.count()
    monkeypatch.setattr(same_machine, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    for slice_, came in ((timedelta(seconds=0.5), [1]), (timedelta(seconds=10.0), [1, 2])):
        heard = lines[0].hear(1)
        lines[1].say(b"x")
        lines[2].say(b"x")
        if len(came) < 2:
            with pytest.raises(RuntimeError, match="the slice is over"):
                heard.wait(slice_)
            assert list(heard.messages) == came
        heard.wait(slice_)
        assert sorted(heard.messages) == [1, 2]


def test_what_does_not_reach_a_rank_that_is_there_is_one_sentence(lines: list[SameMachine]) -> None:
    """The control is a rank that is gone: whoever waits for it notices."""
    with pytest.raises(RunError, match=r"Rank 1 cannot be told anything: .*"):
        for _ in range(10_000):
            lines[0].say(b"x" * LONGEST)
    lines[1].close()
    lines[2].close()
    lines[0].say(b"x")


@pytest.mark.parametrize(("networks", "used"), [((1, 1, 1), True), ((1, 1, 2), False), ((0, 0, 0), False)])
def test_lines_are_for_ranks_of_one_machine_and_network(
    monkeypatch: pytest.MonkeyPatch, networks: tuple[int, ...], used: bool
) -> None:
    """Two networks of one machine stand for two machines. Where one rank has no lines, none has."""
    said: dict[int, dict[int, Any]] = {}
    token = secrets.token_bytes(16)

    class Rank(Exchanges):
        """Whose exchanges before it has lines go by a dictionary."""

        turn = 0

        def send(self, data: bytes, source: int) -> bytes:
            return token

        def gather(self, values: Any, patience: float | None = None) -> list[list[float]]:
            self.turn += 1
            said.setdefault(self.turn, {})[self.rank] = list(values)
            while len(said[self.turn]) < WORLD:
                time.sleep(0.001)
            return [said[self.turn][rank] for rank in range(WORLD)]

    own: dict[int, int] = {}
    monkeypatch.setattr(exchange, "network_here", lambda: own[threading.get_ident()])
    made = [Rank(rank, WORLD, 10.0) for rank in range(WORLD)]

    def meet(rank: int) -> bool:
        own[threading.get_ident()] = networks[rank]
        made[rank].meet_here(10.0)
        return made[rank]._here is not None

    assert together(meet) == [used] * WORLD
    for one in made:
        if one._here is not None:
            one._here.close()
