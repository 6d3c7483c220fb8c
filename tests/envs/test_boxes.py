"""Registered environments that show vectors: played many at once, with rows that are no transitions, and resumed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from fastdqn.algorithms.a2c import Policy
from fastdqn.algorithms.pieces import PiecePlayer
from fastdqn.algorithms.rollouts import RolloutPlayer
from fastdqn.envs import games
from fastdqn.envs.build import bare_env, build_env
from fastdqn.envs.many import build_games
from fastdqn.errors import RunError, UserError
from fastdqn.networks.actor_critic import actor_critic
from fastdqn.options.game import VectorOptions
from fastdqn.replay.stacks import GameVectors
from fastdqn.types import VectorStep
from tests.helpers.games import game_of
from tests.helpers.versions import NO_HALF_CHEETAH

SEED = np.random.SeedSequence(7)


class Stairs(gymnasium.Env[Any, Any]):
    """Shows how many steps were taken in all and in this game; an odd game is truncated, an even one terminates."""

    def __init__(self, render_mode: str | None = None, length: int = 3, fault: str = "") -> None:
        self.observation_space = Box(-np.inf, np.inf, (2,), np.float64)
        self.action_space = Discrete(2, start=5)
        self.length, self.fault = length, fault
        self.total = self.games = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps, self.games, self.total = 0, self.games + 1, self.total + 1
        return self.shown(), {}

    def step(self, action: int) -> Any:
        assert action in (5, 6)
        if self.fault == "step":
            raise RuntimeError("the stairs broke")
        self.steps, self.total = self.steps + 1, self.total + 1
        over = self.steps == self.length
        return self.shown(), float(self.total), over and self.games % 2 == 0, over and self.games % 2 == 1, {}

    def shown(self) -> Any:
        return np.array([self.total, self.steps], np.float64)

    def render(self) -> Any:
        return np.full((6, 10, 3), self.steps, np.uint8)


class DarkStairs(Stairs):
    """Refuses to draw, as Gymnasium's own template does, and shows what is no number when asked to."""

    def __init__(self, render_mode: str | None = None) -> None:
        assert render_mode is None or render_mode == "human"
        super().__init__()

    def shown(self) -> Any:
        return np.array([np.nan if self.total == 3 else self.total, self.steps], np.float64)


class PlainStairs(Stairs):
    """Has never heard of `render_mode`."""

    def __init__(self) -> None:
        super().__init__()


@pytest.fixture
def registered() -> Iterator[None]:
    more = {"Faulty": {"fault": "step"}, "Stairs": {}}
    for name, kwargs in more.items():
        gymnasium.register(f"{name}Toy-v0", Stairs, kwargs=kwargs)
    gymnasium.register("PlainToy-v0", PlainStairs)
    gymnasium.register("DarkToy-v0", DarkStairs)
    yield
    for name in (*more, "Plain", "Dark"):
        del gymnasium.registry[f"{name}Toy-v0"]


def many(name: str, count: int) -> Any:
    return build_games(game_of(name), VectorOptions(num_envs=count), SEED)[0]


def test_ids_are_known_in_any_case_and_ataris_are_ataris() -> None:
    assert games.registered_id("cartpole-V1") == "CartPole-v1"
    assert [games.registered_id(name) for name in ("ALE/Pong-v5", "PongNoFrameskip-v4", "pong", "a:B")] == [None] * 4
    assert [games.is_atari(name) for name in ("pong", "ALE/Pong-v5", "a:B", "CartPole-v1")] == [
        True,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize("name", ["mine:Toy-v0", "my.own:Mine/Toy-v12"])
def test_an_id_with_its_module_is_known_without_being_imported(name: str) -> None:
    assert games.registered_id(name) == name
    assert games.is_custom(name)
    assert not games.is_atari(name)
    with pytest.raises(UserError, match=f"^{name} is no Atari game, and agents that learn the values of actions"):
        games.rom_of(name)
    with pytest.raises(UserError, match=f"^The environment {name} cannot be made: ModuleNotFoundError"):
        build_env(game_of(name))


@pytest.mark.usefixtures("registered")
@pytest.mark.filterwarnings("error")
def test_an_environment_that_takes_no_render_mode_is_played() -> None:
    for name in ("PlainToy-v0", "DarkToy-v0"):
        assert many(name, 2).reset().tolist() == [[1, 0], [1, 0]]
        assert build_env(game_of(name), drawn=True).reset(seed=0)[0].tolist() == [1, 0]


@pytest.mark.parametrize("continuous", [False, True])
def test_only_what_is_watched_can_be_drawn(continuous: bool) -> None:
    """LunarLander keeps all sparks of its engines, to be drawn, and slows down with each."""
    name = "Pendulum-v1" if continuous else "CartPole-v1"
    made: Any = [build_env(game_of(name), continuous=continuous, drawn=drawn) for drawn in (False, True)]
    assert [env.unwrapped.env.unwrapped.render_mode for env in made] == [None, "rgb_array"]


@pytest.mark.usefixtures("registered")
def test_what_it_shows_must_be_finite() -> None:
    env = build_env(game_of("DarkToy-v0"))
    env.reset(seed=0)
    env.step(0)
    with pytest.raises(RunError, match=r"DarkToy-v0 failed in step: ValueError: what it shows is not finite\.$"):
        env.step(0)
    env = build_env(game_of("DarkToy-v0"))
    env.unwrapped.env.unwrapped.total = 2  # type: ignore[attr-defined]
    with pytest.raises(RunError, match="failed in reset: ValueError: what it shows is not finite"):
        env.reset(seed=0)


@pytest.mark.usefixtures("registered")
def test_a_reset_is_a_row_that_is_no_transition() -> None:
    """Three env steps a game: an end by truncation, then one by termination, with the reset's row between them."""
    envs = many("StairsToy-v0", 2)
    assert (envs.obs_shape, envs.num_actions) == ((2,), 2)
    first = envs.reset()
    assert first.dtype == np.float32
    assert first.tolist() == [[1, 0], [1, 0]]
    steps: list[VectorStep] = []
    for _ in range(8):
        envs.send(np.zeros(2, np.int64))
        steps.append(envs.recv())
    assert [bool(step.reset[0]) for step in steps] == [False, False, False, True, False, False, False, True]
    assert [bool(step.truncated[0]) for step in steps] == [False, False, True] + [False] * 5
    assert [bool(step.terminated[0]) for step in steps] == [False] * 6 + [True, False]
    assert [float(step.reward[0]) for step in steps] == [2, 3, 4, 0, 6, 7, 8, 0]
    assert [end.score for step in steps for end in step.episodes if end.place == 1] == [9.0, 21.0]
    assert [end.truncated for step in steps for end in step.episodes if end.place == 0] == [True, False]


@pytest.mark.usefixtures("registered")
def test_pieces_have_the_returns_of_each_env_step() -> None:
    """With a value of 100 for every observation: bootstrapped at a truncation, not at an end, never over a reset."""
    policy = Policy(Fixed(), torch.Generator().manual_seed(0))
    player = PiecePlayer(many("StairsToy-v0", 1), GameVectors(1, 2, 0.5), policy, 6)
    piece = player.piece()
    assert piece.obs[:, 0].tolist() == [1, 2, 3, 5, 6, 7]  # 4 and 8 are last ones: nothing is done there
    first = [2 + 0.5 * 3 + 25, 3 + 0.5 * 4 + 25, 4 + 50]
    second = [6 + 0.5 * 7 + 25, 7 + 0.5 * 8, 8]
    assert piece.target.tolist() == first + second
    assert piece.env_steps == 6
    assert [end.score for end in piece.episodes] == [9.0, 21.0]
    assert player.piece().obs[:, 0].tolist() == [9, 10, 11, 13, 14, 15]


def player_of(policy: Policy, trace_decay: float) -> RolloutPlayer:
    stacks = GameVectors(1, 1, 0.5)

    def newest() -> torch.Tensor:
        return torch.from_numpy(stacks.obs())

    return RolloutPlayer(many("StairsToy-v0", 1), stacks, newest, policy, 9, 0.5, trace_decay)


@pytest.mark.usefixtures("registered")
def test_rollouts_have_the_advantages_of_each_env_step() -> None:
    """With a value of 100, gamma 1/2 and lambda 0: r - 50 where a game goes on or was truncated, r - 100 at an end."""
    policy = Policy(Fixed(), torch.Generator().manual_seed(0))
    player = player_of(policy, 0.0)
    rollout = player.rollout()
    samples = rollout.samples
    assert samples.obs[:, 0].tolist() == [1, 2, 3, 5, 6, 7, 9]  # rows of resets are no samples
    assert samples.advantage.tolist() == [2 - 50, 3 - 50, 4 - 50, 6 - 50, 7 - 50, 8 - 100, 10 - 50]
    torch.testing.assert_close(samples.target, samples.advantage + 100)
    torch.testing.assert_close(samples.log_probability, torch.full((7,), 0.5).log())
    assert (rollout.env_steps, [end.score for end in rollout.episodes]) == (7, [9.0, 21.0])
    assert [end.row for end in rollout.episodes] == [2, 6]
    player = player_of(policy, 1.0)
    first = [2 + 0.5 * 3 + 0.25 * 4 + 0.125 * 100, 3 + 0.5 * 4 + 25, 4 + 50]
    second = [6 + 0.5 * 7 + 0.25 * 8, 7 + 0.5 * 8, 8]
    assert player.rollout().samples.target.tolist() == [*first, *second, 60.0]


class Fixed(torch.nn.Module):
    """A policy without preference, and a value of 100."""

    def __init__(self) -> None:
        super().__init__()
        self.nothing = torch.nn.Parameter(torch.zeros(1))

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.zeros(len(obs), 2), torch.full((len(obs),), 100.0)


def test_a_player_of_cartpole_continues_bit_for_bit() -> None:
    def player() -> PiecePlayer:
        network = actor_critic((4,), 2, torch.Generator().manual_seed(0))
        policy = Policy(network, torch.Generator().manual_seed(1))
        return PiecePlayer(many("CartPole-v1", 3), GameVectors(3, 4, 0.99), policy, 16)

    whole = player()
    for _ in range(5):
        whole.piece()
    state = whole.state()
    other = player()
    assert not other.load(state).any()
    for _ in range(5):
        for a, b in zip(whole.piece(), other.piece(), strict=True):
            assert np.array_equal(np.asarray(a), np.asarray(b))


def test_a_frame_limit_truncates() -> None:
    env = build_env(game_of("CartPole-v1", max_frames=4))
    env.reset(seed=0)
    assert [env.step(i % 2)[3] for i in range(4)] == [False, False, False, True]


@pytest.mark.parametrize(
    ("name", "more", "said"),
    [
        ("Pendulum-v1", {}, "Pendulum-v1 has the action space Box of float32"),
        ("FrozenLake-v1", {}, "FrozenLake-v1 shows Discrete, but of registered environments"),
        ("CartPole-v1", {"frame_skip": 4}, "--frame-skip is for games that show pictures, and CartPole-v1 shows"),
        ("CartPole-v1", {"frame_stack": 2}, "--frame-stack is for games that show pictures"),
        ("CartPole-v1", {"clip_rewards": True}, "--clip-rewards is for games that show pictures"),
        ("CartPole-v1", {"sticky_actions": 0.25}, "--sticky-actions is a setting of Atari's emulator"),
        (
            "HalfCheetah-v2",
            {},
            NO_HALF_CHEETAH,
        ),
    ],
)
def test_what_cannot_be_learnt_from_is_one_sentence(name: str, more: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as caught:
        build_env(game_of(name, **more))
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("registered")
def test_an_error_of_the_environment_is_one_sentence() -> None:
    env = build_env(game_of("FaultyToy-v0"))
    env.reset(seed=0)
    with pytest.raises(RunError, match=r"^The environment FaultyToy-v0 failed in step: RuntimeError: the stairs b"):
        env.step(0)


@pytest.mark.usefixtures("registered")
def test_what_it_looks_like() -> None:
    env: Any = bare_env(game_of("StairsToy-v0"), drawn=True)
    env.reset(seed=0)
    env.step(0)
    assert env.render().tolist() == np.full((6, 10, 3), 1).tolist()
    stairs = env.env.unwrapped
    stairs.render = lambda: np.full((6, 10, 4), 7, np.uint8)  # with a value for how opaque it is
    assert env.render().tolist() == np.full((6, 10, 3), 7).tolist()
    stairs.render = lambda: np.full((6, 10, 2), 7, np.uint8)
    with pytest.raises(UserError, match="StairsToy-v0 draws no pictures"):
        env.render()
