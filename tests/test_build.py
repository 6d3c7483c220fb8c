"""From options to nouns: the parts that were asked for, in the form that is fastest here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from fastdqn.build import build_device_replay, describe_agent, fastest_form
from fastdqn.execution.devices import has_bf16
from fastdqn.options.dqn import AgentOptions, DQNOptions, UpdateOptions
from fastdqn.options.parts import PartOptions
from fastdqn.replay.prioritized import PrioritizedReplay
from fastdqn.seeds import seeds_of
from tests.helpers.learners import CPU, SHAPE, learner_of, options_of, random_batch
from tests.helpers.scripts import parse


def test_bf16_is_the_default_only_where_it_is_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    for capability, flags, expected in (
        ("AVX2", {"avx2"}, False),
        ("AVX512", {"avx512f"}, False),
        ("AVX512", {"avx512f", "avx512_bf16"}, True),
    ):
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda capability=capability: capability)
        monkeypatch.setattr("fastdqn.execution.devices._cpu_flags", lambda flags=flags: flags)
        assert has_bf16(CPU) is expected
        assert fastest_form(UpdateOptions(), CPU).bf16 is expected
    assert fastest_form(UpdateOptions(precision="bf16"), CPU).bf16
    assert not fastest_form(UpdateOptions(precision="fp32"), CPU).bf16


def test_there_are_as_many_atoms_as_asked_for() -> None:
    """arange(-10, 10, 20 / 50) would make 50 of the 51."""
    learner = learner_of("distributional")
    assert learner.outputs(random_batch(2).obs).shape == (2, 6, 51)
    assert learner.objective.atoms.tolist() == pytest.approx(np.linspace(-10, 10, 51).tolist(), abs=1e-6)  # type: ignore[attr-defined]


def test_the_replay_knows_priorities_if_they_are_asked_for() -> None:
    games: Any = SimpleNamespace(obs_shape=SHAPE, num_envs=8)

    def replay_of(variant: Any) -> object:
        options = options_of(variant, replay_size=1000)
        assert options.dqn is not None
        return build_device_replay(seeds_of(0), options.dqn, games, CPU, options.parts)

    assert isinstance(replay_of("prioritized"), PrioritizedReplay)
    assert not isinstance(replay_of("dqn"), PrioritizedReplay)


def test_an_agent_is_one_line() -> None:
    options = parse("10_rainbow", "--variant", "rainbow")
    said = describe_agent(options.dqn, options.agent, options.parts)
    for word in ("2-step", "double", "dueling", "factorised noise", "alpha 0.6", "51 atoms from -10 to 10"):
        assert word in said
    plain = describe_agent(DQNOptions(), AgentOptions(), PartOptions())
    assert plain == "agent: nature network, epsilon from 1 to 0.02"
