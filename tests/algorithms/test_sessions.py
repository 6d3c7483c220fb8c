"""A session of 32, in this process: what it counts, how often it copies, and beginning anew in the middle of a run."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fastdqn import build_sac
from fastdqn.algorithms.sessions import PIECE, ControlSession
from fastdqn.errors import UserError
from fastdqn.execution.hogwild import FIRST_STEPS, Commons
from fastdqn.types import SessionPiece
from tests.helpers.scripts import SESSIONS, parse

INITIAL = 10
WORDS = ("--batch-size", "4", "--hidden", "16", "--replay-initial", str(INITIAL), "--replay-size", "200")
BEGUN = {"begun": 200, "env_steps": 200, "updates": 150}


@pytest.fixture(autouse=True)
def time_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece ends by its env steps, however slow the machine is."""
    monkeypatch.setattr("fastdqn.algorithms.sessions.PIECE_SECONDS", 1e9)


def sessions_of(*words: str, count: int = 1) -> tuple[list[ControlSession], Commons]:
    """Return sessions as their processes build them, and what they share."""
    options = parse(SESSIONS, "--sessions", str(count), *WORDS, *words)
    groups = (options.run, options.game, options.sac, options.vector, options.sessions)
    _, _, weights, commons, descents, plan, _ = build_sac.sessions_elsewhere(*groups)
    built = [plan.build(weights.networks[i], i, 0, descents[i]) for i in range(count)]
    return [one for one in built if isinstance(one, ControlSession)], commons


def test_the_device_that_is_there_is_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """`auto` is no question where weights can be shared on a CPU alone."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    sessions, _ = sessions_of("--device", "auto")
    assert len(sessions) == 1


def test_a_replay_that_is_too_small_is_refused_before_there_are_sessions() -> None:
    with pytest.raises(UserError, match=r"^--replay-size 200 is too small for 201 games at once"):
        sessions_of("--num-envs", "201", count=2)


def said(piece: SessionPiece) -> tuple[int, int]:
    return piece.total_env_steps, piece.total_updates


def newest(session: ControlSession) -> list[float]:
    """Return what the games show."""
    return session._games.newest.tolist()


@pytest.mark.parametrize("way", ["shared", "synced"])
def test_updates_are_counted_exactly_where_adams_counts_are_lost(way: str) -> None:
    (one, other), commons = sessions_of("--distributed", way, count=2)
    members = commons.commons[0].members["critic"]
    for member in members:
        member.step.fill_(float(FIRST_STEPS))
    first = one.piece()
    for member in members:
        member.step.fill_(FIRST_STEPS + 1.0)  # as if the other had written what it read before all these
    second, others = one.piece(), other.piece()
    made = PIECE - INITIAL + 1
    assert [said(piece) for piece in (first, second, others)] == [
        *((PIECE, made), (2 * PIECE, made + PIECE), (PIECE, made))
    ]
    assert first.updates + second.updates + others.updates == 2 * made + PIECE
    assert {float(member.step) for member in members} == {FIRST_STEPS + 1.0 + PIECE + made}


def test_shared_weights_are_copied_every_so_many_updates() -> None:
    """With --sync-every 7 a session computes gradients at weights that are up to 6 updates old."""
    (session,), commons = sessions_of("--distributed", "synced", "--sync-every", "7")
    learner = session._learner
    same: list[bool] = []
    update = learner.update

    def updated(batch: object) -> object:
        metrics = update(batch)  # type: ignore[arg-type]
        pairs = [
            (parameter, member.weight)
            for group in learner.groups()
            for parameter, member in zip(group.parameters, commons.commons[0].members.get(group.name, []), strict=False)
        ]
        same.append(all(torch.equal(parameter, weight) for parameter, weight in pairs))
        return metrics

    learner.update = updated  # type: ignore[method-assign, assignment]
    session.piece()
    assert same == [number % 7 == 0 for number in range(1, PIECE - INITIAL + 2)]


def test_one_that_begins_anew_counts_on_and_fills_its_replay_first() -> None:
    (session,), _ = sessions_of()
    assert session.load(BEGUN).tolist() == [True]
    piece = session.piece()
    assert said(piece) == (200 + PIECE, 150 + PIECE - INITIAL + 1)
    assert (piece.env_steps, piece.updates) == (PIECE, PIECE - INITIAL + 1)


def test_one_that_begins_anew_has_other_random_numbers() -> None:
    states = []
    for begun in ({**BEGUN, "begun": 0}, BEGUN, {**BEGUN, "begun": 264}):
        (session,), _ = sessions_of()
        session.load(begun)
        states.append((newest(session), session.state()))
    assert states[0][0] == newest(sessions_of()[0][0])  # the control: from 0 the run's first games come again
    for kind in ("policy", "learner"):
        assert len({state[kind]["noise"].numpy().tobytes() for _, state in states}) == 3
    assert len({tuple(np.ravel(obs)) for obs, _ in states}) == 3
    assert len({state["replay"]["rng"] for _, state in states}) == 3


@pytest.mark.parametrize("begun", [200, 0])
def test_one_that_has_begun_anew_is_continued_exactly(begun: int) -> None:
    """Its games are those of its seeds; the control has those of the run's beginning, where they cannot be repeated."""
    (session,), commons = sessions_of("--max-frames", "20")
    session.load(BEGUN)
    session.piece()
    (again,), others = sessions_of("--max-frames", "20")
    others.load(commons.state())
    assert again.load({**session.state(), "begun": begun}).tolist() == [begun == 0]
    if begun:
        assert again.piece() == session.piece()
