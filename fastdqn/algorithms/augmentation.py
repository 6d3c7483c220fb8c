"""Augmentation: observations that are moved and brightened by chance before they are learnt from."""

from __future__ import annotations

import torch
from torch import Tensor


class Augmentation:
    """Random shifts (Kostrikov et al. 2020, "DrQ") and intensities (Schwarzer et al. 2020), drawn for each observation.

    A shift pads every frame of an observation by copies of its edge and crops it at a random place, the same for all of
    them. Places are those of google/dopamine's DrQ, 0 to 2 * `shift` - 1 from the upper left corner.

    Args:
        shift: pixels padded on each side; 0 for no shifts.
        intensity: s of a factor 1 + s * clip(N(0, 1), -2, 2) for each observation; 0 for none.
    """

    def __init__(self, shift: int, intensity: float) -> None:
        self._shift = shift
        self._intensity = intensity

    def shifted(self, obs: Tensor, generator: torch.Generator) -> Tensor:
        """Return observations (B, C, H, W) uint8 that are shifted, in the same layout, on a GPU with channels last."""
        if self._shift == 0:
            return obs
        if obs.device.type == "cuda":
            obs = obs.contiguous(memory_format=torch.channels_last)
        count, channels, height, width = obs.shape
        kind = torch.int32 if count * height * width < 2**31 else torch.int64  # half the bytes, where they are enough
        drawn = torch.randint(2 * self._shift, (2, count, 1), generator=generator, device=generator.device)
        row, column = (drawn - self._shift).to(obs.device, kind)
        rows = (row + torch.arange(height, device=obs.device, dtype=kind)).clamp_(0, height - 1)  # (B, H)
        columns = (column + torch.arange(width, device=obs.device, dtype=kind)).clamp_(0, width - 1)  # (B, W)
        game = torch.arange(count, device=obs.device, dtype=kind).unsqueeze(1) * height
        place = (((game + rows) * width).unsqueeze(2) + columns.unsqueeze(1)).view(-1)  # (B * H * W,)
        if channels > 1 and obs.is_contiguous(memory_format=torch.channels_last):
            pixels = obs.permute(0, 2, 3, 1).reshape(-1, channels)
            if channels == 4:  # as one number, which is moved sooner
                moved = pixels.view(torch.int32).view(-1).index_select(0, place).view(torch.uint8)
            else:
                moved = pixels.index_select(0, place)
            return moved.view(count, height, width, channels).permute(0, 3, 1, 2)
        pixels = obs.transpose(0, 1).reshape(channels, -1)
        return pixels.index_select(1, place).view(channels, count, height, width).transpose(0, 1).contiguous()

    def factors(self, count: int, generator: torch.Generator) -> Tensor | None:
        """Return the factors (B, 1, 1, 1) float32 on the generator's device, None if there are none."""
        if self._intensity == 0.0:
            return None
        drawn = torch.randn((count, 1, 1, 1), generator=generator, device=generator.device)
        return 1.0 + self._intensity * drawn.clamp_(-2.0, 2.0)
