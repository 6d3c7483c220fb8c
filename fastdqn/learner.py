"""The learner: networks, optimiser, and what one update does."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Literal, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fastdqn.checkpoint import set_generator
from fastdqn.config import DQNOptions
from fastdqn.foreach import copy_all, lerp_all
from fastdqn.losses import weighted_mean
from fastdqn.networks import draw_noise, noisy_layers, torsos, use_channels_last
from fastdqn.objectives import Objective, ValueObjective
from fastdqn.seeding import as_int
from fastdqn.threads import SideBySide
from fastdqn.types import Batch, Metrics

ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class Form:
    """How the arithmetic of an update is laid out; what is computed stays the same."""

    channels_last: bool = False  # convolutions over (N, H, W, C)
    fused: bool = False  # Adam in one kernel
    bf16: bool = False  # the network's body in bfloat16; its last layer, targets, loss and Adam stay float32
    graphed: bool = False  # Adam reads its step size from the device, as a graph can: it may change between two replays


PLAIN = Form()


class _Branch:
    """What computes one gradient: an online and a target network, with noise of their own if they have noisy layers.

    Args:
        form: how the arithmetic is laid out.
        double: whether the online network chooses the action whose value the target network gives.
    """

    def __init__(
        self,
        network: nn.Module,
        target: nn.Module,
        objective: Objective,
        noise: torch.Generator,
        form: Form,
        double: bool,
    ) -> None:
        self.network = network
        self.target = target
        self.noise = noise
        self.parameters = list(network.parameters())
        self._objective = objective
        self._noisy = tuple(noisy_layers(network).values())
        self._noisy_target = tuple(noisy_layers(target).values())
        self._selector = network if double else None
        self._shared = next(iter(torsos(network)), None) if double else None  # target and selector see the same
        self._form = form
        self._device = self.parameters[0].device

    def arithmetic(self) -> torch.autocast:
        return torch.autocast(self._device.type, torch.bfloat16, enabled=self._form.bf16)

    def draw_noise(self, generator: torch.Generator | None = None) -> None:
        draw_noise(self._noisy, generator or self.noise)

    def gradient(self, batch: Batch, weight: Tensor | None) -> Metrics:
        """Leave the gradient of the mean error on `batch` with the online network's parameters."""
        draw_noise(self._noisy_target, self.noise)
        # Two regions: in one, PyTorch before 2.11 reuses the selector's bf16 weights, which carry no gradient.
        with torch.no_grad(), self.arithmetic():
            next_obs = batch.next_obs
            if self._shared is not None:
                next_obs = self._shared.pixels(next_obs)
            output_t = selector_t = self.target(next_obs)  # (B, A) or (B, A, Z)
            if self._selector is not None:
                self.draw_noise()
                selector_t = self._selector(next_obs)
        self.draw_noise()
        with self.arithmetic():
            output_tm1 = self.network(batch.obs)
        errors = self._objective.errors(output_tm1, batch, output_t, selector_t)
        loss = weighted_mean(errors.loss, weight)
        for parameter in self.parameters:
            parameter.grad = None
        loss.backward()
        return Metrics(loss.detach(), errors.value.mean(), errors.priority)


class DQNLearner:
    """Deep Q-learning: Adam on an objective's errors, and a target network copied now and then.

    Networks with noisy layers draw new noise for each update and each act, the target network its own (Fortunato et al.
    2018, section 3); so does the choice of Double Q-learning (the same paper's eq. 16).

    Args:
        network: the online network, on its device.
        make_network: makes another one of the same shape, for the target.
        options: learning rate; `double` for Double Q-learning (van Hasselt et al. 2015).
        form: how the arithmetic is laid out.
        objective: what the networks' outputs mean; by default one value an action and the mean squared TD error, as in
            the 2017 post.
        noise: random numbers of noisy layers, on the network's device.
        target_average: share by which each update moves the target network towards the online one; None to copy it in
            `sync_target` alone.
        act_with: the network whose greedy actions are played.
        threads: where the gradients of several batches are computed side by side; one at a time by default.
        online_average: share by which each update moves an average of the online network's weights towards them; None
            to keep none.
    """

    def __init__(
        self,
        network: nn.Module,
        make_network: Callable[[], nn.Module],
        options: DQNOptions,
        form: Form = PLAIN,
        objective: Objective | None = None,
        noise: torch.Generator | None = None,
        target_average: float | None = None,
        act_with: Literal["online", "target"] = "online",
        threads: SideBySide | None = None,
        online_average: float | None = None,
    ) -> None:
        self.network = network
        self.form = form
        self.objective: Objective = objective or ValueObjective()
        device = next(network.parameters()).device
        self.target = make_network().to(device).requires_grad_(False)
        if form.channels_last:
            use_channels_last(self.network)
            use_channels_last(self.target)
        self._average = target_average
        self._online = [parameter.detach() for parameter in self.network.parameters()]
        self._copies = [parameter.detach() for parameter in self.target.parameters()]
        self._copy_target()
        self._online_average = online_average
        self._averaged = [] if online_average is None else [online.clone() for online in self._online]
        self.actor = self.network if act_with == "online" else self.target
        self.noise = noise or torch.Generator(device)
        self._noisy_actor = tuple(noisy_layers(self.actor).values())
        self._threads = self._acting = threads or SideBySide(1)
        self._resting: SideBySide | None = None
        self.at_once = self._threads.count  # most batches that `update_all` takes
        self._branches = [
            _Branch(self.network, self.target, self.objective, self.noise, form, options.double),
            *[
                _Branch(
                    _sharing(make_network().to(device), self.network),
                    _sharing(make_network().to(device).requires_grad_(False), self.target),
                    self.objective,
                    torch.Generator(device).manual_seed(as_int(np.random.SeedSequence((self.noise.initial_seed(), i)))),
                    form,
                    options.double,
                )
                for i in range(1, self._threads.count)
            ],
        ]
        _keep_compiler_out()
        lr = torch.tensor(options.learning_rate, device=device) if form.graphed else options.learning_rate
        self.optimizer = _adam()(
            network.parameters(), lr=lr, eps=options.adam_epsilon, fused=form.fused or None, capturable=form.graphed
        )

    def set_learning_rate(self, learning_rate: float) -> None:
        """Change the step size of all later updates, graphed ones too; does not wait for the device."""
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(learning_rate)
            else:
                group["lr"] = learning_rate

    def see(self, mean: Tensor, deviation: Tensor) -> None:
        """Tell the networks what frames look like: each pixel's mean and standard deviation, (H, W) float32 each.

        Networks that were made to center or scale their inputs do so from now on.
        """
        for torso in (*torsos(self.network), *torsos(self.target)):
            torso.set_frame(mean, deviation)  # those of other branches are the same

    def values(self, obs: Tensor) -> Tensor:
        """Return the online network's values, float32 (B, A), for uint8 (B, C, H, W), as the update computes them."""
        return self.objective.values(self.outputs(obs))

    def outputs(self, obs: Tensor) -> Tensor:
        """Return what the online network makes of `obs`, (B, A) values or (B, A, Z) logits, float32."""
        return self._outputs(self.network, obs)

    def _outputs(self, network: nn.Module, obs: Tensor) -> Tensor:
        with self._branches[0].arithmetic():
            return network(obs)

    def greedy(self, obs: Tensor) -> Tensor:
        """Return the actions (B,) of largest value; noisy layers draw new noise, one for all of them."""
        draw_noise(self._noisy_actor, self.noise)
        if self._acting.count == 1:
            return self._greedy(obs)
        return torch.cat(self._acting(*[partial(self._greedy, part) for part in obs.chunk(self._acting.count)]))

    def rest(self, resting: bool) -> None:
        """Take note whether there will be no updates for a while, only actions.

        On a CPU these are then chosen in as many threads as PyTorch has, some of the games in each: sooner than sharing
        each operation among these threads, which go on waiting for the next one while the games want their cores. A
        learner that computes several gradients at a time always does so.
        """
        if next(self.network.parameters()).device.type != "cpu" or self._threads.count > 1:
            return
        if self._resting is None:
            count = torch.get_num_threads()
            if not resting or count == 1:
                return
            self._resting = SideBySide(count)
        torch.set_num_threads(1 if resting else self._resting.count)
        self._acting = self._resting if resting else self._threads

    def _greedy(self, obs: Tensor) -> Tensor:
        with torch.no_grad():
            return self.objective.values(self._outputs(self.actor, obs)).argmax(dim=1)

    def swap_average(self) -> None:
        """Exchange the online network's weights and their average, which is then what is played and kept at the end;
        for a while without updates, after which they must be exchanged again. Nothing where no average is kept.
        """
        for averaged, online in zip(self._averaged, self._online, strict=False):
            newest = online.clone()
            online.copy_(averaged)
            averaged.copy_(newest)

    def draw_noise(self, generator: torch.Generator | None = None) -> None:
        """Draw new noise for the online network, if it has noisy layers, with the learner's generator or another."""
        self._branches[0].draw_noise(generator)

    def update(self, batch: Batch, weight: Tensor | None = None) -> Metrics:
        """Make one optimiser step on `batch` (B transitions on the learner's device); does not wait for it.

        Args:
            weight: importance weights (B,), None for ones.
        """
        (metrics,) = self.update_all([(batch, weight)])
        return metrics

    def update_all(self, batches: Sequence[tuple[Batch, Tensor | None]]) -> list[Metrics]:
        """Make an optimiser step on each of a few batches, one after the other, from gradients that were all computed
        side by side before the first of these steps: the last gradient is as many steps old as there are others.

        Args:
            batches: at most `at_once`, each with its importance weights (B,), None for ones.
        """
        if len(batches) > self.at_once:
            raise ValueError(f"{len(batches)} batches, but at most {self.at_once} at a time")
        metrics = self._threads(
            *[partial(branch.gradient, *batch) for branch, batch in zip(self._branches, batches, strict=False)]
        )
        for branch in self._branches[: len(metrics)]:
            for parameter, own in zip(self._branches[0].parameters, branch.parameters, strict=True):
                parameter.grad = own.grad
            self.optimizer.step()
            if self._online_average is not None:
                lerp_all(self._averaged, self._online, self._online_average)
            if self._average is not None:
                lerp_all(self._copies, self._online, self._average)
        return metrics

    def state(self) -> dict[str, Any]:
        """Return copies of networks, optimiser and noise generator."""
        return {
            "network": _copied(self.network.state_dict()),
            "target": _copied(self.target.state_dict()),
            "optimizer": _copied(self.optimizer.state_dict()),
            "noise": [branch.noise.get_state() for branch in self._branches],
            "averaged": _copied(self._averaged),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from there; before the first update."""
        self.network.load_state_dict(state["network"])
        self.target.load_state_dict(state["target"])
        groups = self.optimizer.state_dict()["param_groups"]  # how it is carried out is this device's
        self.optimizer.load_state_dict({"state": state["optimizer"]["state"], "param_groups": groups})
        self.set_learning_rate(float(state["optimizer"]["param_groups"][0]["lr"]))
        kept = state.get("averaged", ())  # older checkpoints have none
        for averaged, saved in zip(self._averaged, kept, strict=False):
            averaged.copy_(saved)
        for branch, noise in zip(self._branches, state["noise"], strict=False):  # another device may have fewer
            set_generator(branch.noise, noise)

    def sync_target(self) -> None:
        """Copy the online network into the target network (Mnih et al. 2015); nothing to do where it is averaged."""
        if self._average is None:
            self._copy_target()

    def _copy_target(self) -> None:
        copy_all(self._copies, self._online)


class Graphed(Generic[ResultT]):
    """Device work without a decision on the host, as one CUDA graph: one launch, and nobody waits.

    The first three calls run on a side stream without a graph, so that cuDNN and cuBLAS have chosen and Adam has made
    its moments; what they do counts like every other call's.

    Args:
        work: what to do, with tensors that stay where they are.
        generators: all random numbers that `work` takes; each replay goes on in their sequences.
    """

    WARM_UP = 3

    def __init__(self, work: Callable[[], ResultT], *generators: torch.Generator) -> None:
        self._work = work
        self._generators = generators
        self._recorded: tuple[torch.cuda.CUDAGraph, ResultT] | None = None
        self._side = torch.cuda.Stream()
        self._warm = 0

    def __call__(self) -> ResultT:
        """Do the work once. The tensors of its result are overwritten by the next call."""
        if self._recorded is not None:
            graph, result = self._recorded
            graph.replay()
            return result
        if self._warm < self.WARM_UP:
            self._warm += 1
            main = torch.cuda.current_stream()
            self._side.wait_stream(main)
            with torch.cuda.stream(self._side):
                result = self._work()
            main.wait_stream(self._side)
            return result
        graph = torch.cuda.CUDAGraph()
        for generator in self._generators:
            graph.register_generator_state(generator)
        with torch.cuda.graph(graph):
            result = self._work()
        self._recorded = graph, result
        graph.replay()
        return result


class GraphedActions:
    """The greedy actions for N games as a CUDA graph: stacks, network and argmax in one launch.

    Returning them is the only moment in which the host waits for the device.
    """

    def __init__(self, learner: DQNLearner, stacks: Callable[[], Tensor]) -> None:
        self._choose = Graphed(lambda: learner.greedy(stacks()), learner.noise)
        self._pinned = torch.empty(0)
        self._copied = torch.cuda.Event()

    def __call__(self) -> NDArray[np.int64]:
        """Return the actions (N,) of largest value; the array is overwritten by the next call."""
        actions = self._choose()
        if self._pinned.shape != actions.shape:
            self._pinned = torch.empty(actions.shape, dtype=torch.int64, pin_memory=True)
        self._pinned.copy_(actions, non_blocking=True)
        self._copied.record()
        self._copied.synchronize()
        return self._pinned.numpy()


def _sharing(network: nn.Module, other: nn.Module) -> nn.Module:
    """Return `network` with the weights of `other`, the very same memory, but gradients and noise of its own."""
    for own, shared in zip(network.parameters(), other.parameters(), strict=True):
        own.data = shared.data
    for torso, seen in zip(torsos(network), torsos(other), strict=True):
        torso.mean_frame, torso.pixel_gain, torso.layout = seen.mean_frame, seen.pixel_gain, seen.layout
    return network


def _copied(value: Any) -> Any:
    """Return `value` with copies of its tensors, on the CPU."""
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list):
        return [_copied(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    return value


def _adam() -> type[torch.optim.Adam]:
    """Return Adam whose step does not import torch's compiler, which takes 1.5 s of every start.

    PyTorch's own step is wrapped into a function that imports the compiler in order to turn gradients off, which is
    done here. Once the compiler has been imported anyway, nothing is changed.
    """
    step: Any = cast(Any, torch.optim.Adam).step
    inner: Any = inspect.unwrap(step)
    if "torch._dynamo" in sys.modules or inner is step:
        return torch.optim.Adam

    class Adam(torch.optim.Adam):
        def step(self, closure: Any = None) -> Any:
            with torch.no_grad():
                return inner(self, closure)

    return Adam


def _keep_compiler_out() -> None:
    """Make an optimiser without importing torch's compiler either.

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
