"""The lines by which ranks hear of each other: who is nobody, who is gone, and who is waited for."""

from __future__ import annotations

import socket
import time

import pytest

from fastdqn import process
from fastdqn.execution import presence as presence_of
from fastdqn.execution.exchange import dist
from fastdqn.execution.presence import Presence


def test_a_stranger_on_the_line_is_nobody() -> None:
    """Who does not know the token of the store is not taken for a rank, whatever it says."""
    store = dist.HashStore()
    with Presence(0, 2, "127.0.0.1", store) as presence:
        port = int(store.get("fastdqn/presence").decode().split()[0])
        with socket.create_connection(("127.0.0.1", port)) as line:
            line.sendall(b'{"rank": 1, "token": "guessed", "place": "here"}\n{"failed": "so I say"}\n[]\nno json\n')
            line.sendall(b'{"rank": 1e999}\n' + b"[" * 200_000 + b"\n")
            with Presence(1, 2, "127.0.0.1", store) as other:
                end = time.monotonic() + 20.0
                while not (other.complete() and presence.complete()) and time.monotonic() < end:
                    time.sleep(0.01)
                assert presence.missing() == []
                assert presence.lost is None
        assert presence.lost is None  # it has left as it should


def ends_of(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return when this process would have been ended, with short times for that."""
    left: list[float] = []
    monkeypatch.setattr(presence_of, "GRACE_SECONDS", 0.1)
    monkeypatch.setattr(presence_of, "SAVE_SECONDS", 0.6)
    monkeypatch.setattr(process, "tell", lambda _: None)
    monkeypatch.setattr(process, "kill_children", lambda: None)
    monkeypatch.setattr(presence_of.os, "_exit", lambda _: left.append(time.monotonic()))
    return left


@pytest.mark.parametrize(("saves", "ends"), [(0.0, 0.1), (0.4, 0.35), (60.0, 0.5)])
def test_who_writes_a_checkpoint_is_ended_when_it_is_whole(
    monkeypatch: pytest.MonkeyPatch, saves: float, ends: float
) -> None:
    """Another rank is gone, and the main thread does not notice: with nothing to write the grace begins at once, else
    when that is done, or has taken too long.
    """
    left = ends_of(monkeypatch)
    with Presence(0, 2, "127.0.0.1", dist.HashStore()) as presence:
        began = time.monotonic()
        presence.saving = lambda: time.monotonic() - began < saves
        presence._lose("Rank 1 is gone.")
        while not left and time.monotonic() - began < 20.0:
            time.sleep(0.01)
        presence.notice()
    assert ends <= left[0] - began < ends + 15.0


@pytest.mark.parametrize("itself", [True, False])
def test_who_was_stopped_itself_does_not_take_the_others_for_gone(
    monkeypatch: pytest.MonkeyPatch, itself: bool
) -> None:
    """As Ctrl-Z stops all ranks: nobody has said a word meanwhile. The control: another rank alone was stopped."""
    monkeypatch.setattr(presence_of, "SILENT_SECONDS", 0.4)
    here, there = socket.socketpair()
    with here, there, Presence(0, 2, "127.0.0.1", dist.HashStore()) as presence:
        presence.begun()
        presence._lines[1] = line = presence_of._Line(here, 1)
        if itself:
            real = time.monotonic
            monkeypatch.setattr(time, "monotonic", lambda: real() + 1.0)
        end = time.monotonic() + (0.25 if itself else 20.0)
        while time.monotonic() < end and presence.lost is None:
            if not itself:
                line.heard = time.monotonic() - 1.0
            time.sleep(0.01)
        assert (presence.lost is None) == itself
        presence.notice()
        presence._left.add(1)


@pytest.mark.parametrize(
    ("begun", "patience", "silent"), [(True, 0.0, 0.4), (True, 1.2, 1.2), (False, 1.2, 1.6), (False, 1.8, 1.8)]
)
def test_until_all_learn_a_rank_may_be_silent_for_longer(
    monkeypatch: pytest.MonkeyPatch, begun: bool, patience: float, silent: float
) -> None:
    """Emulators that are made hold Python's lock for as long as that takes. And so may one of a patient company."""
    monkeypatch.setattr(presence_of, "SILENT_SECONDS", 0.4)
    monkeypatch.setattr(presence_of, "START_SECONDS", 1.6)
    here, there = socket.socketpair()
    with here, there, Presence(0, 2, "127.0.0.1", dist.HashStore(), patience=patience) as presence:
        presence._lines[1] = presence_of._Line(here, 1)
        if begun:
            presence.begun()
        began = time.monotonic()
        while presence.lost is None and time.monotonic() - began < 20.0:
            time.sleep(0.01)
        said = presence.notice()
        presence._left.add(1)
    assert said == f"Rank 1 has been silent for {silent:g} seconds: it was stopped, or cut off."
    assert time.monotonic() - began > silent - 0.1


def test_who_has_noticed_and_hangs_then_is_ended_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Say in a device's operation that waits for a rank that is gone."""
    left = ends_of(monkeypatch)
    with Presence(0, 2, "127.0.0.1", dist.HashStore()) as presence:
        began = time.monotonic()
        presence._lose("Rank 1 is gone.")
        assert presence.notice() == "Rank 1 is gone."
        while not left and time.monotonic() - began < 20.0:
            time.sleep(0.01)
    assert 0.6 <= left[0] - began < 20.0


def test_a_rank_that_comes_after_the_end_is_told_of_it() -> None:
    store = dist.HashStore()
    with Presence(0, 3, "127.0.0.1", store) as presence, Presence(1, 3, "127.0.0.1", store) as early:
        end = time.monotonic() + 20.0
        while not early.complete() and time.monotonic() < end:
            time.sleep(0.01)
        presence.fail("Rank 0 could not go on.")
        with Presence(2, 3, "127.0.0.1", store) as late:
            while not (late.complete() and late.lost) and time.monotonic() < end:
                time.sleep(0.01)
            assert late.notice() == early.notice() == "Rank 0 could not go on."
