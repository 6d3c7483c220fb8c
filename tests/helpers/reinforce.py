"""A second algorithm, outside the library: REINFORCE (Williams 1992) on Catch, as a script of its own.

It brings options, metrics and a progress line of its own, and uses the library as it is.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import fastdqn.cli.begin  # noqa: F401 - first
from fastdqn.algorithms.exploration import Player
from fastdqn.cli.scripts import start
from fastdqn.envs.build import build_env, describe, spaces_of
from fastdqn.errors import UserError
from fastdqn.execution.devices import prepare_device
from fastdqn.options.game import GameOptions
from fastdqn.options.run import RunOptions
from fastdqn.replay.nstep import NStep
from fastdqn.runs.run import Run
from fastdqn.seeds import as_int, seeds_of, torch_generator
from fastdqn.states import on_cpu, set_generator


@dataclass(frozen=True)
class ReinforceOptions:
    step_size: float = 0.02
    """Learning rate of Adam."""
    episodes: int = 8
    """Episodes for each update."""

    def check(self) -> None:
        if self.episodes < 1:
            raise UserError(f"--episodes must be at least 1, not {self.episodes}.")


@dataclass(frozen=True)
class Options:
    run: RunOptions
    game: GameOptions
    reinforce: ReinforceOptions


class Reinforce:
    """A linear softmax policy, the episodes since the last update, and their gradient."""

    def __init__(self, options: ReinforceOptions, num_actions: int, seed: int) -> None:
        seeds = seeds_of(seed)
        self.options, self.rng = options, torch_generator(seeds.policy)
        self.network = nn.Sequential(nn.AvgPool2d(12), nn.Flatten(), nn.Linear(4 * 49, num_actions))
        for parameter in self.network.parameters():
            nn.init.zeros_(parameter)
        self.optimizer = torch.optim.Adam(self.network.parameters(), options.step_size)
        self.steps: list[tuple[Tensor, int, float, float]] = []  # obs, action, reward, discount
        self.ended = 0

    def logits(self, obs: Tensor) -> Tensor:
        return self.network(obs.float() / 255.0)

    def act(self, obs: Any, epsilon: float) -> int:
        with torch.no_grad():
            probabilities = self.logits(torch.from_numpy(np.asarray(obs)).unsqueeze(0)).softmax(dim=1)
        return int(torch.multinomial(probabilities, 1, generator=self.rng))

    def add(self, transition: Any) -> bool:
        """Take one transition of Catch, whose games all terminate; tell whether there are episodes for an update."""
        obs = torch.from_numpy(np.array(transition.obs))
        self.steps.append((obs, transition.action, transition.reward, transition.discount))
        self.ended += transition.discount == 0.0
        return self.ended == self.options.episodes

    def update(self) -> tuple[dict[str, Tensor], int]:
        returns, after = torch.zeros(len(self.steps)), 0.0
        for i in reversed(range(len(self.steps))):
            after = returns[i] = self.steps[i][2] + self.steps[i][3] * after
        logits = self.logits(torch.stack([step[0] for step in self.steps]))
        actions = torch.tensor([step[1] for step in self.steps])
        chosen = logits.log_softmax(dim=1).gather(1, actions.unsqueeze(1)).squeeze(1)
        loss = -((returns - returns.mean()) * chosen).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        entropy = torch.distributions.Categorical(logits=logits.detach()).entropy().mean()
        samples = len(self.steps)
        self.steps, self.ended = [], 0
        return {"loss_policy": loss.detach(), "entropy": entropy}, samples

    def state(self) -> dict[str, Any]:
        steps = [list(step) for step in self.steps]
        parts = {"network": self.network.state_dict(), "optimizer": self.optimizer.state_dict(), "steps": steps}
        return {**on_cpu(parts), "ended": int(self.ended), "rng": self.rng.get_state()}

    def load(self, state: Mapping[str, Any]) -> None:
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.steps, self.ended = [tuple(step) for step in state["steps"]], state["ended"]
        set_generator(self.rng, state["rng"])

    def discard(self, envs: Any) -> None:
        """Drop the steps of a game that will not be played to its end."""
        if envs is None or envs.any():
            whole = [i + 1 for i, step in enumerate(self.steps) if step[3] == 0.0]
            del self.steps[max(whole, default=0) :]


def train(options: Options) -> Run:
    device = prepare_device(options.run.device, options.run.cuda, options.run.threads)
    env = build_env(options.game, "opencv")
    agent = Reinforce(options.reinforce, spaces_of(env)[1], options.run.seed)
    player = Player(env, agent, NStep(1, 0.99), as_int(seeds_of(options.run.seed).env))
    progress = {"entropy": ".2f", "loss_policy": ".4f"}
    with Run(__file__, options, device, "opencv", (describe(options.game, "opencv"),), progress) as run:
        run.weights.tensors = agent.network.state_dict()
        run.track(agent=agent, player=player)
        while not run.over():
            played = player.step(0.0)
            run.played(played)
            if agent.add(played.transitions[0]):
                run.updated(*agent.update())
    return run


if __name__ == "__main__":
    start(train, Options, __doc__)
