"""Checkpoints: files that are whole or refused, parts that go on where they were, runs that resume exactly."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from fastdqn import checkpoint
from fastdqn.acting import EpsilonGreedy, GameStacks, Player, VectorEpsilonGreedy
from fastdqn.checkpoint import Checkpoints, Later, Packed, newest, read, read_header, set_generator, unpack
from fastdqn.config import Protocol
from fastdqn.envs.make import make_env
from fastdqn.envs.rerun import Rerun
from fastdqn.envs.vector import AtariVector, SerialVector, VectorEnv
from fastdqn.errors import UserError
from fastdqn.replay.nstep import NStep
from fastdqn.replay.prioritized import PrioritizedReplay
from fastdqn.replay.transitions import TransitionList
from fastdqn.seeding import game_seed
from fastdqn.types import Batch, LazyFrames, Transition
from tests.test_frame_replay import ENDS, Script, feed, make_replay
from tests.test_rainbow import learner_of, random_batch

SEED = np.random.SeedSequence(5)
ABOUT = {"script": "09_cuda_graph", "game": "pong", "config": {"script": "09_cuda_graph"}}


def saved(folder: Path, states: dict[str, Any], env_steps: int = 100) -> checkpoint.Saved:
    checkpoints = Checkpoints(folder, ABOUT)
    checkpoints.begin(env_steps, lambda: states)
    done = checkpoints.ended(wait=True)
    assert done is not None
    return done


def through_a_file(folder: Path, part: Any) -> dict[str, Any]:
    """Return the state of `part` as a file gives it back."""
    folder.mkdir(exist_ok=True, parents=True)
    saved(folder, {"part": part.state()})
    return read(newest(folder))["part"]


# The file


def test_what_is_saved_comes_back(tmp_path: Path) -> None:
    frames = np.random.default_rng(0).integers(256, size=(3, 5, 7), dtype=np.uint8)
    weights = torch.randn(4, 3).to(memory_format=torch.contiguous_format)
    states = {
        "tensor": weights,
        "later": Later(lambda: {"packed": Packed(frames)}),
        "nested": [{"empty": Packed(np.zeros((0, 4), np.uint8))}, 2, None, "text", (1, 2.5)],
        "number": np.float64(0.25),
    }
    done = saved(tmp_path, states)
    assert done.path == tmp_path / "checkpoints" / "000000000100.checkpoint"
    assert done.size == done.path.stat().st_size
    header = newest(tmp_path)
    assert (header.script, header.game, header.env_steps) == ("09_cuda_graph", "pong", 100)
    found = read(header)
    assert torch.equal(found["tensor"], weights)
    assert unpack(found["later"]["packed"]).numpy().tolist() == frames.tolist()
    assert unpack(found["nested"][0]["empty"]).shape == (0, 4)
    assert found["nested"][1:] == [2, None, "text", (1, 2.5)]
    assert found["number"] == 0.25


def test_the_previous_one_is_kept_and_older_ones_are_not(tmp_path: Path) -> None:
    for env_steps in (9, 10, 200, 1_000_000):
        saved(tmp_path, {"at": env_steps}, env_steps)
    (tmp_path / "checkpoints" / "x.unfinished").write_bytes(b"left by a kill")
    saved(tmp_path, {"at": 1_000_001}, 1_000_001)
    assert [path.name for path in sorted((tmp_path / "checkpoints").iterdir())] == [
        "000001000000.checkpoint",
        "000001000001.checkpoint",
    ]
    assert read(newest(tmp_path))["at"] == 1_000_001
    assert read(newest(tmp_path, previous=True))["at"] == 1_000_000


def test_cut_short_at_any_byte_it_is_one_sentence(tmp_path: Path) -> None:
    saved(tmp_path, {"before": torch.arange(5)}, 1)
    path = saved(tmp_path, {"values": torch.arange(300)}, 2).path
    whole = path.read_bytes()
    body = whole.index(b"\n") + 1
    for size in (*range(0, body + 40, 7), *range(body, len(whole), 211), len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(UserError, match=r"(damaged.*|cannot be read).*; --resume-previous goes on from the one"):
            read(newest(tmp_path))
    path.write_bytes(whole)
    assert read(newest(tmp_path))["values"].tolist() == list(range(300))
    assert read(newest(tmp_path, previous=True))["before"].tolist() == list(range(5))


def test_a_flipped_bit_or_a_longer_file_is_noticed(tmp_path: Path) -> None:
    path = saved(tmp_path, {"values": torch.arange(300)}).path
    whole = path.read_bytes()
    for place in range(whole.index(b"\n") + 1, len(whole), 97):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        with pytest.raises(UserError, match="its checksum is wrong"):
            read(newest(tmp_path))
    path.write_bytes(whole + b"x")
    with pytest.raises(UserError, match="is damaged: it has"):
        read(newest(tmp_path))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 a zip", b"[1, 2]\n", b'{"what": "else"}\n', os.urandom(3000)])
def test_other_files_are_one_sentence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "checkpoints" / "000000000007.checkpoint"
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(UserError, match="is not a checkpoint of fastdqn, or a damaged one"):
        newest(tmp_path)


def test_a_later_format_is_refused_by_its_number(tmp_path: Path) -> None:
    path = saved(tmp_path, {"values": 1}).path
    path.write_bytes(path.read_bytes().replace(b'"format": 2', b'"format": 9'))
    with pytest.raises(UserError, match="in format 9; this version reads format 2"):
        newest(tmp_path)


def test_what_would_run_code_is_not_loaded(tmp_path: Path) -> None:
    """A checkpoint from elsewhere cannot do more than fill tensors."""

    class Malicious:
        def __reduce__(self) -> Any:
            return (os.mkdir, (str(tmp_path / "made"),))

    saved(tmp_path, {"values": Malicious()})
    with pytest.raises(UserError, match="holds something that this version does not read"):
        read(newest(tmp_path))
    assert not (tmp_path / "made").exists()


def test_without_a_checkpoint_it_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no checkpoint to go on from"):
        newest(tmp_path)
    with pytest.raises(UserError, match="there is no such folder of a run"):
        newest(tmp_path / "nothing")
    saved(tmp_path, {})
    with pytest.raises(UserError, match="has one checkpoint only"):
        newest(tmp_path, previous=True)
    with pytest.raises(UserError, match=r"no run in .* has a checkpoint"):
        checkpoint.latest_run(tmp_path)


def test_a_failure_in_the_thread_is_raised_here_and_abandons_what_waits(tmp_path: Path) -> None:
    abandoned = []

    def fail() -> None:
        raise OSError(28, "No space left on device")

    checkpoints = Checkpoints(tmp_path, ABOUT)
    checkpoints.begin(1, lambda: {"a": Later(fail), "b": {"c": Later(dict, lambda: abandoned.append(1))}})
    with pytest.raises(OSError, match="No space left"):
        checkpoints.ended(wait=True)
    assert abandoned == [1]
    assert checkpoint.checkpoints_in(tmp_path) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_killed_at_any_moment_a_good_one_is_left(tmp_path: Path) -> None:
    """A process saves one checkpoint after the other and is killed, 55 times, whatever it is about."""
    rng = random.Random(0)
    values = np.arange(200_000)
    at = during = 0
    for _ in range(55):
        child = os.fork()
        if child == 0:
            try:
                for env_steps in range(at + 1, at + 1000):
                    saved(tmp_path, {"at": env_steps, "values": torch.from_numpy(values + env_steps)}, env_steps)
            finally:
                os._exit(1)
        before, deadline = at, time.monotonic() + 20.0
        while not (found := checkpoint.checkpoints_in(tmp_path)) or read_header(found[-1]).env_steps == before:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        time.sleep(rng.random() * 0.03)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        during += bool(list((tmp_path / "checkpoints").glob("*.unfinished")))
        state = read(newest(tmp_path))
        assert state["at"] > before
        np.testing.assert_array_equal(state["values"].numpy(), values + state["at"])
        at = state["at"]
    assert during > 5  # some of the kills did hit a save


# The parts


def same_batches(a: Any, b: Any, count: int = 5) -> None:
    for _ in range(count):
        for left, right in zip(a.sample(16), b.sample(16), strict=True):
            if isinstance(left, Batch):
                assert all(torch.equal(x, y) for x, y in zip(left, right, strict=True))
            else:
                assert torch.equal(left, right)


@pytest.mark.parametrize("steps", [6, 24, 40])
@pytest.mark.parametrize("prioritized", [False, True])
def test_frame_replay_goes_on(tmp_path: Path, steps: int, prioritized: bool) -> None:
    """Before the ring is full, and after it has gone round: the same batches, then and after more steps."""

    def make() -> Any:
        frames = make_replay(16, 2, 3, side=36)
        return PrioritizedReplay(frames) if prioritized else frames

    script, replay, again = Script(ENDS), make(), make()
    feed(script, replay, steps)
    if prioritized:
        replay.set_beta(0.7)
        for _ in range(9):
            slot = replay.sample(8).slot
            replay.write_back(slot, torch.rand(8) * 3)
    again.reset(np.zeros((2, 36, 36), np.uint8))
    again.load(through_a_file(tmp_path, replay))
    assert torch.equal(again.stacks(), replay.stacks())
    same_batches(replay, again)
    for _ in range(5):
        actions, step = script.step()
        replay.add(actions, step)
        again.add(actions, step)
        same_batches(replay, again, 1)


def test_a_checkpoint_holds_the_frames_of_its_moment_however_slow_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run goes on while frames are compressed, and overwrites none that is still to be read."""
    script, replay, again = Script(ENDS), make_replay(16, 2, 3, side=36), make_replay(16, 2, 3, side=36)
    feed(script, replay, 40)
    then = replay._frames.clone()
    real = checkpoint.pack

    def slow(array: Any) -> dict[str, Any]:
        time.sleep(0.05)
        return real(array)

    monkeypatch.setattr("fastdqn.replay.frames.pack", slow)
    monkeypatch.setattr("fastdqn.replay.frames.PIECE_BYTES", 2 * 36 * 36)
    checkpoints = Checkpoints(tmp_path, ABOUT)
    checkpoints.begin(40, lambda: {"part": replay.state()})
    busy = 0
    for _ in range(14):
        replay.add(*script.step())
        busy += threading.active_count() > 1
    assert busy > 3  # it did go on meanwhile
    assert checkpoints.ended(wait=True) is not None
    again.load(read(newest(tmp_path))["part"])
    assert torch.equal(again._frames[: again.size], then[: again.size])
    assert not torch.equal(again._frames[: again.size], replay._frames[: again.size])


def test_a_cut_game_is_a_truncation() -> None:
    script, replay = Script({}), make_replay(16, 2, 3, side=36)
    feed(script, replay, 8)
    replay.cut(np.array([True, False]))
    for _ in range(4):
        replay.add(*script.step())
    batch = replay.transitions(torch.tensor([6, 6]), torch.tensor([0, 1]))
    assert batch.discount.tolist() == pytest.approx([0.9**2, 0.9**3])


def test_list_replay_goes_on_and_shares_its_frames(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frames = [rng.integers(256, size=(1, 8, 8), dtype=np.uint8) for _ in range(60)]
    stacks = [LazyFrames(tuple(frames[i : i + 4])) for i in range(55)]
    replay, again = (TransitionList(40, np.random.default_rng(3)) for _ in range(2))
    for i in range(50):
        replay.append(Transition(stacks[i], i % 4, float(i), 0.99 if i % 7 else 0.0, stacks[i + 3]))
    replay.sample(5)
    again.load(through_a_file(tmp_path, replay))
    for left, right in zip(replay.sample(300), again.sample(300), strict=True):
        assert left[1:4] == right[1:4]
        np.testing.assert_array_equal(np.asarray(left.obs), np.asarray(right.obs))
        np.testing.assert_array_equal(np.asarray(left.next_obs), np.asarray(right.next_obs))
    assert len({id(f) for item in again._items for obs in (item.obs, item.next_obs) for f in obs.frames}) == 46  # type: ignore[attr-defined]
    replay.append(Transition(stacks[0], 9, 9.0, 0.5, stacks[1]))
    again.append(Transition(stacks[0], 9, 9.0, 0.5, stacks[1]))
    assert [item.action for item in replay.sample(200)] == [item.action for item in again.sample(200)]


@pytest.mark.parametrize("variant", ["dqn", "rainbow"])
def test_a_learner_goes_on(tmp_path: Path, variant: str) -> None:
    learner, again = learner_of(variant), learner_of(variant)
    for _ in range(3):
        learner.update(random_batch(8))
    learner.sync_target()
    learner.set_learning_rate(3e-4)
    learner.update(random_batch(8))
    again.load(through_a_file(tmp_path, learner))
    for _ in range(3):
        batch = random_batch(8)
        left, right = learner.update(batch), again.update(batch)
        assert all(torch.equal(x, y) for x, y in zip(left, right, strict=True))
        assert torch.equal(learner.greedy(batch.obs), again.greedy(batch.obs))
    weights = again.network.state_dict()
    assert all(torch.equal(tensor, weights[name]) for name, tensor in learner.network.state_dict().items())


def test_a_saved_learner_is_a_copy() -> None:
    learner = learner_of("dqn")
    learner.update(random_batch(8))
    state = learner.state()
    name = next(iter(state["network"]))
    first = state["network"][name].clone()
    moment = state["optimizer"]["state"][0]["exp_avg"].clone()
    learner.update(random_batch(8))
    assert torch.equal(state["network"][name], first)
    assert torch.equal(state["optimizer"]["state"][0]["exp_avg"], moment)
    assert not torch.equal(learner.network.state_dict()[name], first)


def test_a_policy_goes_on(tmp_path: Path) -> None:
    policies = [VectorEpsilonGreedy(lambda: np.zeros(3, np.int64), 3, 6, np.random.default_rng(s)) for s in (1, 2)]
    epsilon = np.full(3, 0.5)
    for _ in range(10):
        policies[0].act(epsilon)
    policies[1].load(through_a_file(tmp_path, policies[0]))
    for _ in range(20):
        np.testing.assert_array_equal(policies[0].act(epsilon), policies[1].act(epsilon))


# The games


def play(env: VectorEnv, rng: np.random.Generator, steps: int) -> list[Any]:
    """Play at random; return all that was seen."""
    seen: list[Any] = []
    for _ in range(steps):
        env.send(rng.integers(env.num_actions, size=env.num_envs))
        step = env.recv()
        seen.append([array.tolist() for array in step[1:5]] + [step.frames.tobytes(), step.episodes])
    return seen


def breakout(**protocol: Any) -> AtariVector:
    return AtariVector("breakout", Protocol(**protocol), 3, SEED, threads=2)


@pytest.mark.parametrize("steps", [1, 1500])
def test_emulators_go_on_exactly(tmp_path: Path, steps: int) -> None:
    """Some resets later, in the middle of games that began at different times: the same from here on, resets too."""
    there, here = breakout(), breakout()
    there.reset()
    play(there, np.random.default_rng(0), steps)
    state = through_a_file(tmp_path, there)
    assert int(state["resets"].sum()) > 2 or steps < 700
    here.reset()
    play(here, np.random.default_rng(9), 50)
    assert not here.load(state).any()
    np.testing.assert_array_equal(here.newest, there.newest)
    assert play(here, np.random.default_rng(1), 400) == play(there, np.random.default_rng(1), 400)
    again = through_a_file(tmp_path / "b", here)  # and once more, from a run that had been resumed
    once_more = breakout()
    once_more.reset()
    assert not once_more.load(again).any()
    assert play(once_more, np.random.default_rng(2), 200) == play(there, np.random.default_rng(2), 200)


@pytest.mark.parametrize("steps", [1700])
def test_games_that_end_while_they_wait_for_their_turn_go_on_exactly(tmp_path: Path, steps: int) -> None:
    """In Space Invaders no-ops end a game soon, so that one that waits for its turn has been reset meanwhile."""
    there, here = (AtariVector("space_invaders", Protocol(), 4, SEED, threads=2) for _ in range(2))
    there.reset()
    play(there, np.random.default_rng(3), steps)
    state = through_a_file(tmp_path, there)
    assert max(state["lengths"]) - min(state["lengths"]) > 100
    here.reset()
    assert not here.load(state).any()
    assert play(here, np.random.default_rng(1), 200) == play(there, np.random.default_rng(1), 200)


def test_what_cannot_be_repeated_begins_anew(tmp_path: Path) -> None:
    """Sticky actions; and a game whose frame is not what it was."""
    there, here = breakout(sticky_actions=0.25), breakout(sticky_actions=0.25)
    there.reset()
    play(there, np.random.default_rng(0), 100)
    here.reset()
    first = here.newest.copy()
    assert here.load(through_a_file(tmp_path, there)).tolist() == [True] * 3
    seen = play(here, np.random.default_rng(1), 2)
    assert [step[3] for step in seen] == [[True] * 3, [False] * 3]
    assert seen[0][0] == [0.0] * 3

    there, here = breakout(), breakout()
    there.reset()
    play(there, np.random.default_rng(0), 300)
    state = through_a_file(tmp_path, there)
    state["frames"][1] += 1
    here.reset()
    assert here.load(state).tolist() == [False, True, False]
    seen = play(here, np.random.default_rng(1), 100)
    assert [step[3] for step in seen[:2]] == [[False, True, False], [False] * 3]
    assert not np.array_equal(here.newest, first)
    again = breakout()
    again.reset()
    assert not again.load(through_a_file(tmp_path / "b", here)).any()
    assert play(again, np.random.default_rng(2), 50) == play(here, np.random.default_rng(2), 50)


def test_old_actions_are_forgotten() -> None:
    there = breakout()
    there.reset()
    play(there, np.random.default_rng(0), 3000)
    assert len(there._sent) < 2500


def test_serial_games_go_on_exactly(tmp_path: Path) -> None:
    def make() -> SerialVector:
        envs = [make_env(game, Protocol(sticky_actions=0.25), "opencv") for game in ("breakout", "breakout")]
        return SerialVector(envs, SEED)

    there, here = make(), make()
    there.reset()
    play(there, np.random.default_rng(0), 300)
    here.reset()
    here.load(through_a_file(tmp_path, there))
    assert play(here, np.random.default_rng(1), 300) == play(there, np.random.default_rng(1), 300)


def test_every_game_has_a_seed_of_its_own_and_lost_lives_have_none() -> None:
    seeds: list[int | None] = []
    env = make_env("breakout", Protocol(), "classic")
    real = env.unwrapped.reset

    def reset(*, seed: int | None = None, options: Any = None) -> Any:
        seeds.append(seed)
        return real(seed=seed, options=options)

    env.unwrapped.reset = reset  # type: ignore[method-assign]
    player = Rerun(env, 7)
    rng = np.random.default_rng(0)
    player.reset()
    ends = games = 0
    for _ in range(900):
        played = player.step(int(rng.integers(4)))
        games += len(player.pop_finished())
        if played.terminated:
            ends += 1
            player.reset()
    assert games >= 2
    assert ends > games
    assert seeds == [game_seed(7, i) for i in range(games + 1)]
    assert seeds[0] == 7
    assert len(set(seeds)) == len(seeds)


def test_game_stacks_go_on(tmp_path: Path) -> None:
    games = breakout()
    stacks = GameStacks(games.reset(), 4, 3, 0.9)
    rng = np.random.default_rng(0)

    def step() -> tuple[Any, Any]:
        actions = rng.integers(4, size=3)
        games.send(actions)
        return actions, games.recv()

    for _ in range(150):
        stacks.add(*step())
    again = GameStacks(games.newest, 4, 3, 0.9)
    again.load(through_a_file(tmp_path, stacks))
    for _ in range(40):
        np.testing.assert_array_equal(stacks.obs(), again.obs())
        now = step()
        for left, right in zip(stacks.add(*now), again.add(*now), strict=True):
            assert left[1:4] == right[1:4]
            np.testing.assert_array_equal(np.asarray(left.obs), np.asarray(right.obs))
            np.testing.assert_array_equal(np.asarray(left.next_obs), np.asarray(right.next_obs))


class Unruly(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A game with chance of its own, which no seed governs: from its second life on each plays otherwise."""

    lives = 0

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        Unruly.lives += 1
        self.chance = np.random.default_rng(Unruly.lives)

    def step(self, action: Any) -> Any:
        return self.env.step(int(self.chance.integers(4)))


def test_games_with_chance_of_their_own_begin_anew(tmp_path: Path) -> None:
    def make() -> SerialVector:
        games = [make_env("breakout", Protocol(), "opencv") for _ in range(2)]
        return SerialVector([Unruly(games[0]), games[1]], SEED)

    there, here = make(), make()
    there.reset()
    play(there, np.random.default_rng(0), 120)
    here.reset()
    assert here.load(through_a_file(tmp_path, there)).tolist() == [True, False]
    seen = play(here, np.random.default_rng(1), 3)
    assert [step[3] for step in seen] == [[True, False], [False, False], [False, False]]


def test_a_player_whose_game_cannot_be_repeated_begins_a_new_one(tmp_path: Path) -> None:
    def make() -> Player:
        env = Unruly(make_env("breakout", Protocol(), "opencv"))
        policy = EpsilonGreedy(lambda obs: torch.zeros(1, 4), 4, torch.device("cpu"), np.random.default_rng(0))
        return Player(env, policy, NStep(3, 0.9), 5)

    there, here = make(), make()
    for _ in range(60):
        there.step(0.5)
    here.load(through_a_file(tmp_path, there))
    played = [here.step(0.5) for _ in range(4)]
    assert [len(step.transitions) for step in played] == [0, 0, 1, 1]  # no window goes over from the old game
    assert not any(step.episodes for step in played)


def test_a_generator_of_another_device_begins_anew() -> None:
    a, b, c = (torch.Generator().manual_seed(seed) for seed in (1, 2, 3))
    set_generator(b, a.get_state())
    assert torch.equal(torch.rand(3, generator=a), torch.rand(3, generator=b))
    for generator in (b, c):
        set_generator(generator, torch.arange(16, dtype=torch.uint8))  # as long as a CUDA generator's
    assert torch.equal(torch.rand(3, generator=b), torch.rand(3, generator=c))
