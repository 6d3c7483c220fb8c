"""The average of weights: by hand, and what it leaves alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from fastdqn.algorithms.average import EVERY, AveragedWeights
from tests.helpers.checkpoints import through_a_file


def network_of(weight: float) -> nn.Module:
    network = nn.Sequential(nn.Linear(2, 1), nn.BatchNorm1d(1))  # with a buffer beside its weights
    with torch.no_grad():
        network[0].weight.fill_(weight)
    return network


def follow(average: AveragedWeights, network: nn.Module, first: int, last: int) -> None:
    for update in range(first, last + 1):
        with torch.no_grad():
            network[0].weight.fill_(float(update))  # type: ignore[index]
        average.updated(update)


def test_it_is_the_mean_at_first_and_later_leans_to_the_newest() -> None:
    network = network_of(99.0)
    average = AveragedWeights(network, 0.25)
    wanted = 0.0
    for looks, end in enumerate(range(EVERY, 9 * EVERY, EVERY), 1):
        follow(average, network, end - EVERY + 1, end)
        wanted += max(0.25, 1 / looks) * (end - wanted)
        assert average.tensors["0.weight"][0].tolist() == pytest.approx([wanted, wanted], rel=1e-5)
        if looks == 4:
            assert wanted == 2.5 * EVERY  # of 10, 20, 30 and 40
    assert network[0].weight.tolist() == [[8.0 * EVERY] * 2]
    assert average.tensors.keys() == network.state_dict().keys()


def test_a_short_run_leaves_what_it_has_learnt() -> None:
    """Before the first look: its newest weights, not those that it began with."""
    network = network_of(99.0)
    average = AveragedWeights(network, 0.25)
    follow(average, network, 1, EVERY - 1)
    assert average.tensors["0.weight"].tolist() == [[EVERY - 1.0] * 2]


def test_buffers_are_the_networks_own_and_without_a_share_everything_is() -> None:
    network = network_of(1.0)
    average, none = AveragedWeights(network, 0.1), AveragedWeights(network, None)
    follow(average, network, 1, 20)
    follow(none, network, 1, 20)
    network[1].running_mean.fill_(7.0)
    assert average.tensors["1.running_mean"].item() == none.tensors["1.running_mean"].item() == 7.0
    assert none.tensors["0.weight"].tolist() == [[20.0, 20.0]]
    assert none.parts == {}


def test_it_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    network = network_of(1.0)
    average = AveragedWeights(network, 0.25)
    follow(average, network, 1, 57)
    other = AveragedWeights(network, 0.25)
    assert list(average.parts) == ["average"]
    other.load(through_a_file(tmp_path, average))
    for one in (average, other):
        follow(one, network, 58, 100)
    assert torch.equal(average.tensors["0.weight"], other.tensors["0.weight"])
    assert average.tensors["0.weight"].data_ptr() != network[0].weight.data_ptr()
