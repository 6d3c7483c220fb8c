"""Ranks: processes that learn together by the mean of their gradients."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import math
import os
import threading
import time
import traceback
import zlib
from collections.abc import Iterator
from datetime import timedelta
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from fastdqn import process
from fastdqn.errors import Interrupted, RunError, UserError
from fastdqn.execution.devices import prepare_device
from fastdqn.execution.exchange import Exchanges, dist, first_line
from fastdqn.execution.meeting import begin_group, meet_first
from fastdqn.execution.presence import EMBEDDED, START_SECONDS, Presence, lookouts
from fastdqn.foreach import clip
from fastdqn.options.game import VectorOptions
from fastdqn.options.ranks import RanksOptions
from fastdqn.options.run import RunOptions
from fastdqn.seam import Descent, Group, Learner
from fastdqn.seeds import Seeds, rank_seeds
from fastdqn.states import on_cpu
from fastdqn.steps import learning_rate_of, load_optimizer
from fastdqn.terminal import say

WAITING_SECONDS = 5.0
"""After which a rank that waits for others at the start says so."""
SILENT_SHARE = 1 / 12
"""Of --rank-timeout: for so long a rank may be silent before it counts as gone."""


class Ranks(Exchanges):
    """This process among those that learn together, as a context manager. Alone it does nothing, and costs nothing.

    Args:
        options: how many they are. This one's number is in the environment, as torchrun has it.

    Raises:
        UserError: they are several, and nobody has started them.
    """

    def __init__(self, options: RanksOptions) -> None:
        self.alone = options.processes == 1
        number = os.environ.get("RANK", "")
        if not self.alone and not number.isdecimal():
            raise UserError(
                f"--processes {options.processes} needs as many processes, and RANK is not in the environment: start "
                "the script by its command line, by fastdqn train or by torchrun."
            )
        super().__init__(0 if self.alone else int(number), options.processes, options.rank_timeout)
        self.first = self.rank == 0
        self.descent: Descent | None = None if self.alone else Averaged(self)
        """What becomes of gradients; None for what does so alone."""
        self._start = max(options.rank_timeout, START_SECONDS)
        self._options = options
        self._learner: Learner[Any] | None = None

    def __enter__(self) -> Ranks:
        if self.alone:
            return self
        address, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT", "")
        if not address or not port.isdecimal() or int(port) > 65_535:
            raise UserError(
                "RANK and WORLD_SIZE are in the environment, but not where rank 0 is: MASTER_ADDR and MASTER_PORT."
            )
        here = os.environ.get("LOCAL_WORLD_SIZE", "1")
        if not here.isdecimal() or int(here) < 1:
            raise UserError(f"LOCAL_WORLD_SIZE {here} in the environment is no number of processes on this machine.")
        waiting = threading.Timer(WAITING_SECONDS, self._say_waiting, (f"rank 0 at {address}:{port}",))
        waiting.daemon = True
        waiting.start()
        try:
            store = meet_first(address, int(port), self.first, self.world, self._start)
        finally:
            waiting.cancel()
        patience = self._options.rank_timeout * SILENT_SHARE
        self._presence = Presence(self.rank, self.world, address, store, EMBEDDED in os.environ, patience)
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._presence)
            stack.push(self._say_failure)
            self._wait_for_all(self._presence)
            try:
                begin_group(store, self.rank, self.world, self._start, self._look_after_all)
                self.meet_here(self._start)
            except BaseException:
                process.abandon()  # as below
                raise
            self._exits = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if self.alone:
            return None
        if error is None and not self._broken_off:
            dist.destroy_process_group()
        else:
            process.abandon()  # threads of the group may wait for ever
        if self._here is not None:
            self._here.close()
        return self._exits.__exit__(kind, error, trace)

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines for a run's start."""
        return self._options.describe(self.on_one_machine)

    def place(self, run: RunOptions, vector: VectorOptions) -> tuple[torch.device, Seeds, VectorOptions]:
        """Prepare this process; return where it learns, its seeds, and `vector` with its share of the cores.

        Raises:
            UserError: the device is not there.
        """
        device = prepare_device(self.device_name(run.device, run.cuda), run.cuda, self.threads(run.threads))
        if not self.alone:
            vector = dataclasses.replace(vector, env_threads=self.threads(vector.env_threads))
        return device, rank_seeds(run.seed, self.rank), vector

    def device_name(self, device: str | None, cuda: bool) -> str | None:
        """Return what device this rank trains on where `device`, or `cuda`, was asked for: of several GPUs its own."""
        named = "cuda" if cuda and device in (None, "auto") else device
        if self.alone or named not in ("cuda", "auto") or torch.cuda.device_count() < 2:
            return device
        return f"cuda:{int(os.environ.get('LOCAL_RANK', '0')) % torch.cuda.device_count()}"

    def threads(self, asked: int | None) -> int | None:
        """Return the threads of this rank: those that were asked for, else its share of this machine's cores."""
        if self.alone or asked is not None:
            return asked
        return max(1, process.cores() // self._on_this_machine)

    def sharing(self, device: torch.device) -> int:
        """Return how many ranks, this one among them, take from the memory of `device`."""
        devices = torch.cuda.device_count() if device.type == "cuda" else 1
        return -(-self._on_this_machine // devices)

    def together(self) -> None:
        """Wait until all ranks are here. Each has looked then for the memory of all, before one of them takes its own:
        who looks later would find less, and count the same twice.
        """
        if not self.alone:
            self.gather([0.0], math.inf)

    @property
    def _on_this_machine(self) -> int:
        """Ranks on this machine."""
        return 1 if self.alone else int(os.environ.get("LOCAL_WORLD_SIZE", self.world))

    def begin(self, learner: Learner[Any]) -> None:
        """Let all ranks have what rank 0 has: weights, targets, temperatures, and the moments of optimisers.

        Raises:
            RunError: a rank is gone or has hung, or did not get what rank 0 has.
        """
        if self.alone:
            return
        own = learner.groups()[0].parameters[0].device
        has_gpu = own.type == "cuda" and own.index == int(os.environ.get("LOCAL_RANK", "-1"))
        said = self.gather([has_gpu, dist.is_nccl_available()])  # by all, whatever each of them has
        if all(gpu and nccl for gpu, nccl in said):
            # A rank that hangs is noticed after --rank-timeout, in the exchange that follows. Where a device is waited
            # for before that, NCCL has to end the process, later than the sentence would come.
            self._devices = dist.new_group(backend="nccl", timeout=timedelta(seconds=max(600.0, 2.0 * self._start)))
        for tensor in learner.tensors().values():
            there = tensor.detach().to("cpu", copy=True).contiguous()
            self._wait(dist.broadcast(there, 0, async_op=True))
            if not self.first:
                tensor.detach().copy_(there)
        for group in learner.groups():
            self._share_moments(group.optimizer)
        self._learner = learner
        self.check()
        if self._presence is not None:
            self._presence.begun()
        self._met = time.monotonic()

    def check(self) -> None:
        """Compare checksums of all that ranks share.

        Raises:
            RunError: a rank has others than rank 0.
        """
        if self._learner is None:
            return
        sums = [int(said[0]) for said in self.gather([float(checksum(self._learner))])]
        if min(sums) != max(sums):
            apart = [str(rank) for rank, one in enumerate(sums) if one != sums[0]]
            raise RunError(
                f"Rank{'s' if len(apart) > 1 else ''} {', '.join(apart)} no longer ha{'ve' if len(apart) > 1 else 's'} "
                "the weights of rank 0, or the moments of its optimisers, although all step by the same gradients; the "
                "run ends."
            )

    def _say_waiting(self, first: str) -> None:
        """Say whom this rank waits for, unless rank 0 speaks for it."""
        if self.first or EMBEDDED not in os.environ:
            say(f"rank {self.rank} of {self.world} waits for {'all others' if self.first else first}")

    def _wait_for_all(self, presence: Presence) -> None:
        """Wait until all ranks are there.

        Raises:
            RunError: one is not in time.
        """
        end = time.monotonic() + self._start
        while not self._complete(presence):
            self._look_after_all()
            if time.monotonic() > end:
                late = [str(rank) for rank in presence.missing()] if self.first else ["0"]
                who = f"Rank{'s' if len(late) > 1 else ''} {', '.join(late)}"
                raise RunError(f"{who} did not come within {self._start:g} seconds.")
            time.sleep(0.02)

    def _complete(self, presence: Presence) -> bool:
        """Tell whether all ranks are there.

        Raises:
            RunError: rank 0 has gone meanwhile.
        """
        try:
            return presence.complete()
        except RuntimeError as error:
            raise RunError(f"Rank 0 is gone: {first_line(error)}.") from error

    def _look_after_all(self) -> None:
        """Raise RunError where one of the others is gone, or will not come."""
        self.look()
        for look in lookouts:
            look()

    def _say_failure(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Tell the others of an error of this rank; of another's they know."""
        if error is None or isinstance(error, Interrupted) or self._presence is None:
            return
        if isinstance(error, (RunError, UserError)):
            self._presence.fail(f"Rank {self.rank} failed: {error}")
        else:
            lines = "".join(traceback.format_exception(error)).rstrip()
            self._presence.fail(f"{lines}\nRank {self.rank} failed; its traceback is above.")

    def _share_moments(self, optimizer: torch.optim.Optimizer) -> None:
        """Let `optimizer` have rank 0's moments, and its learning rate."""
        data = b""
        if self.first:
            written = io.BytesIO()
            size = float(learning_rate_of(optimizer))
            moments = on_cpu(optimizer.state_dict()["state"])
            torch.save({"state": moments, "param_groups": [{"lr": size}]}, written)
            data = written.getvalue()
        data = self.send(data, 0)
        if self.first:
            return
        load_optimizer(optimizer, torch.load(io.BytesIO(data), weights_only=True))


ALONE = Ranks(RanksOptions())
"""A process that learns alone."""


class Averaged:
    """A descent by the mean of the gradients of all ranks, which each of them then clips and steps by itself.

    The mean is clipped, not what goes into it: so all ranks together step as one process does on all their samples.
    A parameter without a gradient on some ranks has a gradient of 0 there.

    Args:
        ranks: that have the same groups, each with a name of its own.
    """

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._flat: dict[str, tuple[Tensor, list[Tensor]]] = {}  # of each group: all gradients, and views of each

    def step(self, group: Group) -> None:
        """Take every .grad of `group`."""
        flat, views = self._flat.get(group.name) or self._place(group)
        for parameter, view in zip(group.parameters, views, strict=True):
            if parameter.grad is None:
                view.zero_()
            elif parameter.grad.data_ptr() != view.data_ptr():  # else it has been written here
                view.copy_(parameter.grad)
        self._ranks.average(flat)
        for parameter, view in zip(group.parameters, views, strict=True):
            lie, lies = ((one.device, one.dtype, one.stride()) for one in (view, parameter))
            parameter.grad = view if lie == lies else torch.empty_like(parameter).copy_(view)
        if group.max_norm is not None:
            clip(group.parameters, group.max_norm)
        group.optimizer.step()

    def mean(self, value: Tensor) -> Tensor:
        """Return the mean of `value` over all ranks, which all must ask for equally often."""
        flat = self._ranks.buffer(value.numel(), value)
        flat.copy_(value.detach().flatten())
        self._ranks.average(flat)
        return flat.view(value.shape).to(value.device)

    def _place(self, group: Group) -> tuple[Tensor, list[Tensor]]:
        """Make room for all gradients; each is laid out like its weights, if these are laid out alike on all ranks."""
        layout = [torch.empty_like(one, device="meta").stride() for one in group.parameters]
        said = self._ranks.gather([float(zlib.crc32(repr(layout).encode()))])
        if said.count(said[0]) < len(said):
            layout = [torch.empty(one.shape, device="meta").stride() for one in group.parameters]
        flat = self._ranks.buffer(sum(one.numel() for one in group.parameters), group.parameters[0])
        views: list[Tensor] = []
        begin = 0
        for one, strides in zip(group.parameters, layout, strict=True):
            views.append(flat.as_strided(one.shape, strides, begin))
            begin += one.numel()
        self._flat[group.name] = flat, views
        return flat, views


def checksum(learner: Learner[Any]) -> int:
    """Return a checksum of every bit that ranks share: the learner's tensors, and the moments of its optimisers."""
    total = 0
    for tensor in (*learner.tensors().values(), *_moments(learner)):
        whole = tensor.detach().cpu().contiguous().flatten()
        total = zlib.crc32(whole.view(torch.uint8).numpy().data if whole.numel() else b"", total)
    return total


def _moments(learner: Learner[Any]) -> Iterator[Tensor]:
    for group in learner.groups():
        state = group.optimizer.state_dict()["state"]
        for _, moments in sorted(state.items()):
            yield from (torch.as_tensor(moments[name]) for name in sorted(moments))
