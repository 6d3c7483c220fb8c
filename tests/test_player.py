"""The player process: every env step once and in order, exact ratios, shared weights, and all the ways to die."""

from __future__ import annotations

import dataclasses
import itertools
import os
import pickle
import time
from typing import Any

import numpy as np
import psutil
import pytest
import torch

from fastdqn.acting import epsilon_at, make_player
from fastdqn.config import DQNOptions, ParallelOptions, Protocol, RunOptions
from fastdqn.envs.make import make_env
from fastdqn.errors import RunError
from fastdqn.parallel.player import Message, PlayerProcess, PlayerWeights
from fastdqn.parallel.wire import FrameDecoder, FrameEncoder, window_for
from fastdqn.replay.nstep import NStep
from fastdqn.stopping import Limits, StopTest
from fastdqn.types import EpisodeEnd, LazyFrames, PlayedStep, Transition
from fastdqn.variants import make_learner, make_network

CPU = torch.device("cpu")
FOREVER = Limits(None, None, None)


def options(game: str = "tests.toys:Counter", steps: int = 4, **changes: Any) -> ParallelOptions:
    dqn = DQNOptions(**({"epsilon_start": 1.0, "epsilon_final": 1.0} | changes))
    protocol = Protocol(noop_max=3, clip_rewards=False, fire_reset=False)
    return ParallelOptions(run=RunOptions(game=game), protocol=protocol, dqn=dqn, steps=steps)


def weights(num_actions: int = 4) -> PlayerWeights:
    return PlayerWeights(make_network(options(), (4, 84, 84), num_actions), "same")


def in_process(opts: ParallelOptions, count: int, wrappers: Any = "classic") -> list[PlayedStep]:
    """What a player in this very process plays: the reference."""
    env = make_env(opts.run.game, opts.protocol, wrappers)
    network = make_network(opts, (4, 84, 84), int(env.action_space.n))  # type: ignore[attr-defined]
    player = make_player(env, network, CPU, opts)
    return [player.step(1.0) for _ in range(count)]


def assert_same(ours: PlayedStep, reference: PlayedStep) -> None:
    assert ours.episodes == reference.episodes
    assert len(ours.transitions) == len(reference.transitions)
    for a, b in zip(ours.transitions, reference.transitions, strict=True):
        assert a[1:4] == b[1:4]
        assert (np.asarray(a.obs) == np.asarray(b.obs)).all()
        assert (np.asarray(a.next_obs) == np.asarray(b.next_obs)).all()


def distinct_frames(transitions: list[Transition]) -> int:
    return len({id(f) for t in transitions for stack in (t.obs, t.next_obs) for f in stack.frames})  # type: ignore[union-attr]


# The wire


@pytest.mark.parametrize(("game", "n_step"), [("pong", 1), ("breakout", 1), ("breakout", 3), ("tests.toys:Counter", 5)])
def test_wire_rebuilds_every_step_and_its_sharing(game: str, n_step: int) -> None:
    opts = options(game, n_step=n_step)
    window = window_for(4, n_step)
    encoder, decoder = FrameEncoder(window), FrameDecoder(window)
    frames, seen = 0, []
    steps = in_process(opts, 400, "opencv")
    for played in steps:
        wire = pickle.loads(pickle.dumps(encoder.encode(played)))
        frames += len(wire.frames)
        decoded = decoder.decode(wire)
        assert_same(decoded, played)
        seen += decoded.transitions
    played_frames = distinct_frames([t for played in steps for t in played.transitions])
    assert frames == played_frames == distinct_frames(seen)  # each frame crossed once and is in memory once
    assert sum(a.next_obs is b.obs for a, b in itertools.pairwise(seen)) > 300 or n_step > 1


def test_wire_sends_a_forgotten_frame_again() -> None:
    rng = np.random.default_rng(0)
    frames = [rng.integers(0, 256, (1, 84, 84), dtype=np.uint8) for _ in range(40)]
    stack = [LazyFrames(tuple(frames[i : i + 4])) for i in range(36)]
    steps = [
        PlayedStep((Transition(stack[i], 0, 0.0, 1.0, stack[j]),), ()) for i, j in [(0, 1), (20, 21), (0, 35), (21, 0)]
    ]
    encoder, decoder = FrameEncoder(5), FrameDecoder(5)
    for step in steps:
        assert_same(decoder.decode(encoder.encode(step)), step)


def test_wire_carries_finished_games() -> None:
    step = PlayedStep((), (EpisodeEnd(-21.0, 4000, False),))
    assert FrameDecoder(9).decode(FrameEncoder(9).encode(step)) == step


# The process


@pytest.mark.parametrize(
    ("game", "wrappers"), [("tests.toys:Counter", "classic"), ("tests.toys:Counter", "opencv"), ("breakout", "opencv")]
)
def test_each_env_step_arrives_once_and_in_order(game: str, wrappers: Any) -> None:
    opts = options(game)
    reference = in_process(opts, 400, wrappers)
    with PlayerProcess(opts, wrappers, weights(), StopTest(dataclasses.replace(FOREVER, max_env_steps=400))) as player:
        got: list[Message] = []
        while player.reason is None:
            got += player.take(opts.steps)
    assert player.reason == "max-env-steps"
    assert len(got) == 400
    for message, expected in zip(got, reference, strict=True):
        assert_same(message.played, expected)
    assert [m.reason for m in got] == [None] * 399 + ["max-env-steps"]


def test_the_player_keeps_epsilon_by_env_steps() -> None:
    opts = options(epsilon_final=0.25, epsilon_decay=40)
    with PlayerProcess(opts, "classic", weights(), StopTest(FOREVER)) as player:
        got = [message.epsilon for message in player.take(60)]
    assert got == [epsilon_at(env_step, opts.dqn) for env_step in range(1, 61)]
    assert got[:2] == [1 - 1 / 40, 1 - 2 / 40]
    assert got[-1] == 0.25


@pytest.mark.parametrize("slow", ["player", "trainer"])
def test_queue_never_holds_more_than_2n_and_take_gives_exactly_n(slow: str) -> None:
    opts = options("tests.toys:SlowCounter" if slow == "player" else "tests.toys:Counter", steps=3)
    lengths = []
    with PlayerProcess(opts, "classic", weights(), StopTest(FOREVER)) as player:
        for _ in range(25):
            assert len(player.take(3)) == 3
            if slow == "trainer":
                time.sleep(0.05)
            lengths.append(player.queued())
    assert max(lengths) <= 6
    assert (max(lengths) == 6) == (slow == "trainer")


def test_n_step_crosses_processes() -> None:
    opts = options(n_step=3)
    reference = in_process(opts, 60)
    assert {len(p.transitions) for p in reference} == {0, 2, 3}
    with PlayerProcess(opts, "classic", weights(), StopTest(FOREVER)) as player:
        for message, expected in zip(player.take(60), reference, strict=True):
            assert_same(message.played, expected)


def test_a_weight_change_in_the_trainer_is_seen_by_the_player() -> None:
    """The head's bias decides the greedy action; change it here, watch the actions change there."""
    opts = options("pong", steps=1, epsilon_start=0.0, epsilon_final=0.0)
    learner = make_learner(opts, (4, 84, 84), 6, CPU)
    shared = PlayerWeights(learner.network, "same")
    bias = learner.network.head[2].bias  # type: ignore[index, union-attr]
    with PlayerProcess(opts, "opencv", shared, StopTest(FOREVER)) as player, torch.no_grad():
        for best in (3, 5, 0):
            bias.zero_()
            bias[best] = 100.0
            player.take(2 * opts.steps + 2)  # those that were played before the change
            actions = {m.played.transitions[0].action for m in player.take(20)}
            assert actions == {best}


def test_an_optimiser_step_goes_to_the_shared_weights_themselves() -> None:
    learner = make_learner(options(), (4, 84, 84), 6, CPU)
    shared = PlayerWeights(learner.network, "cpu")
    before = shared.network.state_dict()["head.2.bias"].clone()
    assert all(p.is_shared() for p in learner.network.parameters())
    learner.network.head[2].bias.grad = torch.ones(6)  # type: ignore[index, union-attr]
    learner.optimizer.step()
    assert not torch.equal(before, shared.network.state_dict()["head.2.bias"])


@pytest.mark.cuda
@pytest.mark.parametrize("player_device", ["same", "cpu"])
def test_weights_reach_the_player_from_cuda(player_device: Any) -> None:
    opts = options("pong", steps=1, epsilon_start=0.0, epsilon_final=0.0)
    learner = make_learner(opts, (4, 84, 84), 6, torch.device("cuda"))
    shared = PlayerWeights(learner.network, player_device)
    assert shared.device.type == ("cuda" if player_device == "same" else "cpu")
    bias = learner.network.head[2].bias  # type: ignore[index, union-attr]
    with PlayerProcess(opts, "opencv", shared, StopTest(FOREVER)) as player, torch.no_grad():
        for best in (3, 5):
            bias.zero_()
            bias[best] = 100.0
            shared.publish()
            torch.cuda.synchronize()
            player.take(4)
            assert {m.played.transitions[0].action for m in player.take(20)} == {best}


def test_player_has_one_torch_thread_and_the_environment_is_restored() -> None:
    before = os.environ.get("OMP_NUM_THREADS")
    with PlayerProcess(options(), "classic", weights(), StopTest(FOREVER)) as player:
        player.take(8)
        assert player.pid is not None
        environ = psutil.Process(player.pid).environ()
        assert (environ["OMP_NUM_THREADS"], environ["MKL_NUM_THREADS"]) == ("1", "1")
        numeric = psutil.Process(player.pid).num_threads()
    assert os.environ.get("OMP_NUM_THREADS") == before
    assert numeric <= 6  # main, queue feeder, watcher and the runtime's own; no pool of a thread a core


# Faults


def test_an_exception_in_the_player_is_raised_here_with_its_traceback() -> None:
    with (
        pytest.raises(RunError) as caught,
        PlayerProcess(options("tests.toys:Faulty"), "classic", weights(), StopTest(FOREVER)) as player,
    ):
        for _ in range(1000):
            player.take(4)
    assert "the toy emulator broke as it was told to" in str(caught.value)
    assert "Traceback" in str(caught.value)
    assert "toys.py" in str(caught.value)


def test_steps_played_before_the_failure_are_not_lost() -> None:
    opts = options("tests.toys:Faulty", steps=1)
    env = make_env(opts.run.game, opts.protocol, "classic")
    here = make_player(env, lambda obs: torch.zeros(1, 4), CPU, opts)
    played = 0
    with pytest.raises(RuntimeError, match="as it was told to"):
        while True:
            here.step(1.0)
            played += 1
    got = 0
    with PlayerProcess(opts, "classic", weights(), StopTest(FOREVER)) as player, pytest.raises(RunError):
        while True:
            got += len(player.take(1))
    assert got == played > 50


def test_a_killed_player_is_noticed() -> None:
    with PlayerProcess(options(), "classic", weights(), StopTest(FOREVER)) as player:
        player.take(8)
        assert player.pid is not None
        psutil.Process(player.pid).kill()
        begin = time.monotonic()
        with pytest.raises(RunError, match="SIGKILL"):
            for _ in range(100):
                player.take(4)
        assert time.monotonic() - begin < 5


def test_a_hung_player_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOY_FAULT", "hang")
    opts = dataclasses.replace(options("tests.toys:Faulty"), player_timeout=2.0)
    begin = 0.0
    with PlayerProcess(opts, "classic", weights(), StopTest(FOREVER)) as player:
        opts_timeout, player._timeout = player._timeout, 60.0
        player.take(40)
        player._timeout = opts_timeout
        begin = time.monotonic()
        with pytest.raises(RunError, match="hung"):
            for _ in range(1000):
                player.take(4)
    assert time.monotonic() - begin < 12
    assert player.pid is not None
    assert not psutil.pid_exists(player.pid) or psutil.Process(player.pid).status() == psutil.STATUS_ZOMBIE


def test_leaving_early_leaves_no_process() -> None:
    for taken in (0, 1, 9):
        with PlayerProcess(options(), "classic", weights(), StopTest(FOREVER)) as player:
            player.take(taken)
            begin = time.monotonic()
        assert time.monotonic() - begin < 8
        assert player.pid is not None
        assert not psutil.pid_exists(player.pid)


def test_an_error_in_the_trainer_ends_the_player() -> None:
    with (
        pytest.raises(ZeroDivisionError),
        PlayerProcess(options(), "classic", weights(), StopTest(FOREVER)) as player,
    ):
        player.take(5)
        raise ZeroDivisionError
    assert player.pid is not None
    assert not psutil.pid_exists(player.pid)


def test_nstep_default_is_one() -> None:
    assert NStep(DQNOptions().n_step, 0.9).add("a", 0, 1.0, "b", False, False)[0].discount == 0.9  # type: ignore[arg-type]
