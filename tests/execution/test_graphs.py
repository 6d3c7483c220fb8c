"""Updates and actions as graphs: a graph does what it was made of, on a GPU and, as far as that goes, without one.

Each test runs twice: with CUDA, and with `tests.helpers.graphs` in its place, which freezes what a graph freezes.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fastdqn.algorithms.form import Form
from fastdqn.execution.graphs import Graphed, GraphedActions
from fastdqn.networks.noisy import noisy_layers
from fastdqn.options.parts import VARIANTS
from fastdqn.replay.prioritized import PrioritizedReplay
from fastdqn.replay.returns import ReturnReplay
from fastdqn.replay.stored_returns import StoredReturns
from fastdqn.types import Batch
from tests.helpers.graphs import graphs_without_cuda
from tests.helpers.learners import CAPTURABLE, CPU, FAST, learner_of, moved, random_batch, update_of
from tests.helpers.replays import filled_replay, play_noise, weighted_replay
from tests.helpers.scripts import RAINBOW_CATCH, SHORT, fingerprint, loaded, records, train


@pytest.fixture(params=[pytest.param("cuda", marks=pytest.mark.cuda), "host"])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """Where graphs are made; "host" is the CPU with what stands for CUDA."""
    if request.param == "cuda":
        monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
        return torch.device("cuda")
    graphs_without_cuda(monkeypatch)
    return CPU


def losses_of(variant: Any, form: Form, device: torch.device, graphed: bool, batch_size: int = 32) -> list[float]:
    """Ten updates, between which everything changes that a graph has to read from the device: learning rate, target
    network, exponent of the weights, what the replay holds and where its oldest step is.
    """
    learner = learner_of(variant, form, device)
    replay = weighted_replay(variant in ("prioritized", "rainbow"), device)
    update = update_of(learner, replay, batch_size)
    update = Graphed(update, replay.generator, learner.noise) if graphed else update
    rng = np.random.default_rng(3)
    losses: list[float] = []
    for i in range(10):
        losses.append(update().scalars["loss"].item())
        if i >= Graphed.WARM_UP:
            play_noise(replay, 20, rng)  # 120 in all, round the ring of 200
        if i == 5:
            learner.set_learning_rate(1e-3)
        if i == 6:
            learner.sync_target()
        if i == 7 and isinstance(replay, PrioritizedReplay):
            replay.set_beta(0.9)
    return losses


@pytest.mark.parametrize("bf16", [False, True])
def test_a_graph_learns_on_from_the_weights_of_a_reset(device: torch.device, bf16: bool) -> None:
    """Which are new ones in float32: what computes in bf16 must have them, too."""

    def losses(graphed: bool) -> list[float]:
        learner = learner_of("dqn", dataclasses.replace(CAPTURABLE, bf16=bf16), device)
        replay = weighted_replay(False, device)
        update = update_of(learner, replay, 4)
        update = Graphed(update, replay.generator, learner.noise) if graphed else update
        found: list[float] = []
        for i in range(8):
            if i == 5:
                learner.reset(0.5, torch.Generator().manual_seed(7))
            found.append(update().scalars["loss"].item())
        return found

    eager, graph = losses(False), losses(True)
    assert eager == (graph if device == CPU else pytest.approx(graph, rel=5e-2 if bf16 else 5e-3))


def test_a_series_of_losses_notices_each_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the next test compares would differ if a graph missed one of them."""

    def series() -> list[float]:
        return losses_of("prioritized", FAST, CPU, graphed=False, batch_size=4)

    first = series()
    assert first == series()
    for place, since in (
        ("fastdqn.algorithms.dqn.DQNLearner.set_learning_rate", 7),
        ("fastdqn.algorithms.dqn.DQNLearner.sync_target", 7),
        ("fastdqn.replay.prioritized.PrioritizedReplay.set_beta", 8),
        (f"{__name__}.play_noise", 4),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(place, lambda *_: None)
            other = series()
        assert other[:since] == first[:since]
        assert other[since:] != first[since:], place


SIMPLEST_AND_ALL = ("dqn", "rainbow")
"""Variants whose graphs in bf16 are among the tests of every change."""


@pytest.mark.parametrize(
    ("variant", "bf16"),
    [
        *((variant, False) for variant in VARIANTS),
        *((variant, True) for variant in VARIANTS if variant in SIMPLEST_AND_ALL),
        *(
            pytest.param(variant, True, marks=pytest.mark.slow)
            for variant in VARIANTS
            if variant not in SIMPLEST_AND_ALL
        ),
    ],
)
def test_the_graph_of_each_variant_equals_its_eager_update(device: torch.device, variant: str, bf16: bool) -> None:
    form = dataclasses.replace(CAPTURABLE, bf16=bf16)
    batch_size = 4 if bf16 and device == CPU else 32  # many processors compute bf16 slowly
    eager, graph = (losses_of(variant, form, device, graphed, batch_size) for graphed in (False, True))
    if device == CPU:
        assert eager == graph
    else:
        assert eager == pytest.approx(graph, rel=5e-2 if bf16 else 5e-3)


def _new_beta(replay: Any, beta: float) -> None:
    replay._beta = torch.full((), beta)


def _copied_pairs(learner: Any) -> None:
    learner.target.load_state_dict({k: v.clone() for k, v in learner.network.state_dict().items()}, assign=True)


@pytest.mark.parametrize(
    ("place", "fault", "since"),
    [
        ("fastdqn.replay.prioritized.PrioritizedReplay.set_beta", _new_beta, 8),
        ("fastdqn.algorithms.dqn.DQNLearner.sync_target", _copied_pairs, 7),
        (None, None, 7),
    ],
)
def test_what_a_graph_would_not_notice_is_not_noticed(
    monkeypatch: pytest.MonkeyPatch, place: str | None, fault: Any, since: int
) -> None:
    """What stands for CUDA freezes what a graph freezes: tensors that are replaced, a learning rate of the host's."""
    if place is not None:
        monkeypatch.setattr(place, fault)
    form = FAST if place is None else CAPTURABLE
    eager = losses_of("prioritized", form, CPU, graphed=False, batch_size=4)
    graphs_without_cuda(monkeypatch)
    graph = losses_of("prioritized", form, CPU, graphed=True, batch_size=4)
    assert eager[:since] == graph[:since]
    assert eager[since] != graph[since]


def test_what_a_graph_cannot_hold_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs_without_cuda(monkeypatch)
    values, known, other = torch.arange(4.0), torch.Generator(), torch.Generator()
    for work, said in (
        (lambda: values.sum().item(), "not permitted"),
        (lambda: values[values > 1], "not permitted"),
        (lambda: values + torch.tensor([1.0]), "not permitted"),
        (lambda: torch.rand(2, generator=other), "does not know"),
        (lambda: torch.rand(2), "does not know"),
    ):
        graph = Graphed(work, known)
        for _ in range(Graphed.WARM_UP):
            graph()
        with pytest.raises(RuntimeError, match=said):
            graph()
    allowed = Graphed(lambda: torch.rand(2, generator=known), known)
    assert len({float(allowed()[0]) for _ in range(8)}) == 8


def test_work_without_a_result_is_recorded_once(device: torch.device) -> None:
    count, calls = torch.zeros((), device=device), []

    def work() -> None:
        calls.append(count.add_(1))

    graph = Graphed(work)
    for _ in range(8):
        graph()
    assert (count.item(), len(calls)) == (8, Graphed.WARM_UP + 1)


def test_each_replay_of_the_graph_draws_new_indices(device: torch.device) -> None:
    learner, replay = learner_of("double", CAPTURABLE, device), filled_replay(device)
    drawn: list[torch.Tensor] = []

    def draw() -> Batch:
        time, game = replay.draw(32)
        drawn.append(time * 4 + game)
        return replay.transitions(time, game)

    graph = Graphed(lambda: learner.update(draw()), replay.generator)
    seen: list[tuple[int, ...]] = []
    for _ in range(8):
        graph()
        seen.append(tuple(drawn[-1].tolist()))
    assert len(set(seen)) == 8
    assert len(drawn) == Graphed.WARM_UP + 1  # recorded once, replayed since


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("variant", ["dqn", "distributional"])
def test_graphed_actions_are_the_greedy_ones(device: torch.device, variant: str, bf16: bool) -> None:
    form = dataclasses.replace(CAPTURABLE, bf16=bf16)
    learner, replay = learner_of(variant, form, device), filled_replay(device)
    actions = GraphedActions(lambda: learner.act(replay.stacks()), learner.noise)
    for i in range(6):
        values = learner.values(replay.stacks())
        chosen = torch.from_numpy(actions()).to(device)
        best = values.gather(1, chosen.unsqueeze(1)).squeeze(1)  # a tie may be broken by rounding
        least = 2e-2 if bf16 and device.type == "cuda" else 1e-5  # a graph may have other kernels than single calls
        torch.testing.assert_close(best, values.max(dim=1).values, rtol=0, atol=least)
        learner.update(moved(random_batch(16, seed=i), device))  # the graph reads the weights of the moment
        play_noise(replay, 1, np.random.default_rng(i))  # and the newest frames


def test_each_graphed_act_draws_new_noise(device: torch.device) -> None:
    learner, replay = learner_of("noisy", CAPTURABLE, device), filled_replay(device)
    actions = GraphedActions(lambda: learner.act(replay.stacks()), learner.noise)
    layer: Any = next(iter(noisy_layers(learner.network).values()))
    seen: set[tuple[float, ...]] = set()
    for _ in range(8):
        actions()
        seen.add(tuple(layer.noise_out[:4].tolist()))
    assert len(seen) == 8


@contextlib.contextmanager
def waiting_is_an_error() -> Generator[None]:
    """Let whatever waits for the CUDA device raise."""
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.cuda
@pytest.mark.parametrize("variant", ["dqn", "rainbow"])
def test_learning_and_adding_never_wait_for_the_device(variant: str) -> None:
    device = torch.device("cuda")
    learner, replay = learner_of(variant, CAPTURABLE, device), weighted_replay(variant == "rainbow", device)
    graph = Graphed(update_of(learner, replay, 32), replay.generator, learner.noise)
    for _ in range(Graphed.WARM_UP + 1):
        graph()
    with waiting_is_an_error():
        for _ in range(5):
            graph()
            learner.sync_target()
            learner.set_learning_rate(1e-4)
            if isinstance(replay, PrioritizedReplay):
                replay.set_beta(0.7)
            play_noise(replay, 1, np.random.default_rng(0))


@pytest.mark.cuda
@pytest.mark.parametrize(("variant", "turns", "delay"), [("dqn", 1, 0), ("distributional", 1, 0), ("dqn", 4, 8)])
def test_returns_are_noted_and_renewed_without_waiting(variant: str, turns: int, delay: int) -> None:
    """Over ends of blocks and a refresh, in turns and with a delay, too."""
    device, rng = torch.device("cuda"), np.random.default_rng(0)
    learner = learner_of(variant, CAPTURABLE, device)
    replay = PrioritizedReplay(
        ReturnReplay(0.8, 5, 20, 4 * 200, 4, (84, 84), 4, 0.99, device, 1, turns=turns, delay=delay)
    )
    returns = StoredReturns(replay)
    replay.reset(rng.integers(256, size=(4, 84, 84), dtype=np.uint8))
    actions = GraphedActions(lambda: learner.act(replay.stacks(), returns.values), learner.noise)
    graph = Graphed(update_of(learner, replay, 32), replay.generator, learner.noise)

    def step() -> None:
        returns.note()
        play_noise(replay, 1, rng)
        returns.refresh(learner.still_values)

    for _ in range(60):
        actions()
        step()
    for _ in range(Graphed.WARM_UP + 1):
        graph()
    with waiting_is_an_error():
        for _ in range(12):
            graph()
            step()


@pytest.mark.cuda
def test_prioritized_draws_on_cuda_equal_the_cpus() -> None:
    uniform = torch.from_numpy(np.random.default_rng(0).random(64))
    drawn: list[Batch] = []
    for name in ("cpu", "cuda"):
        replay = weighted_replay(True, torch.device(name))
        assert isinstance(replay, PrioritizedReplay)
        replay.set_beta(0.6)
        play_noise(replay, 90, np.random.default_rng(5))
        replay.write_back(replay.draw(uniform.to(name)), torch.linspace(0.0, 3.0, 64, device=name))
        drawn.append(moved(replay.draw(uniform.flip(0).to(name)), CPU))
    cpu, cuda = drawn
    assert cpu.slot is not None
    assert cuda.slot is not None
    assert torch.equal(cpu.slot, cuda.slot)
    for a, b in zip(cpu, cuda, strict=True):
        torch.testing.assert_close(a, b)


CHANGING = ("--final-learning-rate", "1e-5", "--learning-rate-decay", "150")
BREAKOUT = (
    *(*SHORT, *CHANGING, "--threads", "1", "--game", "breakout", "--num-envs", "5", "--steps", "4", "--n-step", "2"),
    *("--epsilon-decay", "150"),
)
FREEZING = (
    *(*RAINBOW_CATCH, *CHANGING, "--threads", "1", "--max-env-steps", "2000", "--device", "cpu"),
    *("--learning-rate-decay", "1000", "--freeze-share", "0.7", "--freeze-slack", "0.4"),
)
RUNS = (
    ("09_cuda_graph", (*BREAKOUT, "--center-frames")),
    ("10_rainbow", (*BREAKOUT, "--variant", "rainbow", "--report-env-steps", "40", "--importance-decay", "150")),
    ("11_pong_in_seconds", (*FREEZING, "--prioritized")),
    (
        "11_pong_in_seconds",
        (
            *(*FREEZING, "--trace-decay", "0.8", "--block-steps", "8", "--prioritized"),
            *("--target-average", "0.05", "--act-with", "target"),
        ),
    ),
    (
        "12_atari_100k",
        (
            *(*BREAKOUT, "--agent", "100k-fast", "--n-step", "1", "--network", "nature", "--evaluation-games", "0"),
            *("--refresh-env-steps", "40", "--block-steps", "8"),
        ),
    ),
)


@pytest.mark.slow
@pytest.mark.parametrize(("script", "words"), RUNS)
def test_a_run_with_graphs_is_the_run_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, words: tuple[str, ...]
) -> None:
    """Every loss, action and weight: nothing that a loop changes while it runs is missed by its graphs."""
    graphs_without_cuda(monkeypatch)
    monkeypatch.setattr("fastdqn.forms.graphs_on", lambda _: True)
    monkeypatch.setitem(loaded(script).train.__globals__, "graphs_on", lambda _: True)
    made: list[Graphed[Any]] = []
    with monkeypatch.context() as eager:
        eager.setattr(Graphed, "__call__", lambda graph, *args: (made.append(graph), graph._work(*args))[1])
        without = train(script, tmp_path / "a", *words)
    run = train(script, tmp_path / "b", *words)
    assert fingerprint(run) == fingerprint(without)
    assert len(set(made)) == 3  # updates, actions, and what a step brings
    if script.startswith("11"):
        reports = records(run, "reports.jsonl")
        assert {0.0, 1.0} == {report["freeze/frozen"] for report in reports if "freeze/frozen" in report}
