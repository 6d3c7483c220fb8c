"""Games of our own with an emulator's interface: Catch, learnt in a minute, and Counter, which labels its frames.

They have the parts of ale_py.ALEInterface and ale_py.AtariEnv that the wrappers use, so a toy is played
through the very wrappers, players and scripts that Atari is played through (`--game tests.helpers.toys:Catch`).
"""

from __future__ import annotations

import gc
import os
import time
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box, Discrete

HEIGHT, WIDTH = 210, 160


class ToyEmulator:
    """The emulator's interface; a game overrides `start`, `tick` and `draw`."""

    meanings = ("NOOP", "FIRE", "RIGHT", "LEFT")
    first_lives = 0

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.max_frames = 108_000
        self.frames = 0
        self.over = False
        self.remaining = self.first_lives

    def start(self) -> None: ...

    def tick(self, action: int) -> float:
        raise NotImplementedError

    def draw(self, screen: np.ndarray) -> None: ...

    def reset_game(self) -> None:
        self.frames, self.over, self.remaining = 0, False, self.first_lives
        self.start()

    def act(self, action: int) -> float:
        assert not self.game_over(), "an emulator is never played on after the end of a game"
        self.frames += 1
        return float(self.tick(action))

    def game_over(self, *, with_truncation: bool = True) -> bool:
        return self.over or (with_truncation and self.game_truncated())

    def game_truncated(self) -> bool:
        return self.frames >= self.max_frames

    def lives(self) -> int:
        return self.remaining

    def getScreenRGB(self, buffer: np.ndarray) -> np.ndarray:  # noqa: N802
        buffer[:] = 0
        self.draw(buffer)
        return buffer

    def getMinimalActionSet(self) -> list[int]:  # noqa: N802
        return list(range(len(self.meanings)))

    def getLegalActionSet(self) -> list[int]:  # noqa: N802
        return list(range(len(self.meanings)))


class ToyEnv(gymnasium.Env[Any, Any]):
    """An emulator as a Gymnasium environment, one frame for each step, like ale_py.AtariEnv."""

    def __init__(self, emulator: ToyEmulator) -> None:
        self.ale = emulator
        self.action_space = Discrete(len(emulator.meanings))
        self.observation_space = Box(0, 255, (HEIGHT, WIDTH, 3), np.uint8)

    def get_action_meanings(self) -> list[str]:
        return list(self.ale.meanings)

    def _obs(self) -> np.ndarray:
        return self.ale.getScreenRGB(np.zeros((HEIGHT, WIDTH, 3), np.uint8))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.ale.rng = np.random.default_rng(seed)
        self.ale.reset_game()
        return self._obs(), {"lives": self.ale.lives()}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = self.ale.act(int(action))
        over = self.ale.game_over(with_truncation=False)
        return self._obs(), reward, over, self.ale.game_truncated(), {"lives": self.ale.lives()}


class CatchEmulator(ToyEmulator):
    """A ball falls, a paddle below it can move one column for each env step; +1 for a catch, -1 for a miss.

    The ball waits at the top until FIRE. It falls one of 5 rows, the paddle moves one of 5 columns, every 4 frames.
    The reward comes with the last row only, while up to 4 moves before it decide about it: who does not bootstrap
    learns the last move alone.
    """

    ROWS, COLUMNS, TICKS = 5, 5, 4

    def start(self) -> None:
        self.waiting = True
        self.count = 0
        self.row = 0
        self.ball = int(self.rng.integers(self.COLUMNS))
        self.paddle = int(self.rng.integers(self.COLUMNS))

    def tick(self, action: int) -> float:
        if self.waiting:
            self.waiting = action != 1
            return 0.0
        self.count += 1
        if self.count % self.TICKS:
            return 0.0
        self.paddle = min(self.COLUMNS - 1, max(0, self.paddle + (0, 0, 1, -1)[action]))
        self.row += 1
        if self.row < self.ROWS:
            return 0.0
        self.over = True
        return 1.0 if self.ball == self.paddle else -1.0

    def draw(self, screen: np.ndarray) -> None:
        cell = WIDTH // self.COLUMNS
        top = 40 + 26 * min(self.row, self.ROWS - 1)
        screen[top : top + 20, self.ball * cell : (self.ball + 1) * cell] = 255
        screen[170:190, self.paddle * cell : (self.paddle + 1) * cell] = 180


class CounterEmulator(ToyEmulator):
    """Its screen shows the number of the frame since the very first, in bits; its reward is that number, too.

    With it every transition can be told from every other, wherever it turns up. A game lasts 37 frames and has 3 lives;
    there is no FIRE.
    """

    meanings = ("NOOP", "UP", "RIGHT", "LEFT")
    first_lives = 3
    BITS = 16

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def tick(self, action: int) -> float:
        self.total += 1
        if self.frames in (11, 23):
            self.remaining -= 1
        self.over = self.frames >= 37
        return float(self.total)

    def draw(self, screen: np.ndarray) -> None:
        for bit in range(self.BITS):
            if self.total >> bit & 1:
                screen[40:170, bit * 10 : (bit + 1) * 10] = 255


def frame_number(frame: np.ndarray) -> int:
    """Read a CounterEmulator's number from an 84x84 frame."""
    row = np.asarray(frame).reshape(84, 84)[42]
    return sum(int(row[int((bit + 0.5) * 84 / 16)] > 128) << bit for bit in range(CounterEmulator.BITS))


class FaultyEmulator(CounterEmulator):
    """A Counter that fails in its 300th frame, or that which TOY_FRAME names, in the way that the environment variable
    TOY_FAULT names; in the rank that TOY_RANK names, if it does.
    """

    def tick(self, action: int) -> float:
        now = self.total == int(os.environ.get("TOY_FRAME", "300"))
        if now and os.environ.get("TOY_RANK") in (None, os.environ.get("RANK")):
            fault = os.environ.get("TOY_FAULT", "raise")
            if fault == "raise":
                raise RuntimeError("the toy emulator broke as it was told to")
            if fault == "kill":
                os.kill(os.getpid(), 9)
            if fault == "hang":
                time.sleep(3600)
            if fault in ("weight", "moment"):
                drift(fault == "moment")
        return super().tick(action)


def drift(of_a_moment: bool) -> None:
    """Change a bit of what this process learns: of its last weight, or of that one's second moment."""
    (optimizer,) = [one for one in gc.get_objects() if issubclass(type(one), torch.optim.Optimizer)]
    weight = optimizer.param_groups[0]["params"][-1]
    changed = optimizer.state[weight]["exp_avg_sq"] if of_a_moment else weight.detach()
    changed.view(torch.int32)[0] ^= 1 << 20  # lower ones of a moment are soon rounded away


def Catch() -> ToyEnv:  # noqa: N802
    return ToyEnv(CatchEmulator())


def Counter() -> ToyEnv:  # noqa: N802
    return ToyEnv(CounterEmulator())


def Faulty() -> ToyEnv:  # noqa: N802
    return ToyEnv(FaultyEmulator())


class SlowCounterEmulator(CounterEmulator):
    """A Counter whose frames take 2 ms each."""

    def tick(self, action: int) -> float:
        time.sleep(0.002)
        return super().tick(action)


def SlowCounter() -> ToyEnv:  # noqa: N802
    return ToyEnv(SlowCounterEmulator())
