"""Watching an agent: one game as a video, with the values that it gives to its actions beside the screen if asked."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from fastdqn import process
from fastdqn.algorithms.a2c import A2CLearner
from fastdqn.algorithms.sac import SACLearner
from fastdqn.envs.boxes import BoxEnv
from fastdqn.envs.build import PlayEnv, build_env
from fastdqn.envs.opencv import OpenCVAtari
from fastdqn.envs.own import OwnEnv
from fastdqn.errors import RunError, UserError
from fastdqn.tools.evaluate import Agent, best_actions, explored, side_of
from fastdqn.tools.seats import View
from fastdqn.types import Frame

FRAMES_PER_SECOND = 60  # of the emulator
OWN_FRAMES_PER_SECOND = 30  # of an environment of one's own whose metadata has no render_fps
ENDINGS = (".mp4", ".gif")
ZOOM = 3
OWN_SIDE = 480  # pixels that the longer side of a picture of one's own is zoomed to, or nearly
PANEL = 220  # pixels beside the screen
ROW = 22  # pixels of a value, at least
GIF_ENV_STEPS = 1_500  # a GIF is kept in memory until it is whole


class Watched(NamedTuple):
    """One game that was recorded."""

    score: float
    env_steps: int
    over: bool  # whether it was played to its end
    out: Path = Path()  # the video: beside the one that was asked for where that was there and this one was stopped


def record(agent: Agent, out: Path, seed: int, epsilon: float, values: bool, max_env_steps: int) -> Watched:
    """Play one game, to its end or for `max_env_steps`, into a video at the game's own speed.

    Args:
        agent: from `load_agent`.
        out: the video, .mp4 or .gif.
        seed: of the game and of exploration.
        epsilon: share of random actions.
        values: draw the value, or the probability, of each action beside the screen, or the numbers of a continuous
            one.
        max_env_steps: longest video, at least one env step.

    Raises:
        UserError: the ending of `out` is not known, or the video would be empty.
        RunError: the video cannot be written, or an environment of one's own fails.
    """
    if max_env_steps < 1:
        raise UserError(f"A video has at least one env step, not {max_env_steps}.")
    ending = out.suffix.lower()
    if ending not in ENDINGS:
        raise UserError(f"The video {out} must end in {' or '.join(ENDINGS)}.")
    if not out.name.isprintable():  # nor do bytes that are no text: FFmpeg would break down
        raise UserError("The name of the video must be text.")
    if out.is_dir():
        raise RunError(f"The video {out} cannot be written: it is a folder.")
    if not out.parent.is_dir():
        raise RunError(f"The video {out} cannot be written: there is no folder {out.parent}.")
    if not os.access(out.parent, os.W_OK):
        raise RunError(f"The video {out} cannot be written: {out.parent} is read-only.")
    game = dataclasses.replace(agent.options.game, clip_rewards=False)
    env = build_env(game, agent.wrappers or "opencv", side_of(agent.options), agent.options.continuous, drawn=True)
    if ending == ".gif":
        max_env_steps = min(max_env_steps, GIF_ENV_STEPS)
    stands = [Watched(0.0, 0, False)]

    def pictures() -> Generator[Frame]:
        for picture, stand in _play(agent, env, seed, epsilon, values, max_env_steps):
            stands[0] = stand
            yield picture

    bare = env.unwrapped
    own = isinstance(bare, OwnEnv)
    speed = bare.metadata.get("render_fps") or OWN_FRAMES_PER_SECOND if own else FRAMES_PER_SECOND
    rate = max(1, round(speed / game.frame_skip))
    unfinished = out.with_name(f".{out.stem}.{os.getpid()}.unfinished{ending}")
    try:
        (_write_gif if ending == ".gif" else _write_mp4)(unfinished, out, pictures(), rate)
        if process.stop_signal() and not stands[0].over and out.exists():
            out = out.with_name(f"{out.stem}-stopped{out.suffix}")  # what is there is whole
        unfinished.replace(out)
    finally:
        unfinished.unlink(missing_ok=True)
    return stands[0]._replace(out=out)


def _play(
    agent: Agent, env: PlayEnv, seed: int, epsilon: float, values: bool, max_env_steps: int
) -> Generator[tuple[Frame, Watched]]:
    """Yield the RGB picture (H, W, 3) after each env step, and how the game stands."""
    rng = np.random.default_rng([seed, 2])
    device = next(agent.learner.network.parameters()).device
    bare: Any = env.env if isinstance(env, OpenCVAtari) else env.unwrapped
    names: list[str] = bare.get_action_meanings()
    view = View(agent.wrappers is None)
    shown = view.first(env.reset(seed=seed)[0])
    finished: Any = env.get_wrapper_attr("pop_finished")
    finished()
    score = 0.0
    agent.learner.noise.manual_seed(seed)
    for env_step in range(1, max_env_steps + 1):
        q, action = _chosen(agent, torch.from_numpy(shown).unsqueeze(0).to(device), epsilon, rng)
        obs, reward, terminated, truncated, _ = env.step(action)
        score += float(reward)
        picture = _screen(bare)
        if values:
            picture = np.concatenate([picture, _panel(q, action, names, picture.shape[0], score)], axis=1)
        over = bool(finished())  # a lost life ends an episode, not the game
        yield picture, Watched(score, env_step, over)
        if over or process.stop_signal():
            return
        shown = view.first(env.reset()[0]) if terminated or truncated else view.next(obs)


def _chosen(
    agent: Agent, obs: torch.Tensor, epsilon: float, rng: np.random.Generator
) -> tuple[NDArray[np.float32], Any]:
    """Return the values of the actions (A,), for an actor-critic their probabilities, of a continuous action its
    numbers, and the action to play, for one `obs`.
    """
    learner = agent.learner
    if isinstance(learner, SACLearner) or (isinstance(learner, A2CLearner) and not learner.policy.numbered):
        action = explored(best_actions(learner, obs), agent.num_actions, epsilon, rng)[0]
        return action.clip(-1.0, 1.0), action
    if isinstance(learner, A2CLearner):
        q, action = learner.policy.probabilities(obs)[0].cpu().numpy(), int(learner.act(obs).item())
    else:
        with torch.no_grad():
            learner.draw_noise()
            q = learner.values(obs)[0].cpu().numpy()
        action = int(q.argmax())
    return q, int(rng.integers(agent.num_actions)) if rng.random() < epsilon else action


def _screen(bare: Any) -> Frame:
    """Return what the game shows now, (H, W, 3) RGB, each pixel several times."""
    if not isinstance(bare, OwnEnv):
        return _zoomed(bare.ale.getScreenRGB(), ZOOM)
    picture: Frame = bare.render() if isinstance(bare, BoxEnv) else bare.picture
    height, width = picture.shape[:2]
    screen = np.broadcast_to(picture.reshape(height, width, -1), (height, width, 3))
    screen = _zoomed(screen, max(1, OWN_SIDE // max(height, width)))
    return np.pad(screen, ((0, max(OWN_SIDE - screen.shape[0], screen.shape[0] % 2)), (0, screen.shape[1] % 2), (0, 0)))


def _zoomed(screen: Frame, zoom: int) -> Frame:
    return screen.repeat(zoom, axis=0).repeat(zoom, axis=1)


def _panel(q: NDArray[np.float32], chosen: Any, names: list[str], height: int, score: float) -> Frame:
    """Return a picture (height, PANEL, 3) of the values: a bar for each action, from the lowest to the highest; of a
    continuous action a bar for each number, from -1 to 1. Where there is no room for all it shows the first numbers, or
    the actions with the highest values, and the one that was chosen.
    """
    panel = np.full((height, PANEL, 3), 24, np.uint8)
    continuous = isinstance(chosen, np.ndarray)
    low, high = (-1.0, 1.0) if continuous else (float(q.min()), float(q.max()))
    shown = _shown(q, None if continuous else int(chosen), most=(height - 70) // ROW)
    row = min(48, (height - 70) // len(shown))
    _write(panel, f"score {score:,.10g}", (10, 28), 0.6, 230)
    if len(shown) < len(q):
        _write(panel, f"{len(shown)} of {len(q)}", (10, 42), 0.42, 150)
    for place, i in enumerate(shown):
        value = float(q[i])
        top = 50 + place * row
        share = (value - low) / (high - low) if high > low else 1.0
        color = (90, 200, 120) if not continuous and i == chosen else (90, 120, 170)
        cv2.rectangle(panel, (10, top + row // 2), (10 + int(2 + share * (PANEL - 24)), top + row - 6), color, -1)
        text = f"{names[i]} {value:.3f}"
        _write(panel, text, (10, top + row // 2 - 4), 0.42, 220)
    return panel


def _shown(q: NDArray[np.float32], chosen: int | None, most: int) -> list[int]:
    """Return which of the values (A,) are shown, `most` of them at most, in their order."""
    if len(q) <= most or chosen is None:
        return list(range(min(len(q), most)))
    highest = np.argsort(-q, kind="stable")
    kept = [int(i) for i in highest if i != chosen][: most - 1]
    return sorted([*kept, chosen])


def _write(picture: Frame, text: str, place: tuple[int, int], size: float, gray: int) -> None:
    cv2.putText(picture, text, place, cv2.FONT_HERSHEY_SIMPLEX, size, (gray, gray, gray), 1, cv2.LINE_AA)


def _write_mp4(unfinished: Path, out: Path, pictures: Generator[Frame], rate: int) -> None:
    """Write a video that is to be `out` to a file beside it."""
    writer: Any = None
    place = str(unfinished.absolute())  # a relative one may look like a protocol to FFmpeg
    count = 0
    for picture in pictures:
        count += 1
        if writer is None:
            height, width, _ = picture.shape
            fourcc = cv2.VideoWriter.fourcc(*"mp4v")
            writer = cv2.VideoWriter(place, fourcc, float(rate), (width, height))
            if not writer.isOpened():
                raise RunError(f"The video {out} cannot be written: this OpenCV has no encoder for MP4; try .gif.")
        writer.write(picture[:, :, ::-1])  # OpenCV's channels are blue, green, red
    if writer is not None:
        writer.release()
    if not unfinished.is_file() or int(cv2.VideoCapture(place).get(cv2.CAP_PROP_FRAME_COUNT)) != count:
        raise RunError(f"The video {out} cannot be written: the disk may be full.")


def _write_gif(unfinished: Path, out: Path, pictures: Generator[Frame], rate: int) -> None:
    from PIL import Image

    images = [Image.fromarray(picture[::2, ::2]).quantize(64) for picture in pictures]
    try:
        images[0].save(unfinished, save_all=True, append_images=images[1:], duration=round(1000 / rate), loop=0)
    except OSError as error:
        raise RunError(f"The video {out} cannot be written: {error.strerror or error}.") from error
