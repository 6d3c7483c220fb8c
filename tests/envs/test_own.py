"""Environments of one's own: what is shown of them, what is refused, and what their mistakes become."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete

from fastdqn.envs.build import bare_env, build_env, describe
from fastdqn.envs.many import build_games
from fastdqn.envs.rerun import Rerun
from fastdqn.errors import RunError, UserError
from fastdqn.options.game import OWN_GAME, GameOptions, VectorOptions
from tests.helpers.own import Breaks, Dots, Heedless, Named, OneArray, Says, game_of
from tests.helpers.scripts import AS_ATARI, parse

DOTS = "tests.helpers.own:Dots"


def area(length: int, side: int) -> np.ndarray:
    """Return how much of each pixel (length) each pixel of the side covers, (side, length)."""
    ends, pixels = np.arange(side + 1) * length / side, np.arange(length)
    covered = np.minimum(ends[1:, None], pixels + 1) - np.maximum(ends[:-1, None], pixels)
    return np.maximum(covered, 0) * side / length


def plainly(picture: np.ndarray, side: int) -> np.ndarray:
    """Return the frame of a picture, in float64."""
    gray = picture.reshape(*picture.shape[:2], -1).astype(float)
    gray = gray @ [0.299, 0.587, 0.114] if gray.shape[2] == 3 else gray[:, :, 0]
    return area(gray.shape[0], side) @ gray @ area(gray.shape[1], side).T


@pytest.mark.parametrize("wrappers", ["classic", "opencv"])
@pytest.mark.parametrize("shape", [(50, 70, 3), (50, 70), (71, 53, 1), (84, 84, 3), (8, 9, 3), (211, 301, 3)])
def test_stacks_are_the_last_pictures_whole_in_gray_and_resized(shape: tuple[int, ...], wrappers: Any) -> None:
    env = build_env(game_of(lambda: Dots(shape)), wrappers)
    obs, _ = env.reset(seed=3)
    shown = env.unwrapped.env.shown  # type: ignore[attr-defined]
    assert len(shown) == 1  # nothing was played before
    pictures = [shown[0]] * 4
    for count in range(1, 8):
        stack = np.asarray(obs)
        assert (stack.shape, stack.dtype) == ((4, 84, 84), np.uint8)
        for frame, picture in zip(stack, pictures, strict=True):
            assert np.abs(frame - plainly(picture, 84)).max() <= 1.5  # gray is rounded before, the frame after
        obs, reward, terminated, truncated, _ = env.step(count % 4)
        assert (reward, terminated, truncated, len(shown)) == (0.25, False, False, count + 1)
        pictures = [*pictures[1:], shown[-1]]
    assert env.unwrapped.env.actions == [1, 2, 3, 0, 1, 2, 3]  # type: ignore[attr-defined]


def test_many_games_and_other_sides() -> None:
    envs, note = build_games(game_of(Dots), VectorOptions(num_envs=3, frame_size=42), np.random.SeedSequence(5))
    assert "3 games at once, stepped in turn, 42x42 frames of the whole picture in gray, frame skip 1" in note
    frames = envs.reset()
    for env, frame in zip(envs.envs, frames, strict=True):  # type: ignore[attr-defined]
        assert np.abs(frame - plainly(env.env.unwrapped.env.shown[-1], 42)).max() <= 1.5
    assert len({frame.tobytes() for frame in frames}) == 3
    envs.send(np.array([0, 1, 2]))
    assert envs.recv().reward.tolist() == [0.25] * 3


def test_an_array_that_is_drawn_into_again_is_copied() -> None:
    env = build_env(game_of(OneArray, frame_skip=2))
    env.reset(seed=0)
    stacks = [env.step(0)[0] for _ in range(4)]
    assert [int(np.asarray(stack)[-1, 0, 0]) for stack in stacks] == [20, 40, 60, 80]
    assert np.asarray(stacks[3])[:, 5, 5].tolist() == [20, 40, 60, 80]


def test_ataris_defaults_are_off_unless_asked_for() -> None:
    plain = parse("01_baseline", "--game", DOTS).game
    assert plain == GameOptions(DOTS, None, 1, 0, 4, False, False, False, 0.0, False, None)
    asked = parse("01_baseline", "--game", DOTS, *AS_ATARI, "--max-frames", "50").game
    assert asked == GameOptions(DOTS, max_frames=50)
    assert parse("10_rainbow", *AS_ATARI, "--game", DOTS, "--no-clip-rewards").game.clip_rewards is False
    assert parse("01_baseline", "--game", DOTS, "--game", "pong").game == GameOptions("pong")
    assert set(OWN_GAME.items()) <= set(vars(plain).items())


def test_what_is_said_is_what_is_done() -> None:
    said = describe(game_of(Dots), "opencv")
    for words in ("84x84 frames of the whole picture in gray", "frame skip 1", "no-ops none", "no frame limit but its"):
        assert words in said
    assert "opencv" not in said
    assert "sticky" not in said
    assert "at most 50 frames a game" in describe(game_of(Dots, max_frames=50), "classic")


def test_frame_skip_repeats_sums_and_shows_the_maximum_of_the_last_two() -> None:
    env = build_env(game_of(lambda: Dots((84, 84)), frame_skip=3))
    env.reset(seed=0)
    obs, reward, *_ = env.step(2)
    dots: Any = env.unwrapped.env  # type: ignore[attr-defined]
    assert (reward, dots.actions) == (0.75, [2, 2, 2])
    assert (np.asarray(obs)[-1] == np.maximum(dots.shown[-1], dots.shown[-2])).all()


def finished(env: Any) -> list[tuple[float, int, bool]]:
    """Play to the end of an episode; return the games that have ended."""
    terminated = truncated = False
    while not terminated and not truncated:
        _, _, terminated, truncated, _ = env.step(0)
    return [tuple(end)[:3] for end in env.get_wrapper_attr("pop_finished")()]


def test_scores_are_raw_sums_and_limits_truncate() -> None:
    env = build_env(game_of(Dots, clip_rewards=True))
    env.reset(seed=0)
    assert env.step(0)[1] == 1.0
    assert finished(env) == [(5.0, 20, False)]
    for game in (game_of(Dots, max_frames=7), game_of(lambda: gymnasium.wrappers.TimeLimit(Dots(), 7))):
        env = build_env(game)
        for _ in range(2):
            env.reset()
            assert finished(env) == [(1.75, 7, True)]
    env = build_env(game_of(Dots, max_frames=20))  # both at once: it was over
    env.reset()
    assert finished(env) == [(5.0, 20, False)]


def test_noops_are_action_0_and_follow_the_seed_even_where_the_environment_does_not() -> None:
    for kind in (Dots, Heedless, Named):
        counts: list[int] = []
        for seed in (1, 2, 3, 4, 1):
            env = build_env(game_of(kind, noop_max=9))
            env.reset(seed=seed)
            actions = env.unwrapped.env.actions  # type: ignore[attr-defined]
            assert set(actions) == {0}
            counts.append(len(actions))
        assert counts[0] == counts[4]
        assert 1 <= min(counts) < max(counts) <= 9


def test_lives_and_fire_where_there_are_any() -> None:
    env = build_env(game_of(Named, episodic_life=True, fire_reset=True))
    env.reset(seed=0)
    named: Any = env.unwrapped.env  # type: ignore[attr-defined]
    assert named.actions == [1, 2]
    assert finished(env) == []  # a life, not the game
    assert len(named.actions) == 6
    env.reset()
    assert named.actions[6:] == [0, 1, 2]  # the game goes on with one no-op, then FIRE
    assert finished(env) == [(5.0, 20, False)]


def test_actions_that_begin_elsewhere_and_their_names() -> None:
    env = build_env(game_of(lambda: Dots(first_action=5)))
    assert env.action_space == Discrete(4)
    env.reset(seed=0)
    env.step(0)
    env.step(3)
    bare: Any = env.unwrapped
    assert bare.env.actions == [5, 8]
    assert bare.get_action_meanings() == ["action 5", "action 6", "action 7", "action 8"]
    assert bare_env(game_of(Named)).get_action_meanings() == list(Named.names)  # type: ignore[attr-defined]


def test_wrappers_of_the_user_count() -> None:
    """Also around a game that has an emulator, which could be played past them."""

    def freeway() -> Any:
        env = gymnasium.make("ALE/Freeway-v5", frameskip=1, max_episode_steps=30)
        return gymnasium.wrappers.TransformReward(env, lambda reward: float(reward) + 0.5)

    env = build_env(game_of(freeway), "opencv")
    assert np.asarray(env.reset(seed=0)[0]).shape == (4, 84, 84)
    assert finished(env) == [(15.0, 30, True)]


def test_the_seed_governs_the_games_and_those_without_one_are_played_too() -> None:
    for kind, others in ((Dots, False), (Heedless, True)):
        shown: list[bytes] = []
        for seed in (1, 1, 2):
            env = Rerun(build_env(game_of(kind)), seed)
            shown.append(np.asarray(env.reset()).tobytes())
        assert shown[0] == shown[1]
        assert (shown[0] == shown[2]) == others


PICTURE = Box(0, 255, (50, 70, 3), np.uint8)


@pytest.mark.parametrize(
    ("made_by", "said"),
    [
        (
            lambda: gymnasium.make("CartPole-v1"),
            r"shows Box of float32 \(4,\), but .* learns from pictures.* Actor-critics learn from vectors",
        ),
        (
            lambda: gymnasium.make("Pendulum-v1"),
            r"action space Box of float32 \(1,\), but .* one action of several.* soft actor-critic and PPO",
        ),
        (lambda: Says(action_space=MultiDiscrete([2, 3])), "action space MultiDiscrete"),
        (lambda: Says(action_space=None), "action space None"),
        (lambda: Says(observation_space=Dict({"image": PICTURE})), "shows Dict, but"),
        (
            lambda: Says(observation_space=Box(0, 1, (50, 70, 3), np.float32)),
            r"shows Box of float32 \(50, 70, 3\).* at least 8x8\.$",
        ),
        (lambda: Says(observation_space=Box(0, 255, (3, 50, 70), np.uint8)), r"Box of uint8 \(3, 50, 70\)"),
        (lambda: Says(observation_space=Box(0, 255, (7, 7, 3), np.uint8)), "at least 8x8"),
        (lambda: Says(observation_space=Discrete(5)), "shows Discrete"),
        (lambda: Says(observation_space=Box(0, 1, (50, 70), np.uint8)), "pictures of 0 to 1, .* multiply them by 255"),
        (lambda: 3, "must return a gymnasium.Env, not int"),
    ],
)
def test_what_cannot_be_learnt_from_is_one_sentence(made_by: Callable[[], Any], said: str) -> None:
    with pytest.raises(UserError, match=said) as caught:
        build_env(game_of(made_by))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "asked", "said"),
    [
        (Dots, {"sticky_actions": 0.25}, "--sticky-actions is a setting of Atari's emulator"),
        (Dots, {"full_action_set": True}, "--full-action-set is a setting of Atari's emulator"),
        (Dots, {"episodic_life": True}, '--episodic-life reads .* info."lives"., which .* does not have'),
        (Dots, {"fire_reset": True}, "--fire-reset presses action 1"),
    ],
)
def test_what_it_lacks_is_one_sentence(kind: Any, asked: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said) as caught:
        build_env(game_of(kind, **asked))
    assert "\n" not in str(caught.value)


def test_a_no_op_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Named, "names", ("JUMP", "NOOP", "LEFT", "RIGHT"))
    with pytest.raises(UserError, match=r"--noop-max plays action 0 as the one that does nothing, which .* 'JUMP'"):
        build_env(game_of(Named, noop_max=30))
    monkeypatch.setattr(Named, "names", ("NOOP", "FIRE"))  # not one for each action: not believed
    build_env(game_of(Named, noop_max=30))


@pytest.mark.parametrize(
    ("where", "error"),
    [
        ("its constructor", "OSError: no such level"),
        ("reset", "KeyError: 'start'"),
        ("step", "IndexError: list index out of range"),
    ],
)
def test_what_the_environment_raises_is_one_sentence_that_says_where(where: str, error: str) -> None:
    with pytest.raises(RunError) as caught:
        env = Rerun(build_env(game_of(lambda: Breaks(where))), 0)
        while True:
            env.reset()
            while not env.step(0).terminated:
                pass
    said = str(caught.value)
    assert said.startswith(f"The environment tests.helpers.own:made failed in {where}: {error} (own.py, line ")
    assert said.endswith(").")
    assert "\n" not in said


def test_what_is_not_what_the_space_says_is_one_sentence() -> None:
    class Other(Dots):
        def picture(self) -> Any:
            return np.zeros((50, 70, 3), np.float64 if self.count else np.uint8)

    class Old(Dots):
        def step(self, action: Any) -> Any:
            return super().step(action)[:4]

    for kind, said in (
        (Other, r"failed in step: ValueError: it shows float64 .*, but its observation_space says uint8 \(50, 70, 3\)"),
        (Old, r"failed in step: ValueError: not enough values to unpack \(expected 5, got 4\)"),
    ):
        env = build_env(game_of(kind))
        env.reset(seed=0)
        with pytest.raises(RunError, match=said):
            env.step(0)


@pytest.mark.parametrize("reward", [float("nan"), float("inf")])
def test_a_reward_that_is_no_number_is_one_sentence(reward: float) -> None:
    class Endless(Dots):
        def step(self, action: Any) -> Any:
            shown, _, *others = super().step(action)
            return shown, reward, *others

    env = build_env(game_of(Endless))
    env.reset(seed=0)
    with pytest.raises(RunError, match=rf"failed in step: ValueError: its reward is {reward}\.$"):
        env.step(0)


def test_a_reward_may_be_an_array_of_one_number() -> None:
    rewards: list[Any] = [np.array([0.5]), np.array(2), np.float32(0.25), True, np.array([1.0, 2.0])]

    class Paid(Dots):
        def step(self, action: Any) -> Any:
            shown, _, *others = super().step(action)
            return shown, rewards.pop(0), *others

    env = build_env(game_of(Paid))
    env.reset(seed=0)
    assert [env.step(0)[1] for _ in range(4)] == [0.5, 2.0, 0.25, 1.0]
    with pytest.raises(RunError, match=r"failed in step: ValueError: its reward has the shape \(2,\)\.$"):
        env.step(0)


def test_an_environment_that_leaves_is_one_sentence() -> None:
    class Leaves(Dots):
        def step(self, action: Any) -> Any:
            sys.exit(0)

    env = build_env(game_of(Leaves))
    env.reset(seed=0)
    with pytest.raises(RunError, match=r"failed in step: SystemExit: 0 \(test_own\.py, line \d+\)"):
        env.step(0)


@pytest.mark.parametrize(
    ("text", "path", "said"),
    [
        ("", "tests.nowhere:Dots", "ModuleNotFoundError: No module named 'tests.nowhere'."),
        ("", "tests.helpers.own:Dot", "AttributeError: module 'tests.helpers.own' has no attribute 'Dot'."),
        ("", "tests.helpers.own:nothing", "nothing is not a function or class."),
        ("", "math:", "AttributeError: module 'math' has no attribute ''."),
        ("", ":", "ValueError: Empty module name."),
        ("def make(:", "broken_syntax:make", "SyntaxError: invalid syntax (broken_syntax.py, line 1)."),
        ("raise SystemExit", "leaving_import:make", "SystemExit (leaving_import.py, line 1)."),
        ("import os\n1 / 0", "broken_import:make", "ZeroDivisionError: division by zero (broken_import.py, line 2)."),
    ],
)
def test_what_cannot_be_loaded_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, path: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    if text:
        (tmp_path / f"{path.split(':')[0]}.py").write_text(text)
    with pytest.raises(UserError) as caught:
        bare_env(GameOptions(name=path, **OWN_GAME))
    assert str(caught.value) == f"The environment {path!r} cannot be loaded: {said}"


def test_a_file_instead_of_a_module_is_one_sentence() -> None:
    with pytest.raises(UserError, match="name its module as in an import, catch:Catch, from its folder"):
        bare_env(GameOptions(name="envs/catch.py:Catch"))


def test_an_environment_that_was_returned_before_is_one_sentence() -> None:
    """Its games would be played through each other."""
    one = Dots()
    env = build_env(game_of(lambda: gymnasium.wrappers.TimeLimit(one, 9)))
    with pytest.raises(UserError, match="made returned an environment that it had returned before; each game needs"):
        build_env(game_of(lambda: one))
    env.close()


def test_environments_that_are_not_alike_are_one_sentence() -> None:
    made = iter([Dots(), Says(action_space=Discrete(6))])
    with pytest.raises(UserError, match="has other observations or actions each time it is made"):
        build_games(game_of(lambda: next(made)), VectorOptions(num_envs=2), np.random.SeedSequence(5))


def test_code_that_leaves_the_current_folder_does_not_move_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    text = "import os\nfrom tests.helpers.own import Dots\nos.chdir('elsewhere')\ndef make():\n    os.chdir('..')\n"
    (tmp_path / "moving_import.py").write_text(f"{text}    os.chdir('/')\n    return Dots()\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    bare_env(GameOptions(name="moving_import:make", **OWN_GAME))
    assert Path.cwd() == tmp_path
