"""Watching an agent: one game as a video, with the values that it gives to its actions beside the screen if asked."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from fastdqn.config import Protocol
from fastdqn.envs.make import make_env
from fastdqn.envs.opencv import OpenCVAtari
from fastdqn.errors import RunError, UserError
from fastdqn.evaluate import Agent, side_of
from fastdqn.types import Frame

FRAMES_PER_SECOND = 60  # of the emulator
ENDINGS = (".mp4", ".gif")
ZOOM = 3
PANEL = 220  # pixels beside the screen


class Watched(NamedTuple):
    """One game that was recorded."""

    score: float
    env_steps: int
    over: bool  # whether it was played to its end


def record(agent: Agent, out: Path, seed: int, epsilon: float, values: bool, max_env_steps: int) -> Watched:
    """Play one game, to its end or for `max_env_steps`, into a video at the game's own speed.

    Args:
        agent: from `load_agent`.
        out: the video, .mp4 or .gif.
        seed: of the game and of exploration.
        epsilon: share of random actions.
        values: draw the value of each action beside the screen.
        max_env_steps: longest video.

    Raises:
        UserError: the ending of `out` is not known.
        RunError: the video cannot be written.
    """
    ending = out.suffix.lower()
    if ending not in ENDINGS:
        raise UserError(f"The video {out} must end in {' or '.join(ENDINGS)}.")
    if not out.parent.is_dir():
        raise RunError(f"The video {out} cannot be written: there is no folder {out.parent}.")
    protocol = agent.options.protocol
    env = make_env(agent.options.run.game, _whole_games(agent), "opencv", side_of(agent.options))
    if not isinstance(env, OpenCVAtari):
        raise UserError(f"{agent.options.run.game} has no emulator whose screen could be recorded.")
    stands = [Watched(0.0, 0, False)]

    def pictures() -> Generator[Frame]:
        for picture, stand in _play(agent, env, seed, epsilon, values, max_env_steps):
            stands[0] = stand
            yield picture

    rate = max(1, FRAMES_PER_SECOND // protocol.frame_skip)
    (_write_gif if ending == ".gif" else _write_mp4)(out, pictures(), rate)
    return stands[0]


def _whole_games(agent: Agent) -> Protocol:
    return dataclasses.replace(agent.options.protocol, episodic_life=False, clip_rewards=False)


def _play(
    agent: Agent, env: OpenCVAtari, seed: int, epsilon: float, values: bool, max_env_steps: int
) -> Generator[tuple[Frame, Watched]]:
    """Yield the RGB picture (H, W, 3) after each env step, and how the game stands."""
    rng = np.random.default_rng([seed, 2])
    device = next(agent.learner.network.parameters()).device
    names = env.env.get_wrapper_attr("get_action_meanings")()
    screen = np.zeros(env.env.observation_space.shape or (210, 160, 3), np.uint8)
    obs, _ = env.reset(seed=seed)
    score = 0.0
    for env_step in range(1, max_env_steps + 1):
        with torch.no_grad():
            agent.learner.draw_noise()
            q = agent.learner.values(torch.from_numpy(np.asarray(obs)).unsqueeze(0).to(device))[0].cpu().numpy()
        action = int(rng.integers(agent.num_actions)) if rng.random() < epsilon else int(q.argmax())
        obs, reward, terminated, truncated, _ = env.step(action)
        score += reward
        env.ale.getScreenRGB(screen)
        picture = screen.repeat(ZOOM, axis=0).repeat(ZOOM, axis=1)
        if values:
            picture = np.concatenate([picture, _panel(q, action, names, picture.shape[0], score)], axis=1)
        over = terminated or truncated
        yield picture, Watched(score, env_step, over)
        if over:
            return


def _panel(q: NDArray[np.float32], chosen: int, names: list[str], height: int, score: float) -> Frame:
    """Return a picture (height, PANEL, 3) of the values: a bar for each action, from the lowest to the highest."""
    panel = np.full((height, PANEL, 3), 24, np.uint8)
    low, high = float(q.min()), float(q.max())
    row = min(48, (height - 70) // len(q))
    _write(panel, f"score {score:g}", (10, 28), 0.6)
    for i, value in enumerate(q.tolist()):
        top = 50 + i * row
        share = (value - low) / (high - low) if high > low else 1.0
        color = (90, 200, 120) if i == chosen else (90, 120, 170)
        cv2.rectangle(panel, (10, top + row // 2), (10 + int(2 + share * (PANEL - 24)), top + row - 6), color, -1)
        text = f"{names[i]} {value:.3f}"
        cv2.putText(
            panel, text, (10, top + row // 2 - 4), cv2.FONT_HERSHEY_SIMPLEX, 0.42, (220, 220, 220), 1, cv2.LINE_AA
        )
    return panel


def _write(picture: Frame, text: str, place: tuple[int, int], size: float) -> None:
    cv2.putText(picture, text, place, cv2.FONT_HERSHEY_SIMPLEX, size, (230, 230, 230), 1, cv2.LINE_AA)


def _write_mp4(out: Path, pictures: Generator[Frame], rate: int) -> None:
    writer: Any = None
    for picture in pictures:
        if writer is None:
            height, width, _ = picture.shape
            fourcc = cv2.VideoWriter.fourcc(*"mp4v")
            writer = cv2.VideoWriter(str(out), fourcc, float(rate), (width, height))
            if not writer.isOpened():
                raise RunError(f"The video {out} cannot be written: this OpenCV has no encoder for MP4; try .gif.")
        writer.write(picture[:, :, ::-1])  # OpenCV's channels are blue, green, red
    if writer is not None:
        writer.release()
    if not out.is_file() or out.stat().st_size == 0:
        raise RunError(f"The video {out} cannot be written.")


def _write_gif(out: Path, pictures: Generator[Frame], rate: int) -> None:
    from PIL import Image

    images = [Image.fromarray(picture[::2, ::2]).quantize(64) for picture in pictures]
    try:
        images[0].save(out, save_all=True, append_images=images[1:], duration=round(1000 / rate), loop=0)
    except OSError as error:
        raise RunError(f"The video {out} cannot be written: {error.strerror or error}.") from error
