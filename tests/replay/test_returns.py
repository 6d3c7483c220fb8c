"""Lambda-returns: those of the equation, of values that were given while playing, whatever ends in between."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fastdqn.build import check_games
from fastdqn.errors import UserError
from fastdqn.execution.background import Background
from fastdqn.options.dqn import AgentOptions, DQNOptions, PaceOptions
from fastdqn.options.groups import Groups
from fastdqn.options.parts import ReturnOptions
from fastdqn.options.resets import ResetOptions
from fastdqn.options.run import RunOptions
from fastdqn.replay import returns as returns_module
from fastdqn.replay.prioritized import PrioritizedReplay
from fastdqn.replay.returns import ReturnReplay, at_once
from fastdqn.replay.ring import FrameReplay
from fastdqn.replay.stored_returns import StoredReturns
from fastdqn.types import VectorStep
from tests.helpers.checkpoints import through_a_file

GAMES, BLOCK, GAMMA, CPU = 3, 8, 0.9, torch.device("cpu")


class History:
    """Steps of games in which everything happens at random, and what the replay should make of them."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.reward: list[np.ndarray] = []
        self.terminated: list[np.ndarray] = []
        self.truncated: list[np.ndarray] = []
        self.reset: list[np.ndarray] = []
        self.value: list[np.ndarray] = []
        self._over = np.zeros(GAMES, bool)

    def frames(self) -> np.ndarray:
        """Return frames that say which row they are of."""
        return np.full((GAMES, 6, 6), len(self.reward) % 256, np.uint8)

    def step(self, replay: ReturnReplay, around: PrioritizedReplay | None = None) -> None:
        values = self.rng.normal(size=GAMES).astype(np.float32)
        replay.values.copy_(torch.from_numpy(values))
        replay.note()
        reset = self._over
        ends = self.rng.random(GAMES) < 0.15
        cut = self.rng.random(GAMES) < 0.3
        terminated, truncated = ends & ~cut & ~reset, ends & cut & ~reset
        self._over = terminated | truncated
        reward = np.where(reset, 0.0, self.rng.integers(-1, 2, GAMES)).astype(np.float32)
        for name, found in zip(
            ("reward", "terminated", "truncated", "reset", "value"),
            (reward, terminated, truncated, reset, values),
            strict=True,
        ):
            getattr(self, name).append(found)
        (around or replay).add(
            self.rng.integers(4, size=GAMES), VectorStep(self.frames(), reward, terminated, truncated, reset, ())
        )

    def wanted(
        self, time: int, game: int, decay: float, last: int | None = None, asked: Callable[[int], int] = lambda _: 1
    ) -> float:
        """The forward view: a mean of n-step returns, each by hand (Sutton & Barto 2018, equation 12.3).

        `asked` says for a row how many there are to the one before it whose values are asked, and 0 for one whose are
        not.
        """
        last = (time // BLOCK + 1) * BLOCK if last is None else last  # the row at which the block ends
        mean, left, total, t = 0.0, 1.0, 0.0, time
        while True:
            total += GAMMA ** (t - time) * float(self.reward[t][game])
            t += 1
            terminated = bool(self.terminated[t - 1][game])
            follows = 0.0 if terminated else GAMMA ** (t - time) * float(self.value[t][game])
            if terminated or self.truncated[t - 1][game] or t == last:
                return mean + left * (total + follows)
            if asked(t):
                goes_on = decay ** asked(t)
                mean += left * (1 - goes_on) * (total + follows)
                left *= goes_on


def replay_of(
    decay: float, rows: int = 64, seed: int = 0, every: int | None = None, turns: int = 1, delay: int = 0
) -> ReturnReplay:
    size = (rows * GAMES, GAMES, (6, 6), 2, GAMMA, CPU, seed)
    return ReturnReplay(decay, BLOCK, every, *size, channels_last=True, turns=turns, delay=delay)


@pytest.mark.parametrize("decay", [0.0, 0.7, 1.0])
def test_they_are_those_of_the_equation(decay: float) -> None:
    replay, history = replay_of(decay), History(0)
    replay.reset(history.frames())
    for _ in range(5 * BLOCK + 1):
        history.step(replay)
    time, game = (
        grid.flatten() for grid in torch.meshgrid(torch.arange(5 * BLOCK), torch.arange(GAMES), indexing="ij")
    )
    found = replay._return[replay.slots(time, game)]
    real = [not history.reset[t][g] for t, g in zip(time.tolist(), game.tolist(), strict=True)]
    wanted = [
        history.wanted(t, g, decay) if r else 0.0 for t, g, r in zip(time.tolist(), game.tolist(), real, strict=True)
    ]
    mask = torch.tensor(real)
    assert mask.sum() > 90
    assert not mask.all()
    assert any(one.any() for one in history.terminated)
    assert any(one.any() for one in history.truncated)
    torch.testing.assert_close(found[mask], torch.tensor(wanted)[mask], rtol=1e-5, atol=1e-5)


def test_returns_end_at_what_can_be_learnt() -> None:
    plain = replay_of(0.7)
    limited = ReturnReplay(0.7, BLOCK, None, 64 * GAMES, GAMES, (6, 6), 2, GAMMA, CPU, 0, limits=(-0.5, 0.75))
    for replay in (plain, limited):
        history = History(5)
        replay.reset(history.frames())
        for _ in range(3 * BLOCK + 1):
            history.step(replay)
    known = plain._return[plain.slots(torch.arange(3 * BLOCK).unsqueeze(1), torch.arange(GAMES))]
    found = limited._return[limited.slots(torch.arange(3 * BLOCK).unsqueeze(1), torch.arange(GAMES))]
    assert known.min() < -0.5
    assert known.max() > 0.75
    torch.testing.assert_close(found, known.clamp(-0.5, 0.75))


def test_one_game_of_many_rows_is_looked_back_on_as_row_by_row() -> None:
    """Shares of 2,000 rows, which float32 rounds to zero on the way, against the recursion in float64."""
    rows, decay, gamma = 2_000, 0.95, 0.997
    replay = ReturnReplay(decay, BLOCK, None, rows + 20, 1, (6, 6), 2, gamma, CPU, 0)
    rng = np.random.default_rng(3)
    ends = torch.from_numpy(rng.random(replay.size) < 0.004)
    replay._value.normal_()
    replay._reward.normal_()
    replay._terminated.copy_(ends & torch.from_numpy(rng.random(replay.size) < 0.5))
    replay._ended.copy_(ends)
    replay._look_back(rows, 0)
    value, reward = replay._value.double(), replay._reward.double()
    following = value[rows]
    for row in range(rows - 1, -1, -1):
        ahead = value[row + 1] if ends[row] else (1 - decay) * value[row + 1] + decay * following
        following = reward[row] + (0.0 if replay._terminated[row] else gamma * ahead)
        assert float(replay._return[row]) == pytest.approx(float(following), abs=1e-4)


def test_batches_are_of_blocks_that_are_over() -> None:
    """Each return is handed out with its own observation, and none of the newest rows or of a reset."""
    replay, history = replay_of(0.7, rows=30), History(1)
    replay.reset(history.frames())
    with pytest.raises(IndexError, match="no whole window"):
        replay.sample(4)
    for _ in range(100):
        history.step(replay)
    newest = 99 // BLOCK * BLOCK
    seen: set[int] = set()
    for batch in [replay.sample(16) for _ in range(20)]:
        rows = batch.obs[:, -1, 0, 0].tolist()
        seen |= set(rows)
        assert not batch.discount.any()
        for row, value in zip(rows, batch.reward.tolist(), strict=True):
            wanted = [history.wanted(row, game, 0.7) for game in range(GAMES) if not history.reset[row][game]]
            assert min(abs(value - one) for one in wanted) < 1e-4
    assert max(seen) == newest - 1
    assert min(seen) >= 100 - 30
    assert len(seen) > 10


def test_it_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    replay, history = replay_of(0.7), History(2)
    replay.reset(history.frames())
    for _ in range(30):
        history.step(replay)
    other = replay_of(0.7, seed=5)
    other.load(through_a_file(tmp_path, replay))
    for _ in range(2 * BLOCK):
        history.step(replay)
        step = history
        other.values.copy_(replay.values)
        other.note()
        truncated, reset = step.truncated[-1], step.reset[-1]
        row = replay.begin_of(len(history.reward) - 1)
        actions = replay._action[row : row + GAMES].numpy().astype(np.int64)
        other.add(actions, VectorStep(step.frames(), step.reward[-1], step.terminated[-1], truncated, reset, ()))
    for a, b in [(replay.sample(8), other.sample(8)) for _ in range(3)]:
        assert all(torch.equal(x, y) for x, y in zip(a[:5], b[:5], strict=True))


def test_with_priorities_a_transition_begins_with_its_error_and_is_drawn_by_it() -> None:
    """The error is what the return says against the value that was given while playing."""
    decay, floor, exponent = 0.7, 1e-3, 0.5
    returns, history = replay_of(decay, rows=30), History(3)
    replay = PrioritizedReplay(returns, exponent, floor)
    replay.reset(history.frames())
    with pytest.raises(IndexError, match="no whole window"):
        replay.sample(4)
    for t in range(100):
        history.step(returns, replay)
        leaves = replay.priorities.leaves().view(30, GAMES)
        newest, oldest = t // BLOCK * BLOCK, max(0, t + 1 - returns._reach)
        for row in range(max(0, t - 28), t + 1):
            for game in range(GAMES):
                error = abs(history.wanted(row, game, decay) - float(history.value[row][game])) if row < newest else 0.0
                drawable = oldest <= row < newest and not history.reset[row][game]
                wanted = (error + floor) ** exponent if drawable else 0.0
                assert leaves[row % 30, game] == pytest.approx(wanted, rel=1e-3, abs=1e-6)
    replay.set_beta(0.0)
    batch = replay.sample(4_000)
    assert batch.slot is not None
    assert torch.equal(batch.weight, torch.ones(4_000))  # type: ignore[arg-type]
    drawn = torch.bincount(batch.slot, minlength=returns.size) / 4_000
    leaves = replay.priorities.leaves()
    torch.testing.assert_close(drawn, leaves / leaves.sum(), rtol=0, atol=0.002)
    replay.write_back(batch, torch.zeros(4_000))
    assert torch.unique(replay.priorities.leaves()[batch.slot]).tolist() == pytest.approx([floor**exponent])


def values_of(obs: torch.Tensor) -> torch.Tensor:
    """Return values (B, 4) of observations, whose frames say which row they are of."""
    row = obs[:, -1, 0, 0].to(torch.float32).unsqueeze(1)
    actions = torch.arange(4)
    return torch.sin(row) - 0.1 * (actions - row % 4).abs()


@pytest.mark.parametrize("count", [10, 29, 150])
def test_a_refresh_computes_all_returns_anew(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the values of now, across the ends of blocks; what is too old is left alone, and the newest rows, whose block
    is not over, have new values the first time, and no returns yet.
    """
    monkeypatch.setattr(returns_module, "REFRESHED_AT_ONCE", 7)
    decay, exponent, floor, rows = 0.8, 0.5, 1e-3, 30
    returns, history = replay_of(decay, rows=rows, every=20 * GAMES), History(4)
    replay = PrioritizedReplay(returns, exponent, floor)
    replay.reset(history.frames())
    for _ in range(count):
        history.step(returns, replay)
    assert returns.stale == (count >= 20)
    drawable = replay.priorities.leaves() > 0
    returns.refresh(values_of)
    replay.renew()
    assert not returns.stale
    newest, oldest = (count - 1) // BLOCK * BLOCK, max(0, count - returns._reach)
    history.value = [np.full(GAMES, float(np.sin(row))) for row in range(count)]
    for row in range(oldest, count):
        assert torch.allclose(returns._value[row % rows * GAMES :][:GAMES], torch.tensor(np.sin(row)).float())
    leaves, seen = replay.priorities.leaves(), 0
    assert torch.equal(leaves > 0, drawable)
    for row in range(oldest, newest):
        begin = row % rows * GAMES
        for game in range(GAMES):
            if history.reset[row][game]:
                assert leaves[begin + game] == 0
                continue
            wanted = history.wanted(row, game, decay, newest)
            taken = np.sin(row) - 0.1 * abs(int(returns._action[begin + game]) - row % 4)
            assert float(returns._return[begin + game]) == pytest.approx(wanted, abs=1e-5)
            assert float(leaves[begin + game]) == pytest.approx((abs(wanted - taken) + floor) ** exponent, rel=1e-3)
            seen += 1
    assert seen == int(drawable.sum())
    assert seen > (10 if count == 10 else 25)


def test_another_gamma_counts_from_the_next_refresh_on(tmp_path: Path) -> None:
    """For all that is stored: then there is no telling which one it was before. A checkpoint holds it."""
    found: list[torch.Tensor] = []
    for first in (GAMMA, 0.99):
        replay, history = ReturnReplay(0.8, BLOCK, 9, 64 * GAMES, GAMES, (6, 6), 2, first, CPU, 0), History(7)
        replay.reset(history.frames())
        for _ in range(4 * BLOCK + 1):
            history.step(replay)
        before = replay._return.clone()
        replay.set_gamma(0.99)
        assert torch.equal(replay._return, before)
        state = through_a_file(tmp_path, replay)
        replay.set_gamma(0.5)
        replay.load(state)
        replay.refresh(values_of)
        found.append(replay._return.clone())
        assert not torch.equal(found[-1], before)
    assert torch.equal(*found)


def test_refreshes_in_turns_evaluate_one_row_of_so_many(tmp_path: Path) -> None:
    """The first evaluates all; then each row has its turn within as many refreshes as there are turns. A checkpoint
    knows whose turn it is.
    """
    returns, history = replay_of(0.8, rows=60, every=GAMES, turns=3), History(6)
    returns.reset(history.frames())
    for _ in range(40):
        history.step(returns)

    def evaluated(replay: ReturnReplay, value: float) -> set[int]:
        replay.refresh(lambda obs: torch.full((len(obs), 4), value))
        rows = replay._value[: 41 * GAMES].view(41, GAMES)
        assert torch.equal(rows == value, (rows[:, :1] == value).expand(-1, GAMES))
        return set(torch.nonzero(rows[:, 0] == value).flatten().tolist())

    assert evaluated(returns, 100.0) == set(range(40))
    history.step(returns)
    other = replay_of(0.8, rows=60, every=GAMES, turns=3, seed=5)
    other.load(through_a_file(tmp_path, returns))
    known = set(range(returns._host_known + 1))
    turns = [evaluated(returns, 200.0 + turn) for turn in range(3)]
    assert turns == [evaluated(other, 200.0 + turn) for turn in range(3)]
    assert set.union(*turns) == known
    assert sum(len(turn) for turn in turns) == len(known)
    assert torch.equal(returns._return, other._return)
    row = min(turns[2]) * GAMES
    assert float(returns._value[row]) == 202.0
    evaluated(returns, 300.0)
    assert float(returns._value[row]) == 202.0


@pytest.mark.parametrize(("turns", "count"), [(3, 40), (3, 150), (4, 77), (100, 90)])
@pytest.mark.parametrize("decay", [0.0, 0.8])
@pytest.mark.parametrize("over", [False, True], ids=["", "over a checkpoint"])
def test_returns_do_not_ask_values_whose_turn_it_is_not(
    turns: int, count: int, decay: float, over: bool, tmp_path: Path
) -> None:
    """Between two rows with new values they hold rewards alone, and a row with one counts for as many as there are from
    it to the next. Rows that came after the refresh have the values that they were given. Where no row has its turn,
    all are asked.
    """
    rows, delay = 60, 2 * GAMES
    returns, history = replay_of(decay, rows=rows, every=GAMES, turns=turns, delay=delay), History(6)
    returns.reset(history.frames())
    for _ in range(count - 8):
        history.step(returns)
    assert returns.refresh(values_of)
    first_newest = (count - 9) // BLOCK * BLOCK
    history.value[: count - 8] = [np.full(GAMES, np.sin(row)) for row in range(count - 8)]
    for _ in range(8):
        history.step(returns)
    begun, known = max(0, count - returns._reach), returns._host_known
    assert known > first_newest
    assert not returns.refresh(lambda obs: values_of(obs) + 5)
    for row in range(begun, known + 1):
        if row % turns == 1:  # the second refresh
            history.value[row] = np.full(GAMES, np.sin(row) + 5)
    if over:
        other = replay_of(decay, rows=rows, every=GAMES, turns=turns, delay=delay, seed=5)
        other.load(through_a_file(tmp_path, returns))
        returns = other
    for _ in range(2):
        history.step(returns)
    assert returns.settle()
    new = [row for row in range(begun, known + 1) if row % turns == 1]
    last = max(new, default=-1)
    seen = 0
    for row in range(max(0, count + 2 - returns._reach), returns._host_known):
        for game in range(GAMES):
            if history.reset[row][game]:
                continue
            wanted = history.wanted(
                *(row, game, decay, returns._host_known),
                lambda t: 1 if t > last else turns if t % turns == 1 else 0,
            )
            found = float(returns._return[row % rows * GAMES + game])
            assert found == pytest.approx(wanted, abs=1e-5)
            seen += 1
    assert seen > 60
    assert bool(new) == (turns < 100)


@pytest.mark.usefixtures("one_torch_thread")
@pytest.mark.parametrize(("rows", "delay"), [(60, 5 * GAMES - 1), (50, 5 * GAMES), (50, 4 * GAMES + 1)])
@pytest.mark.parametrize("way", ["at once", "in the background", "at the last moment", "over a checkpoint"])
def test_values_that_count_later_are_those_of_when_they_were_begun(
    rows: int, delay: int, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is written over meanwhile is left alone, and steps made meanwhile keep their values. The first counts at
    once.
    """
    monkeypatch.setattr(returns_module, "REFRESHED_AT_ONCE", 7)
    ways = {"at once": at_once, "at the last moment": lambda pieces: partial(at_once, pieces)}
    start = ways.get(way, Background(2).start)
    decay, begun = 0.8, 48
    returns, history = replay_of(decay, rows=rows, every=8 * GAMES, delay=delay), History(6)
    returns.reset(history.frames())
    for _ in range(40):
        history.step(returns)
    assert returns.refresh(lambda obs: torch.full((len(obs), 4), 100.0), start)
    assert bool((returns._value[: 40 * GAMES] == 100.0).all())
    for _ in range(begun - 40):
        history.step(returns)
    known = returns._host_known
    assert not returns.refresh(values_of, start)
    for step in range(5):
        assert not returns.settle()
        assert bool((returns._value[10 * GAMES : 20 * GAMES] == 100.0).all())
        history.step(returns)
        if step == 2 and way == "over a checkpoint":
            other = replay_of(decay, rows=rows, every=8 * GAMES, delay=delay, seed=5)
            other.load(through_a_file(tmp_path, returns))
            returns = other
    assert returns.settle()
    assert not returns.settle()
    head, seen = begun + 5, 0
    history.value = [np.full(GAMES, np.sin(row)) if row <= known else history.value[row] for row in range(head)]
    for row in range(max(0, head - returns._reach), head):
        begin = row % rows * GAMES
        assert torch.allclose(returns._value[begin:][:GAMES], torch.tensor(history.value[row]).float())
        for game in range(GAMES if row < returns._host_known else 0):
            if not history.reset[row][game]:
                wanted = history.wanted(row, game, decay, returns._host_known)
                assert float(returns._return[begin + game]) == pytest.approx(wanted, abs=1e-5)
                seen += 1
    assert seen > 60


def test_a_checkpoint_does_not_depend_on_when_values_were_computed() -> None:
    """Those of rows that were written over before are not kept."""
    states: list[Any] = []
    for start in (at_once, lambda pieces: partial(at_once, pieces)):
        returns, history = replay_of(0.8, rows=50, every=8 * GAMES, delay=7 * GAMES), History(6)
        returns.reset(history.frames())
        for _ in range(60):
            history.step(returns)
        returns.refresh(values_of, start)
        for _ in range(8):
            history.step(returns)
            returns.settle()
        returns.refresh(values_of, start)
        for _ in range(6):
            history.step(returns)
        states.append(returns.state())
    for name in ("new", "value", "taken", "return"):
        for one, other in zip(*(state[name] for state in states), strict=True):
            assert torch.equal(one, other)
    assert int((states[0]["new"][1] == 0).sum()) > 2 * GAMES


@pytest.mark.parametrize("begun_anew", [False, True])
def test_values_of_games_that_are_gone_never_count(begun_anew: bool, tmp_path: Path) -> None:
    returns, history = replay_of(0.8, rows=60, every=8 * GAMES, delay=5 * GAMES), History(6)
    returns.reset(history.frames())
    for _ in range(40):
        history.step(returns)
    returns.refresh(values_of)
    for _ in range(8):
        history.step(returns)
    returns.refresh(lambda obs: torch.full((len(obs), 4), 100.0))
    if begun_anew:
        returns.reset(history.frames())
    else:
        fresh = replay_of(0.8, rows=60, seed=5)
        fresh.reset(history.frames())
        returns.load(through_a_file(tmp_path, fresh))
    for _ in range(20):
        history.step(returns)
        assert not returns.settle()


def test_without_returns_there_is_nothing_to_refresh() -> None:
    frames = FrameReplay(60, 3, (6, 6), 2, 1, GAMMA, CPU, 0)
    StoredReturns(frames).refresh(pytest.fail)
    replay = PrioritizedReplay(frames)
    before = replay.priorities.leaves().clone()
    replay.renew()
    assert torch.equal(replay.priorities.leaves(), before)


@pytest.mark.parametrize(
    ("dqn", "agent", "said"),
    [
        (DQNOptions(n_step=3), AgentOptions(), "--n-step contradicts --trace-decay 0.9.*; --trace-decay None turns"),
        (DQNOptions(double=True), AgentOptions(), "--double contradicts --trace-decay 0.9"),
        (DQNOptions(), AgentOptions(target_average=0.1), "--target-average and --act-with target go together"),
        (DQNOptions(), AgentOptions(act_with="target"), "--target-average and --act-with target go together"),
    ],
)
def test_what_it_leaves_no_room_for_is_refused(dqn: DQNOptions, agent: AgentOptions, said: str) -> None:
    with pytest.raises(UserError, match=said):
        Groups(dqn=dqn, agent=agent, returns=ReturnOptions(0.9)).check()


def test_returns_have_no_windows_that_could_move() -> None:
    with pytest.raises(UserError, match=r"--first-n-step and --first-gamma contradict --trace-decay 0\.9"):
        Groups(dqn=DQNOptions(), returns=ReturnOptions(0.9), resets=ResetOptions(first_gamma=0.9)).check()
    Groups(dqn=DQNOptions(), returns=ReturnOptions(0.9), resets=ResetOptions(reset_updates=9)).check()


@pytest.mark.parametrize(
    ("dqn", "said"),
    [
        (DQNOptions(replay_size=2_000), "--replay-size 2000 is too small for blocks of 64 env steps of 16 games"),
        (DQNOptions(replay_initial=1024), "--replay-initial 1024 is too small .* it must be at least 1040"),
    ],
)
def test_a_replay_that_is_too_short_for_its_blocks_is_refused(dqn: DQNOptions, said: str) -> None:
    with pytest.raises(UserError, match=said):
        check_games(16, RunOptions(), dqn, PaceOptions(), ReturnOptions(0.9))


def test_a_replay_has_room_for_whole_stacks_with_returns() -> None:
    """With short blocks and long stacks three blocks are not enough: what is drawn would have gone."""
    dqn = DQNOptions(replay_size=15, replay_initial=8)
    check_games(1, RunOptions(), dqn, PaceOptions(), ReturnOptions(0.9, block_steps=4), frame_stack=8)
    with pytest.raises(UserError, match="must be at least 15"):
        check_games(
            *(1, RunOptions(), dataclasses.replace(dqn, replay_size=14), PaceOptions()),
            *(ReturnOptions(0.9, block_steps=4), 8),
        )


def test_a_ring_without_room_for_a_block_is_refused() -> None:
    """Else the returns of rows that were written over would stand beside what has come in their place."""

    def made(rows: int) -> ReturnReplay:
        return ReturnReplay(0.9, 30, None, 2 * rows, 2, (6, 6), 2, GAMMA, CPU, 0)

    with pytest.raises(UserError, match="too small for blocks of 30 env steps of 2 games; it must be at least 70"):
        made(34)
    assert made(35).size == 70
