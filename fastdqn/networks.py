"""Networks: a torso that turns frames into features, and heads that turn features into values."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from fastdqn.errors import UserError


class NatureTorso(nn.Module):
    """The convolutions of Nature DQN (Mnih et al. 2015, Methods, "Model architecture").

    32 filters 8x8 stride 4, 64 filters 4x4 stride 2, 64 filters 3x3 stride 1, each followed by a rectifier.
    Takes uint8 (B, C, H, W), divides it by `frame_scale`, returns float32 (B, features). With `center_frames` a mean
    frame, zero until somebody sets it, is subtracted first; it is part of the state.
    """

    mean_frame: Tensor | None  # (H, W) float32

    def __init__(
        self,
        in_channels: int = 4,
        height: int = 84,
        width: int = 84,
        frame_scale: float = 255.0,
        center_frames: bool = False,
    ) -> None:
        super().__init__()
        self.register_buffer("mean_frame", torch.zeros(height, width) if center_frames else None)
        self._scale = 1.0 / frame_scale
        self.convs = nn.Sequential(
            nn.Conv2d(in_channels, 32, kernel_size=8, stride=4),
            nn.ReLU(),
            nn.Conv2d(32, 64, kernel_size=4, stride=2),
            nn.ReLU(),
            nn.Conv2d(64, 64, kernel_size=3, stride=1),
            nn.ReLU(),
            nn.Flatten(),
        )
        for kernel, stride in ((8, 4), (4, 2), (3, 1)):
            height, width = (height - kernel) // stride + 1, (width - kernel) // stride + 1
        if min(height, width) < 1:
            raise UserError("the Nature network needs frames of at least 36x36 pixels")
        self.features = 64 * height * width

    def forward(self, obs: Tensor) -> Tensor:
        pixels = obs.to(torch.float32, copy=True)
        if self.mean_frame is not None:
            pixels -= self.mean_frame
        return self.convs(pixels.mul_(self._scale))


class NatureQNetwork(nn.Module):
    """Nature DQN's whole network: the torso, 512 rectified units, one value for each action.

    Takes uint8 (B, C, H, W), returns float32 (B, A). Weights start as PyTorch's defaults, drawn from
    `generator` alone, so that a seed fixes them whatever else draws random numbers.
    """

    def __init__(
        self,
        obs_shape: tuple[int, int, int],
        num_actions: int,
        generator: torch.Generator,
        frame_scale: float = 255.0,
        center_frames: bool = False,
    ) -> None:
        super().__init__()
        channels, height, width = obs_shape
        self.torso = NatureTorso(channels, height, width, frame_scale, center_frames)
        self.head = nn.Sequential(nn.Linear(self.torso.features, 512), nn.ReLU(), nn.Linear(512, num_actions))
        _draw_default_weights(self, generator)

    def forward(self, obs: Tensor) -> Tensor:
        hidden = self.head[:-1](self.torso(obs))
        with torch.autocast(obs.device.type, enabled=False):  # Pong's values differ by less than bf16 can tell apart
            return self.head[-1](hidden.float())


def set_mean_frame(network: nn.Module, mean_frame: Tensor) -> None:
    """Let `network` subtract `mean_frame`, (H, W) float32, from its inputs, if it was made to center them."""
    for module in network.modules():
        if isinstance(module, NatureTorso) and module.mean_frame is not None:
            module.mean_frame.copy_(mean_frame)


def use_channels_last(network: nn.Module) -> None:
    """Lay the convolutions of `network` out with channels last (N, H, W, C), in place; values stay the same.

    The frames themselves stay as they are: scaling them with channels last costs 2 ms for 32 stacks on two cores, and
    the first convolution reorders them faster.
    """
    network.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue] - an overload is missing


def _draw_default_weights(module: nn.Module, generator: torch.Generator) -> None:
    """Redraw every Conv2d and Linear as PyTorch does by default: uniform in +-1/sqrt(fan_in)."""
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            bound = 1.0 / math.sqrt(layer.weight[0].numel())
            with torch.no_grad():
                layer.weight.uniform_(-bound, bound, generator=generator)
                if layer.bias is not None:
                    layer.bias.uniform_(-bound, bound, generator=generator)
