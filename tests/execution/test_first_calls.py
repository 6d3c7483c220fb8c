"""The first work on a GPU, in a thread of its own."""

from __future__ import annotations

import threading

import pytest
import torch

from fastdqn.errors import UserError
from fastdqn.execution import first_calls as module
from fastdqn.execution.devices import has_gpu, prepare_device
from fastdqn.execution.first_calls import first_calls


def names() -> list[str]:
    return [thread.name for thread in threading.enumerate()]


def test_a_cpu_has_nothing_to_load() -> None:
    wait = first_calls(torch.device("cpu"))
    assert "first calls" not in names()
    wait()


@pytest.mark.cuda
def test_a_gpu_has_computed_once_it_was_waited_for() -> None:
    wait = first_calls(torch.device("cuda", 0))
    wait()
    assert "first calls" not in names()
    assert torch.cuda.is_initialized()


def test_a_device_that_refuses_is_left_to_the_run(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def refused(*_: object, **__: object) -> torch.Tensor:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(module, "has_bf16", lambda _: True)
    monkeypatch.setattr(torch, "zeros", refused)
    first_calls(torch.device("cuda", 0))()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("device", [None, "auto", "cpu", "cuda", "cuda:0", "mps"])
@pytest.mark.parametrize("cuda", [False, True])
def test_whether_there_is_a_gpu_is_what_a_run_would_say(
    monkeypatch: pytest.MonkeyPatch, there: bool, device: str | None, cuda: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "set_device", lambda _: None)
    try:
        found = prepare_device(device, cuda, 1).type
    except UserError:
        assert not there or device == "mps"
        assert device == "mps" or has_gpu(device, cuda)
        return
    assert has_gpu(device, cuda) == (found == "cuda")
