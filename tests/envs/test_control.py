"""Registered environments with continuous actions: scaling, bounds, rows of resets, resuming, and what is refused."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

from fastdqn.envs import games
from fastdqn.envs.build import bare_env, build_env
from fastdqn.envs.many import build_games
from fastdqn.errors import RunError, UserError
from fastdqn.options.game import VectorOptions
from fastdqn.types import VectorStep
from tests.helpers.checkpoints import through_a_file
from tests.helpers.control import Ears, registered
from tests.helpers.games import game_of
from tests.helpers.scripts import ROOT

SEED = np.random.SeedSequence(7)
FLOAT = np.float32


def many(name: str, count: int) -> Any:
    return build_games(game_of(name), VectorOptions(num_envs=count), SEED, continuous=True)[0]


@pytest.mark.parametrize(
    ("space", "actions", "heard"),
    [
        (Box(-2.0, 2.0, (1,), FLOAT), [[-1.0], [0.0], [0.25], [1.0]], [[-2.0], [0.0], [0.5], [2.0]]),  # Pendulum's
        (Box(-1.0, 1.0, (1,), FLOAT), [[-1.0], [0.25]], [[-1.0], [0.25]]),
        (
            Box(np.array([0.0, -3.0], FLOAT), np.array([1.0, 5.0], FLOAT)),
            [[-1.0, -1.0], [1.0, 1.0], [0.0, 0.5]],
            [[0.0, -3.0], [1.0, 5.0], [0.5, 3.0]],
        ),
        (Box(-0.4, 0.4, (1,), np.float64), [[1.0], [0.5]], [[0.4], [0.2]]),
        (Box(-2.0, 2.0, (1,), FLOAT), [[1.0000001], [-7.0]], [[2.0], [-2.0]]),  # rounding, and worse, is clipped
    ],
)
def test_actions_are_scaled_to_the_bounds(space: Box, actions: Any, heard: Any) -> None:
    with registered(Ears=(Ears, {"actions": space})):
        env = build_env(game_of("Ears-v0"), continuous=True)
        env.reset(seed=0)
        toy: Any = bare(env)
        for action in actions:
            env.step(np.array(action, FLOAT))
            if toy.steps == 3:
                env.reset()
    np.testing.assert_allclose(np.array(toy.heard), heard, rtol=1e-6)
    assert all(space.contains(one) for one in toy.heard)
    assert (env.action_space.low == -1.0).all()
    assert (env.action_space.high == 1.0).all()


def bare(env: Any) -> Any:
    """Return the toy below all wrappers."""
    return env.unwrapped.env.unwrapped


def test_the_bounds_of_pendulum_are_reached() -> None:
    """The control of scaling: unscaled, an action of 1 would be half of the largest torque."""
    env = build_env(game_of("Pendulum-v1"), continuous=True)
    env.reset(seed=0)
    toy = bare(env)
    for action, torque in ((1.0, 2.0), (-1.0, -2.0), (0.5, 1.0)):
        env.step(np.array([action], FLOAT))
        assert toy.last_u == pytest.approx(torque)


def test_an_agent_that_takes_either_gets_what_the_environment_has() -> None:
    """Vectors are scaled and clipped here, numbers are passed on."""
    env = build_env(game_of("Pendulum-v1"), continuous=None)
    env.reset(seed=0)
    for action, torque in ((1.0, 2.0), (-7.0, -2.0)):
        env.step(np.array([action], FLOAT))
        assert bare(env).last_u == pytest.approx(torque)
    cart, _ = build_games(game_of("CartPole-v1"), VectorOptions(num_envs=2), SEED, continuous=None)
    pendulum, _ = build_games(game_of("Pendulum-v1"), VectorOptions(num_envs=2), SEED, continuous=None)
    assert (cart.numbered, cart.num_actions, pendulum.numbered, pendulum.num_actions) == (True, 2, False, 1)
    with (
        registered(Ears=(Ears, {"actions": Box(-np.inf, np.inf, (1,), FLOAT)})),
        pytest.raises(UserError, match="without finite bounds"),
    ):
        build_env(game_of("Ears-v0"), continuous=None)


def test_a_reset_is_a_row_that_is_no_transition_and_truncation_is_no_termination() -> None:
    with registered(Ears=Ears):
        envs = many("Ears-v0", 2)
        assert (envs.obs_shape, envs.num_actions) == ((2,), 1)
        assert envs.reset().tolist() == [[1, 0], [1, 0]]
        steps: list[VectorStep] = []
        for i in range(8):
            envs.send(np.full((2, 1), i / 8, FLOAT))
            steps.append(envs.recv())
    assert [bool(step.reset[0]) for step in steps] == [False, False, False, True, False, False, False, True]
    assert [bool(step.truncated[0]) for step in steps] == [False, False, True] + [False] * 5
    assert [bool(step.terminated[0]) for step in steps] == [False] * 6 + [True, False]
    assert [step.frames[0, 0] for step in steps] == [2, 3, 4, 5, 6, 7, 8, 9]
    assert [end.score for step in steps for end in step.episodes if end.place == 1] == [9.0, 21.0]
    heard = [float(one[0]) for one in bare(envs.envs[1].env).heard]
    assert heard == [0.0, 0.25, 0.5, 1.0, 1.25, 1.5]  # 3/8 and 7/8 met the resets


def test_games_are_played_again_bit_for_bit() -> None:
    rng = np.random.default_rng(0)
    whole = many("Pendulum-v1", 2)
    whole.reset()
    actions = rng.uniform(-1.0, 1.0, (450, 2, 1)).astype(FLOAT)
    states = {}
    for i in range(350):
        if i in (0, 120, 200, 201):  # before the first, within the first, at its end, at the reset
            states[i] = whole.state()
        whole.send(actions[i])
        whole.recv()
    shown = {}
    whole = many("Pendulum-v1", 2)
    whole.reset()
    for i in range(350):
        whole.send(actions[i])
        shown[i] = whole.recv()
    for begin, state in states.items():
        other = many("Pendulum-v1", 2)
        assert not other.load(state).any()
        for i in range(begin, 350):
            other.send(actions[i])
            step = other.recv()
            for a, b in zip(step[:5], shown[i][:5], strict=True):
                assert np.array_equal(a, b)
            assert step.episodes == shown[i].episodes


def test_a_game_that_shows_something_else_begins_anew() -> None:
    """The control: with another action in its past a game is not the same."""
    games_ = many("Pendulum-v1", 2)
    games_.reset()
    for _ in range(5):
        games_.send(np.zeros((2, 1), FLOAT))
        games_.recv()
    state = games_.state()
    state["games"][1]["actions"][2] = 0.5
    other = many("Pendulum-v1", 2)
    assert other.load(state).tolist() == [False, True]
    other.send(np.zeros((2, 1), FLOAT))
    assert other.recv().reset.tolist() == [False, True]


@pytest.mark.parametrize(
    ("space", "said"),
    [
        (
            Discrete(3),
            "has the action space Discrete, but an agent here acts with a vector of numbers: a Box of floats ",
        ),
        (Box(-1.0, 1.0, (2, 2), FLOAT), "has the action space Box of float32 (2, 2), but an agent here acts with"),
        (Box(0, 3, (1,), np.int64), "has the action space Box of int64 (1,), but an agent here acts with a vector of"),
        (Box(-np.inf, np.inf, (1,), FLOAT), "has actions without finite bounds, the lower below the upper"),
        (Box(0.0, np.inf, (1,), FLOAT), "has actions without finite bounds"),
        (Box(np.array([0.0, 1.0], FLOAT), np.array([1.0, 1.0], FLOAT)), "has actions without finite bounds"),
    ],
)
def test_actions_that_cannot_be_learnt_are_one_sentence(space: Any, said: str) -> None:
    with registered(Ears=(Ears, {"actions": space})), pytest.raises(UserError) as caught:
        build_env(game_of("Ears-v0"), continuous=True)
    assert str(caught.value).startswith(f"Ears-v0 {said}")
    assert str(caught.value).count("\n") == 0
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize(
    "shown",
    [Box(0, 255, (8, 8, 3), np.uint8), Dict({"a": Box(0.0, 1.0, (1,))}), Box(0, 1, (2,), np.int64), Discrete(2)],
)
def test_observations_that_cannot_be_learnt_from_are_one_sentence(shown: Any) -> None:
    with registered(Ears=(Ears, {"shown": shown})), pytest.raises(UserError, match=r"^Ears-v0 shows .* vectors .*\.$"):
        build_env(game_of("Ears-v0"), continuous=True)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Pendulum-v2", "did you mean Pendulum-v1"),
        ("pendulun-v1", "did you mean Pendulum-v1"),
        ("pong", "say Pendulum-v1."),
        ("PongNoFrameskip-v4", "is no environment that Gymnasium knows by an id, as an agent with continuous actions"),
        ("tests.helpers.toys:Catch", "is no environment that Gymnasium knows by an id"),
    ],
)
def test_names_that_are_no_such_environment_are_one_sentence(name: str, said: str) -> None:
    with pytest.raises(UserError) as caught:
        bare_env(game_of(name), continuous=True)
    assert str(caught.value).startswith(f"{name} is no environment that Gymnasium knows")
    assert said in str(caught.value)


def test_ids_are_known_in_any_case() -> None:
    assert games.control_id("pendulum-V1") == "Pendulum-v1"


@pytest.mark.parametrize(
    ("name", "said", "extra"),
    [
        ("HalfCheetah-v5", 'MuJoCo is not installed, run `pip install "gymnasium[mujoco]"`', "mujoco"),
        ("BipedalWalker-v3", 'Box2D is not installed, run `pip install "gymnasium[box2d]"`', "box2d"),
        ("Pendulum-v1", "JAX is not installed", None),
    ],
)
def test_a_missing_package_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, name: str, said: str, extra: str | None
) -> None:
    def make(*_: Any, **__: Any) -> Any:
        raise gymnasium.error.DependencyNotInstalled(said)

    monkeypatch.setattr(gymnasium, "make", make)
    with pytest.raises(UserError) as caught:
        build_env(game_of(name), continuous=True)
    hint = f"; fastdqn's extra has it: pip install 'fastdqn[{extra}]'" if extra else ""
    assert str(caught.value) == f"{name} needs a package that is missing: {said}{hint}."


def test_extras_have_what_the_sentences_say() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for extra, needs in (("mujoco", "mujoco"), ("box2d", "box2d"), ("watch", "classic-control")):
        assert f'\n{extra} = ["gymnasium[{needs}]>=' in project


@pytest.mark.parametrize(("name", "continuous"), [("Pendulum-v1", True), ("CartPole-v1", False)])
def test_without_pygame_one_sentence_says_how_to_get_it(
    name: str, continuous: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pygame", None)  # importing it fails, as where it is not installed
    env: Any = bare_env(game_of(name), continuous=continuous, drawn=True)
    env.reset(seed=0)
    with pytest.raises(UserError) as caught:
        env.render()
    said = f'{name} cannot be drawn: pygame is not installed, run `pip install "gymnasium[classic-control]"`'
    hint = "; fastdqn's extra has it: pip install 'fastdqn[watch]'."
    assert str(caught.value).replace("_", "-") == said + hint


def test_any_package_that_is_missing_for_drawing_is_named() -> None:
    class Painted(Ears):
        def render(self) -> Any:
            raise ModuleNotFoundError("No module named 'easel.oil'", name="easel.oil")

    with registered(Painted=Painted):
        env: Any = bare_env(game_of("Painted-v0"), continuous=True, drawn=True)
        env.reset(seed=0)
        with pytest.raises(UserError) as caught:
            env.render()
    assert str(caught.value) == "Painted-v0 cannot be drawn: No module named 'easel.oil'; pip install easel."


@pytest.mark.parametrize(
    ("module", "said"),
    [
        (
            "gymnasium.envs.mujoco.half_cheetah_v5",
            r"^Blind-v0 cannot be drawn: .*no display.*; on a machine without a .*",
        ),
        ("elsewhere", r"^The environment Blind-v0 failed in render: RuntimeError: no display"),
    ],
)
def test_a_missing_display_is_one_sentence(module: str, said: str) -> None:
    class Blind(Ears):
        def render(self) -> Any:
            raise RuntimeError("no display")

    Blind.__module__ = module
    with registered(Blind=Blind):
        env: Any = bare_env(game_of("Blind-v0"), continuous=True, drawn=True)
        env.reset(seed=0)
        with pytest.raises(RunError, match=said) as caught:
            env.render()
    assert "\n" not in str(caught.value)


def test_a_frame_limit_truncates() -> None:
    env = build_env(game_of("Pendulum-v1", max_frames=4), continuous=True)
    env.reset(seed=0)
    ends = [env.step(np.zeros(1, FLOAT))[2:4] for _ in range(4)]
    assert ends == [(False, False)] * 3 + [(False, True)]


def test_actions_are_remembered_as_they_were(tmp_path: Path) -> None:
    """A loop may use one array again and again; a game is played again with what each step had got."""
    there, here = (many("Pendulum-v1", 2) for _ in range(2))
    there.reset()
    actions, rng = np.zeros((2, 1), np.float32), np.random.default_rng(0)
    for _ in range(9):
        actions[:] = rng.uniform(-1, 1, (2, 1))
        there.send(actions)
        there.recv()
    here.reset()
    assert here.load(through_a_file(tmp_path, there)).tolist() == [False, False]
