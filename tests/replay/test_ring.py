"""The ring against a brute-force reference on real games, and against the list replay."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from ale_py.vector_env import AtariVectorEnv

from fastdqn.envs.vector import AtariVector
from fastdqn.errors import UserError
from fastdqn.options.game import GameOptions
from fastdqn.replay.ring import FrameReplay
from fastdqn.replay.stacks import GameStacks
from fastdqn.types import VectorStep
from tests.helpers.learners import moved
from tests.helpers.replays import CPU, ENDS, GAMMA, RESETS, Script, feed, make_replay


class Played(NamedTuple):
    """What one game showed: the reference is put together from this alone."""

    stacks: list[np.ndarray]  # (4, 84, 84), as the emulator's own stacking showed them
    actions: list[int]
    rewards: list[float]
    terminated: list[bool]
    truncated: list[bool]
    reset: list[bool]  # the step from this observation was a reset


def reference(game: Played, start: int, n: int) -> tuple[np.ndarray, int, float, float, np.ndarray]:
    total, k = 0.0, 0
    while True:
        assert not game.reset[start + k], "a window ran into a reset"
        total += GAMMA**k * game.rewards[start + k]
        k += 1
        if game.terminated[start + k - 1] or game.truncated[start + k - 1] or k == n:
            break
    discount = 0.0 if game.terminated[start + k - 1] else GAMMA**k
    return game.stacks[start], game.actions[start], total, discount, game.stacks[start + k]


def play(rom: str, envs: int, steps: int, max_frames: int) -> Any:
    """Yield actions, the adapter's step, the emulator's own stacks: two emulators under the same random actions."""
    game = GameOptions(name=rom, max_frames=max_frames)
    adapter = AtariVector(rom, game, envs, np.random.SeedSequence(3), threads=2)
    plain = AtariVectorEnv(
        rom,
        envs,
        stack_num=4,
        life_loss_info=True,
        reward_clipping=True,
        max_num_frames_per_episode=max_frames,
        num_threads=1,
    )
    rng = np.random.default_rng(0)
    frames, (stacks, _) = adapter.reset(), plain.reset(seed=adapter.seeds)
    yield None, frames, stacks
    for _ in range(steps):
        actions = rng.integers(adapter.num_actions, size=envs)
        adapter.send(actions)
        step = adapter.recv()
        stacks, reward, terminated, truncated, _ = plain.step(actions)
        np.testing.assert_array_equal(step.reward, reward)
        np.testing.assert_array_equal(step.terminated, terminated)
        np.testing.assert_array_equal(step.truncated, truncated & ~terminated)
        yield actions, step, stacks


@pytest.mark.parametrize("stack", [1, 3, 4])
def test_stacks_lie_with_channels_last_and_are_the_same(stack: int) -> None:
    rng = np.random.default_rng(0)
    replay = FrameReplay(2 * 40, 2, (36, 38), stack, 1, GAMMA, CPU, seed=0, channels_last=True)
    frames = rng.integers(256, size=(31, 2, 36, 38), dtype=np.uint8)
    replay.reset(frames[0])
    no = np.zeros(2, bool)
    for frame in frames[1:]:
        replay.add(np.zeros(2, np.int64), VectorStep(frame, np.zeros(2, np.float32), no, no, no, ()))
    batch = replay.transitions(torch.tensor([5, 29, 10]), torch.tensor([0, 1, 1]))
    assert batch.obs.shape == (3, stack, 36, 38)
    assert batch.obs.is_contiguous(memory_format=torch.channels_last)
    assert replay.stacks().is_contiguous(memory_format=torch.channels_last)
    for row, (time, game) in enumerate(((5, 0), (29, 1), (10, 1))):
        np.testing.assert_array_equal(batch.obs[row].numpy(), frames[time - stack + 1 : time + 1, game])
        np.testing.assert_array_equal(batch.next_obs[row].numpy(), frames[time - stack + 2 : time + 2, game])


@pytest.mark.parametrize(
    ("rom", "max_frames"),
    [
        ("space_invaders", 700),
        *(
            pytest.param(*other, marks=pytest.mark.slow)
            for other in (("breakout", 108_000), ("qbert", 800), ("pong", 500))
        ),
    ],
)
def test_transitions_equal_brute_force_on_real_games(rom: str, max_frames: int) -> None:
    """Every start that is stored, for n = 1, 3 and 5, over lost lives, game over, truncation and the ring's seam."""
    envs, rows = 3, 90
    replays = {n: make_replay(rows, envs, n) for n in (1, 3, 5)}
    played = [Played([], [], [], [], [], []) for _ in range(envs)]
    seen = {"terminated": 0, "truncated": 0, "reset": 0, "short windows": 0}
    for time, (actions, step, stacks) in enumerate(play(rom, envs, 300, max_frames)):
        for i, game in enumerate(played):
            game.stacks.append(stacks[i].copy())
            if actions is not None:
                game.actions.append(int(actions[i]))
                game.rewards.append(float(step.reward[i]))
                game.terminated.append(bool(step.terminated[i]))
                game.truncated.append(bool(step.truncated[i]))
                game.reset.append(bool(step.reset[i]))
        for n, replay in replays.items():
            if actions is None:
                replay.reset(step)
            else:
                replay.add(actions, step)
            np.testing.assert_array_equal(replay.stacks().numpy(), stacks)
            if time % 60 not in (0, 17) or time == 0:
                continue
            low = max(0, time - (rows - 4 - 1))
            starts = [(t, i) for t in range(low, time - n + 1) for i, game in enumerate(played) if not game.reset[t]]
            batch = replay.transitions(*(torch.tensor(column) for column in zip(*starts, strict=True)))
            for row, (t, i) in enumerate(starts):
                obs, action, reward, discount, next_obs = reference(played[i], t, n)
                assert np.array_equal(batch.obs[row].numpy(), obs)
                assert batch.action[row].item() == action
                assert batch.reward[row].item() == pytest.approx(reward, abs=1e-6)
                assert batch.discount[row].item() == pytest.approx(discount, abs=1e-6)
                if discount > 0.0:
                    assert np.array_equal(batch.next_obs[row].numpy(), next_obs)
                    seen["short windows"] += discount > GAMMA**n + 1e-6
    for game in played:
        seen["terminated"] += sum(game.terminated)
        seen["truncated"] += sum(game.truncated)
        seen["reset"] += sum(game.reset)
    assert seen["reset"] > 0
    assert seen["terminated"] > 0 or rom == "pong"
    assert seen["truncated"] > 0 or rom == "breakout"
    assert seen["short windows"] > 0 or rom == "breakout"


@pytest.mark.parametrize("n_step", [1, 3])
def test_draws_are_uniform_over_every_start(n_step: int) -> None:
    """Each stored env step with a complete window is drawn equally often, resets never; tails included."""
    replay = make_replay(16, 2, n_step, side=36)
    feed(Script(ENDS), replay, 24)
    low = 24 - (16 - 4 - 1)
    starts = {(t, i) for t in range(low, 24 - n_step + 1) for i in range(2)} - RESETS
    draws = 40_000
    time, game = replay.draw(draws)
    counts: dict[tuple[int, int], int] = {}
    for key in zip(time.tolist(), game.tolist(), strict=True):
        counts[key] = counts.get(key, 0) + 1
    tail = (12, 1)  # just before the oldest: taken after four draws of the reset that follows
    assert counts.pop(tail, 0) < 20
    assert set(counts) == starts
    expected = draws / len(starts)
    chi_square = sum((count - expected) ** 2 / expected for count in counts.values())
    assert chi_square < len(starts) + 5 * np.sqrt(2 * len(starts))  # 5 sigma; four resets in a row are that rare


def test_nothing_before_the_first_row_is_drawn() -> None:
    """Where it is a reset, in a replay that begins with games that begin anew: all draws may be that row."""
    replay = make_replay(16, 2, 1, side=36)
    frames, none = np.zeros((2, 36, 36), np.uint8), np.zeros(2, bool)
    replay.reset(frames)
    replay.add(np.zeros(2, np.int64), VectorStep(frames, np.zeros(2, np.float32), none, none, ~none, ()))
    time, _ = replay.draw(50)
    assert set(time.tolist()) == {0}


def test_new_draws_every_time_and_repeatable_by_seed() -> None:
    first, second = make_replay(64, 2, 1, side=36), make_replay(64, 2, 1, side=36)
    for replay in (first, second):
        feed(Script({}), replay, 50)
    a, b, c = first.draw(32), first.draw(32), second.draw(32)
    assert torch.equal(a[0], c[0])
    assert torch.equal(a[1], c[1])
    assert not torch.equal(a[0], b[0])


@pytest.mark.parametrize("n_step", [1, 3, 5])
def test_it_holds_what_the_list_replay_holds(n_step: int) -> None:
    """The same play makes the same transitions through GameStacks and through the ring."""
    script = Script(ENDS)
    replay = make_replay(64, 2, n_step, side=36)
    frames = script.frames()
    stacks = GameStacks(2, (36, 36), 4, n_step, GAMMA)
    stacks.reset(frames)
    replay.reset(frames)
    listed = []
    for _ in range(40):
        actions, step = script.step()
        listed += stacks.add(actions, step)
        replay.add(actions, step)
        np.testing.assert_array_equal(stacks.obs(), replay.stacks().numpy())
    starts = [(t, i) for t in range(40 - n_step + 1) for i in range(2) if (t, i) not in RESETS]
    batch = replay.transitions(*(torch.tensor(column) for column in zip(*starts, strict=True)))

    def key(obs: np.ndarray, action: float, reward: float, discount: float, next_obs: np.ndarray) -> tuple[Any, ...]:
        seen_next = np.asarray(next_obs)[:, 0, 0].tolist() if discount else None
        stack = np.asarray(obs)[:, 0, 0].tolist()
        return (stack, int(action), round(float(reward), 5), round(float(discount), 5), seen_next)

    ours = [
        key(batch.obs[row].numpy(), *(float(part[row]) for part in batch[1:4]), batch.next_obs[row].numpy())
        for row in range(len(starts))
    ]
    theirs = [key(*(np.asarray(t.obs), t.action, t.reward, t.discount, np.asarray(t.next_obs))) for t in listed]
    assert sorted(ours, key=str) == sorted(theirs, key=str)


def test_shapes_and_types() -> None:
    replay = make_replay(32, 2, 3, side=36)
    with pytest.raises(IndexError, match="no whole window"):
        replay.sample(4)
    feed(Script(ENDS), replay, 12)
    batch = replay.sample(7)
    assert (batch.weight, batch.slot) == (None, None)
    assert [(tuple(t.shape), t.dtype) for t in batch[:5]] == [
        ((7, 4, 36, 36), torch.uint8),
        ((7,), torch.int64),
        ((7,), torch.float32),
        ((7,), torch.float32),
        ((7, 4, 36, 36), torch.uint8),
    ]
    assert len(replay) == 24
    assert replay.mean_frame().shape == (36, 36)


def test_mean_frame_by_hand() -> None:
    replay = make_replay(16, 2, 1, side=36)
    replay.reset(np.stack([np.full((36, 36), 10, np.uint8), np.full((36, 36), 20, np.uint8)]))
    nothing = np.zeros(2, bool)
    rest = np.stack([np.full((36, 36), 30, np.uint8), np.full((36, 36), 60, np.uint8)])
    replay.add(np.zeros(2, np.int64), VectorStep(rest, np.zeros(2, np.float32), nothing, nothing, nothing, ()))
    replay.add(np.zeros(2, np.int64), VectorStep(rest, np.zeros(2, np.float32), nothing, nothing, nothing, ()))
    mean = replay.mean_frame()  # of the two whole rows; the newest is not counted yet
    assert mean.unique().tolist() == [30.0]


def test_too_few_frames_for_so_many_games_are_refused() -> None:
    with pytest.raises(UserError, match="too small for 8 games"):
        FrameReplay(50, 8, (84, 84), 4, 3, 0.99, CPU, 0)


@pytest.mark.cuda
def test_cuda_equals_the_cpu() -> None:
    replays = [make_replay(32, 2, 3, torch.device(name), side=36) for name in ("cpu", "cuda")]
    scripts = [Script(ENDS), Script(ENDS)]
    for script, replay in zip(scripts, replays, strict=True):
        feed(script, replay, 45)
    assert torch.equal(replays[0].stacks(), replays[1].stacks().cpu())
    time = torch.arange(45 - 27, 45 - 2).repeat_interleave(2)
    game = torch.arange(2).repeat(25)
    a = replays[0].transitions(time, game)
    b = moved(replays[1].transitions(time.cuda(), game.cuda()), CPU)
    assert all(torch.equal(x, y) for x, y in zip((*a[:2], a.next_obs), (*b[:2], b.next_obs), strict=True))
    torch.testing.assert_close(a[2], b[2])
    torch.testing.assert_close(a[3], b[3])
    torch.testing.assert_close(replays[0].mean_frame(), replays[1].mean_frame().cpu())


def test_stretches_of_rows_lie_in_one_piece_and_know_their_resets() -> None:
    replay = make_replay(60, 3, 1, side=36)
    rng = np.random.default_rng(0)
    replay.reset(np.zeros((3, 36, 36), np.uint8))
    none = np.zeros(3, bool)
    resets = rng.random((70, 3)) < 0.3
    for reset in resets:
        step = VectorStep(np.zeros((3, 36, 36), np.uint8), np.zeros(3, np.float32), none, none, reset, ())
        replay.add(np.zeros(3, np.int64), step)
    spans = list(replay.spans(55, 67))
    assert [begin for begin, _ in spans] == [55 * 3, 0]
    assert torch.cat([real for _, real in spans]).tolist() == (~resets[55:67]).flatten().tolist()
    assert list(replay.spans(9, 9)) == []
