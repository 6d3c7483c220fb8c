"""The learner: networks, optimiser, and what one update does."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fastdqn.config import DQNOptions
from fastdqn.losses import mean_squared_td_error, q_learning_target, taken_values
from fastdqn.networks import set_mean_frame, use_channels_last
from fastdqn.types import Batch, Metrics


@dataclass(frozen=True)
class Form:
    """How the arithmetic of an update is laid out; what is computed stays the same."""

    channels_last: bool = False  # convolutions over (N, H, W, C)
    fused: bool = False  # Adam in one kernel
    bf16: bool = False  # the network's body in bfloat16; its last layer, targets, loss and Adam stay float32


PLAIN = Form()


class DQNLearner:
    """Deep Q-learning as in the 2017 post: mean squared TD error, Adam, a target network copied now and then.

    Args:
        network: the online network, on its device.
        make_network: makes another one of the same shape, for the target.
        options: learning rate; `double` for Double Q-learning (van Hasselt et al. 2015).
        form: how the arithmetic is laid out.
    """

    def __init__(
        self, network: nn.Module, make_network: Callable[[], nn.Module], options: DQNOptions, form: Form = PLAIN
    ) -> None:
        self.network = network
        self.form = form
        self._device = device = next(network.parameters()).device
        self.target = make_network().to(device).requires_grad_(False)
        if form.channels_last:
            use_channels_last(self.network)
            use_channels_last(self.target)
        self.sync_target()
        self._selector = network if options.double else None
        _keep_compiler_out()
        graphed = device.type == "cuda" and form.fused  # such an update may be captured
        # In a graph the step size is read from the device, so that it may change between two replays.
        lr = torch.tensor(options.learning_rate, device=device) if graphed else options.learning_rate
        self.optimizer = torch.optim.Adam(network.parameters(), lr=lr, fused=form.fused or None, capturable=graphed)

    def set_learning_rate(self, learning_rate: float) -> None:
        """Change the step size of all later updates, graphed ones too; does not wait for the device."""
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(learning_rate)
            else:
                group["lr"] = learning_rate

    def center(self, mean_frame: Tensor) -> None:
        """Subtract `mean_frame`, (H, W) float32, from all inputs, in networks that were made to center them."""
        set_mean_frame(self.network, mean_frame)
        set_mean_frame(self.target, mean_frame)

    def values(self, obs: Tensor) -> Tensor:
        """Return the online network's values, float32 (B, A), for uint8 (B, C, H, W), as the update computes them."""
        with self._arithmetic():
            return self.network(obs)

    def update(self, batch: Batch) -> Metrics:
        """Make one optimiser step on `batch` (B transitions on the learner's device); does not wait for it."""
        # Two regions: in one, PyTorch before 2.11 reuses the selector's bf16 weights, which carry no gradient.
        with torch.no_grad(), self._arithmetic():
            q_t = self.target(batch.next_obs)  # (B, A)
            q_t_selector = q_t if self._selector is None else self._selector(batch.next_obs)
        with self._arithmetic():
            q_tm1 = self.network(batch.obs)  # (B, A)
        target = q_learning_target(batch.reward, batch.discount, q_t, q_t_selector)  # (B,)
        qa_tm1 = taken_values(q_tm1, batch.action)  # (B,)
        loss = mean_squared_td_error(qa_tm1, target)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return Metrics(loss.detach(), qa_tm1.detach().mean())

    def sync_target(self) -> None:
        """Copy the online network into the target network (Mnih et al. 2015)."""
        with torch.no_grad():
            for target, online in zip(self.target.parameters(), self.network.parameters(), strict=True):
                target.copy_(online)

    def _arithmetic(self) -> torch.autocast:
        return torch.autocast(self._device.type, torch.bfloat16, enabled=self.form.bf16)


class GraphedUpdates:
    """The whole update as one CUDA graph, the drawing of its batch included: one launch, and nobody waits.

    The first three updates run on a side stream without a graph, so that cuDNN and cuBLAS have chosen and Adam has
    made its moments; they train on real batches like all others. The target network is copied between replays.

    Args:
        learner: with `fused` Adam, on a CUDA device.
        draw: draws a batch from the replay with device operations alone.
        generator: the random numbers that `draw` takes; each replay goes on in their sequence.
    """

    WARM_UP = 3

    def __init__(self, learner: DQNLearner, draw: Callable[[], Batch], generator: torch.Generator) -> None:
        self._learner = learner
        self._draw = draw
        self._generator = generator
        self._graph: torch.cuda.CUDAGraph | None = None
        self._metrics: Metrics | None = None
        self._side = torch.cuda.Stream()
        self._warm = 0

    def update(self) -> Metrics:
        """Draw and train once. The metrics' tensors are overwritten by the next call."""
        if self._warm < self.WARM_UP:
            self._warm += 1
            main = torch.cuda.current_stream()
            self._side.wait_stream(main)
            with torch.cuda.stream(self._side):
                metrics = self._learner.update(self._draw())
            main.wait_stream(self._side)
            return metrics
        if self._graph is None or self._metrics is None:
            graph = torch.cuda.CUDAGraph()
            graph.register_generator_state(self._generator)
            with torch.cuda.graph(graph):
                self._metrics = self._learner.update(self._draw())
            self._graph = graph
        self._graph.replay()
        return self._metrics


class GraphedActions:
    """The greedy actions for N games as a CUDA graph: stacks, network and argmax in one launch.

    Returning them is the only moment in which the host waits for the device.
    """

    WARM_UP = 3

    def __init__(self, learner: DQNLearner, stacks: Callable[[], Tensor]) -> None:
        self._learner = learner
        self._stacks = stacks
        self._graph: torch.cuda.CUDAGraph | None = None
        self._actions = torch.empty(0)
        self._pinned = torch.empty(0)
        self._copied = torch.cuda.Event()
        self._side = torch.cuda.Stream()
        self._warm = 0

    def __call__(self) -> NDArray[np.int64]:
        """Return the actions (N,) of largest value; the array is overwritten by the next call."""
        if self._graph is None:
            if self._warm < self.WARM_UP:
                self._warm += 1
                main = torch.cuda.current_stream()
                self._side.wait_stream(main)
                with torch.cuda.stream(self._side):
                    actions = self._choose()
                main.wait_stream(self._side)
                return actions.cpu().numpy()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self._actions = self._choose()
            self._pinned = torch.empty(self._actions.shape, dtype=torch.int64, pin_memory=True)
            self._graph = graph
        self._graph.replay()
        self._pinned.copy_(self._actions, non_blocking=True)
        self._copied.record()
        self._copied.synchronize()
        return self._pinned.numpy()

    def _choose(self) -> Tensor:
        with torch.no_grad():
            return self._learner.values(self._stacks()).argmax(dim=1)


def _keep_compiler_out() -> None:
    """Make an optimiser without importing torch's compiler, which takes 1.5 s of every start.

    PyTorch marks four methods of its optimisers as not to be compiled, and imports the compiler at their first call in
    order to say so. Nothing is compiled here, so each is handed back as it is; once the compiler has been
    imported anyway, nothing is changed.
    """
    if "torch._dynamo" in sys.modules:
        return
    for name in ("add_param_group", "zero_grad", "state_dict", "load_state_dict"):
        method = getattr(getattr(torch.optim.Optimizer, name, None), "__wrapped__", None)
        if method is not None and not hasattr(method, "__dynamo_disable"):
            setattr(method, "__dynamo_disable", method)
