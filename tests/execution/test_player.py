"""The player process: every env step once and in order, exact ratios, shared weights, and all the ways to die."""

from __future__ import annotations

import dataclasses
import os
import time
from typing import Any

import psutil
import pytest
import torch

from fastdqn.algorithms.exploration import epsilon_at
from fastdqn.build import build_player
from fastdqn.envs.build import build_env
from fastdqn.errors import RunError
from fastdqn.execution import player as execution_player
from fastdqn.execution.player import Message, PlayerProcess, PlayerWeights, player_devices
from fastdqn.options.dqn import DQNOptions
from fastdqn.options.game import PlayerOptions
from fastdqn.replay.nstep import NStep
from fastdqn.runs.limits import StopTest
from tests.helpers.learners import learner_from
from tests.helpers.players import (
    FOREVER,
    TOY_COUNTER,
    TOY_FAULTY,
    assert_same,
    elsewhere,
    played_here,
    player_options,
    player_process,
)


@pytest.mark.parametrize(
    ("game", "wrappers"),
    [
        (TOY_COUNTER, "classic"),
        pytest.param(TOY_COUNTER, "opencv", marks=pytest.mark.slow),
        ("breakout", "opencv"),
    ],
)
def test_each_env_step_arrives_once_and_in_order(game: str, wrappers: Any) -> None:
    options = player_options(game)
    reference = played_here(options, 400, wrappers)
    with player_process(options, wrappers, dataclasses.replace(FOREVER, max_env_steps=400)) as player:
        got: list[Message] = []
        while player.reason is None:
            got += player.take(4)
    assert player.reason == "max-env-steps"
    assert len(got) == 400
    for message, expected in zip(got, reference, strict=True):
        assert_same(message.played, expected)


def test_the_player_keeps_epsilon_by_env_steps() -> None:
    options = player_options(epsilon_final=0.25, epsilon_decay=40)
    assert options.dqn is not None
    with player_process(options) as player:
        got = [message.epsilon for message in player.take(60)]
    assert got == [epsilon_at(env_step, options.dqn) for env_step in range(1, 61)]
    assert got[:2] == [1 - 1 / 40, 1 - 2 / 40]
    assert got[-1] == 0.25


@pytest.mark.parametrize("slow", [pytest.param("player", marks=pytest.mark.slow), "trainer"])
def test_queue_never_holds_more_than_2n_and_take_gives_exactly_n(slow: str) -> None:
    game = "tests.helpers.toys:SlowCounter" if slow == "player" else TOY_COUNTER
    lengths = []
    with player_process(player_options(game, steps=3)) as player:
        for _ in range(25):
            assert len(player.take(3)) == 3
            if slow == "trainer":
                time.sleep(0.05)
            lengths.append(player.queued())
    assert max(lengths) <= 6
    assert (max(lengths) == 6) == (slow == "trainer")


def test_n_step_crosses_processes() -> None:
    options = player_options(n_step=3)
    reference = played_here(options, 60)
    assert {len(p.transitions) for p in reference} == {0, 2, 3}
    with player_process(options) as player:
        for message, expected in zip(player.take(60), reference, strict=True):
            assert_same(message.played, expected)


def test_nstep_default_is_one() -> None:
    assert NStep(DQNOptions().n_step, 0.9).add("a", 0, 1.0, "b", False, False)[0].discount == 0.9  # type: ignore[arg-type]


def test_a_weight_change_in_the_trainer_is_noticed_by_the_player() -> None:
    """The head's bias decides the greedy action; change it here, watch the actions change there."""
    made = elsewhere(player_options("pong", steps=1, epsilon_start=0.0, epsilon_final=0.0), "opencv")
    bias = made.learner.network.head[2].bias  # type: ignore[index, union-attr]
    with PlayerProcess(made.plan, made.weights, StopTest(FOREVER)) as player, torch.no_grad():
        for best in (3, 5, 0):
            bias.zero_()
            bias[best] = 100.0
            player.take(4)  # those that were played before the change, 2N + 2
            actions = {m.played.transitions[0].action for m in player.take(20)}
            assert actions == {best}


def test_an_optimiser_step_goes_to_the_shared_weights_themselves() -> None:
    learner = learner_from(player_options())
    shared = PlayerWeights(learner.network, "cpu")
    before = shared.network.state_dict()["head.2.bias"].clone()
    assert all(p.is_shared() for p in learner.network.parameters())
    learner.network.head[2].bias.grad = torch.ones(6)  # type: ignore[index, union-attr]
    learner.group.optimizer.step()
    assert not torch.equal(before, shared.network.state_dict()["head.2.bias"])


def test_players_are_spread_over_the_devices() -> None:
    cpu, (first, second, third) = torch.device("cpu"), (torch.device("cuda", i) for i in range(3))
    assert player_devices(cpu, "all", 2, gpus=2) == player_devices(first, "cpu", 2) == [cpu, cpu]
    assert player_devices(torch.device("mps"), "same", 1) == [cpu]
    assert player_devices(second, "same", 2, gpus=3) == [second, second]
    assert player_devices(second, "all", 4, gpus=3) == [second, third, first, second]
    assert player_devices(first, "all", 2, gpus=1) == [first, first]


def test_players_of_a_device_share_one_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two devices by proxy: cpu:0 is the CPU, but equals no plain cpu."""
    learner, other = learner_from(player_options()), torch.device("cpu", 0)
    monkeypatch.setattr(execution_player, "player_devices", lambda here, *_: [here, other, here, other])
    weights = PlayerWeights(learner.network, "all", 4)
    own, copied = weights.networks[0], weights.networks[1]
    assert own is learner.network
    assert [one is copied for one in weights.networks] == [False, True, False, True]
    with torch.no_grad():
        learner.network.head[2].bias.fill_(7.0)  # type: ignore[index, union-attr]
    assert not bool((copied.head[2].bias == 7.0).any())  # type: ignore[index, union-attr]
    weights.publish()
    assert bool((copied.head[2].bias == 7.0).all())  # type: ignore[index, union-attr]
    assert all(parameter.is_shared() for one in weights.networks for parameter in one.parameters())


@pytest.mark.cuda
@pytest.mark.parametrize("player_device", ["same", "cpu"])
def test_weights_reach_the_player_from_cuda(player_device: Any) -> None:
    where = PlayerOptions(player_device=player_device)
    options = player_options("pong", steps=1, device="cuda", player=where, epsilon_start=0.0, epsilon_final=0.0)
    made = elsewhere(options, "opencv")
    assert next(made.weights.network.parameters()).device.type == ("cuda" if player_device == "same" else "cpu")
    bias = made.learner.network.head[2].bias  # type: ignore[index, union-attr]
    with PlayerProcess(made.plan, made.weights, StopTest(FOREVER)) as player, torch.no_grad():
        for best in (3, 5):
            bias.zero_()
            bias[best] = 100.0
            made.weights.publish()
            torch.cuda.synchronize()
            player.take(4)
            assert {m.played.transitions[0].action for m in player.take(20)} == {best}


def test_player_has_one_torch_thread_and_the_environment_is_restored() -> None:
    before = os.environ.get("OMP_NUM_THREADS")
    with player_process(player_options()) as player:
        player.take(8)
        assert player._child.pid is not None
        environ = psutil.Process(player._child.pid).environ()
        assert (environ["OMP_NUM_THREADS"], environ["MKL_NUM_THREADS"]) == ("1", "1")
        numeric = psutil.Process(player._child.pid).num_threads()
    assert os.environ.get("OMP_NUM_THREADS") == before
    assert numeric <= 6  # main, queue feeder, watcher and the runtime's own; no pool of a thread a core


# Faults


def test_an_environment_that_fails_in_the_player_is_one_sentence_here() -> None:
    with pytest.raises(RunError) as caught, player_process(player_options(TOY_FAULTY)) as player:
        for _ in range(1000):
            player.take(4)
    said = f"The environment {TOY_FAULTY} failed in step: RuntimeError: the toy emulator broke as it was told to "
    assert str(caught.value).startswith(f"{said}(toys.py, line ")
    assert "\n" not in str(caught.value)


def test_steps_played_before_the_failure_are_not_lost() -> None:
    options = player_options(TOY_FAULTY, steps=1)
    assert options.dqn is not None
    here = build_player(build_env(options.game), 0, options.dqn, torch.nn.Linear(1, 4))  # it is never asked
    played = 0
    with pytest.raises(RunError, match="as it was told to"):
        while True:
            here.step(1.0)
            played += 1
    got = 0
    with player_process(options) as player, pytest.raises(RunError):
        while True:
            got += len(player.take(1))
    assert got == played > 50


def test_a_killed_player_is_noticed() -> None:
    with player_process(player_options()) as player:
        player.take(8)
        assert player._child.pid is not None
        psutil.Process(player._child.pid).kill()
        begin = time.monotonic()
        with pytest.raises(RunError, match="SIGKILL"):
            for _ in range(100):
                player.take(4)
        assert time.monotonic() - begin < 5


def test_a_hung_player_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOY_FAULT", "hang")
    begin = 0.0
    with player_process(player_options(TOY_FAULTY, player=PlayerOptions(player_timeout=2.0))) as player:
        timeout, player._child._timeout = player._child._timeout, 60.0
        player.take(40)
        player._child._timeout = timeout
        begin = time.monotonic()
        with pytest.raises(RunError, match=r"for 2 seconds \(--player-timeout\) and counts as hung\.$"):
            for _ in range(1000):
                player.take(4)
    assert time.monotonic() - begin < 12
    pid = player._child.pid
    assert pid is not None
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_leaving_early_leaves_no_process() -> None:
    for taken in (0, 1, 9):
        with player_process(player_options()) as player:
            player.take(taken)
            begin = time.monotonic()
        assert time.monotonic() - begin < 8
        assert player._child.pid is not None
        assert not psutil.pid_exists(player._child.pid)


def test_an_error_in_the_trainer_ends_the_player() -> None:
    with pytest.raises(ZeroDivisionError), player_process(player_options()) as player:
        player.take(5)
        raise ZeroDivisionError
    assert player._child.pid is not None
    assert not psutil.pid_exists(player._child.pid)
