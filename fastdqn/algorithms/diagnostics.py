"""Diagnostics: reports on what is inside a learner: values of held-out states, learning rate, noise, priorities,
distributions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fastdqn.algorithms.dqn import DQNLearner
from fastdqn.algorithms.objectives import CategoricalObjective
from fastdqn.networks.noisy import noisy_layers
from fastdqn.replay.prioritized import DeviceReplay, PrioritizedReplay
from fastdqn.states import NothingUnfinished, Packed, set_generator, unpack
from fastdqn.steps import learning_rate_of
from fastdqn.types import Histogram

CHUNK = 250  # states evaluated at once


class Diagnostics(NothingUnfinished):
    """Looks into a learner every so many env steps; each look waits for the device.

    The held-out states are drawn once, uniformly, at the first report (Mnih et al. 2015, figure 2, follow the mean
    value of fixed states). A report has random numbers of its own: it changes nothing of what is learnt.

    Args:
        learner: whose networks to look into.
        replay: where the held-out states come from.
        every: env steps between two reports.
        held_out: how many states.
        seed: of what a report draws.
    """

    def __init__(self, learner: DQNLearner, replay: DeviceReplay, every: int, held_out: int, seed: int) -> None:
        self._generator = torch.Generator(replay.device).manual_seed(seed)
        self._learner = learner
        self._replay = replay
        self._every = every
        self._count = held_out
        self._states: Tensor | None = None
        self._next = 0

    def state(self) -> dict[str, Any]:
        """Return the held-out states, and when the next report is due."""
        states = [] if self._states is None else [Packed(self._states.cpu().numpy())]
        return {"states": states, "next": self._next, "generator": self._generator.get_state()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from there."""
        for packed in state["states"]:
            self._states = unpack(packed).to(self._learner.device)
        self._next = state["next"]
        set_generator(self._generator, state["generator"])

    def due(self, env_steps: int) -> bool:
        """Tell whether the next report is due after `env_steps`; the one after it is then due later."""
        if env_steps < self._next:
            return False
        self._next = (env_steps // self._every + 1) * self._every
        return True

    def report(self) -> tuple[dict[str, float], dict[str, Histogram]]:
        """Return scalars and histograms by their names in TensorBoard."""
        if self._states is None:
            self._states = self._replay.observations(self._count, self._generator)
        outputs = self._outputs(self._states)
        objective = self._learner.objective
        values = objective.values(outputs)
        scalars = {"held_out/mean_q": float(values.max(dim=1).values.mean())}
        scalars["train/learning_rate"] = float(learning_rate_of(self._learner.group.optimizer))
        scalars |= signal_to_noise(self._learner)
        if isinstance(self._replay, PrioritizedReplay):
            scalars |= self._replay.spread()
        histograms: dict[str, Histogram] = {}
        if isinstance(objective, CategoricalObjective):
            best = values.argmax(dim=1).view(-1, 1, 1).expand(-1, 1, outputs.shape[2])
            mass = outputs.gather(1, best).squeeze(1).softmax(dim=1).mean(dim=0)
            histograms["held_out/distribution"] = Histogram(objective.returns.tolist(), mass.tolist())
        return scalars, histograms

    def _outputs(self, states: Tensor) -> Tensor:
        self._learner.draw_noise(self._generator)
        with torch.no_grad():
            parts = [self._learner.outputs(states[i : i + CHUNK]) for i in range(0, len(states), CHUNK)]
            return torch.cat(parts)


def signal_to_noise(learner: DQNLearner) -> dict[str, float]:
    """Return, for each noisy layer, the root mean square of its weights over that of their sigmas.

    The 2017 post's author follows the same ratio.
    """
    return {
        f"signal_to_noise/{name}": (_square(layer.weight) / _square(layer.weight_sigma)) ** 0.5
        for name, layer in noisy_layers(learner.network).items()
    }


def _square(weights: Tensor) -> float:
    return float(weights.detach().square().sum())
