"""Resets of an agent that makes many updates on few env steps, and the horizon that grows after each."""

from __future__ import annotations

from dataclasses import dataclass

from fastdqn.errors import UserError
from fastdqn.options.fields import at_least, between


@dataclass(frozen=True)
class ResetOptions:
    """Resets, and a horizon that grows after each (Schwarzer et al. 2023, "Bigger, Better, Faster"). All off."""

    reset_updates: int | None = None
    """Updates between two resets: the convolutions keep a part of their weights, all other layers begin anew, and so do
    the optimiser's moments (Nikishin et al. 2022; D'Oro et al. 2023). By default none."""
    reset_keep: float = 0.5
    """Share of the convolutions' weights that a reset keeps; the rest are new ones (Ash & Adams 2020, "shrink and
    perturb"; Schwarzer et al. 2023: 0.5)."""
    reset_until: int | None = None
    """Updates after which there is no reset any more, so that the last one has time to pay; by default all of them."""
    first_n_step: int | None = None
    """Rewards summed before bootstrapping at the start and after each reset, from where they move to --n-step
    (Schwarzer et al. 2023: 10, to 3). By default always --n-step."""
    first_gamma: float | None = None
    """Discount at the start and after each reset, from where it moves to --gamma (Schwarzer et al. 2023: 0.97, to
    0.997). By default always --gamma."""
    horizon_updates: int = 10_000
    """Updates in which n-step and gamma move from --first-n-step and --first-gamma, each by the same factor in every
    update."""

    def describe(self, n_step: int, gamma: float) -> tuple[str, ...]:
        """Return what is said of resets and of a horizon that moves to `n_step` and `gamma`; nothing of what is off."""
        notes: list[str] = []
        if self.reset_updates is not None:
            until = "" if self.reset_until is None else f" until update {self.reset_until:,}"
            kept = f"of the convolutions {self.reset_keep:.0%} is kept, and of all else nothing"
            notes.append(f"begins anew every {self.reset_updates:,} updates{until}: {kept}")
        if self.first_n_step is not None or self.first_gamma is not None:
            first_gamma = gamma if self.first_gamma is None else self.first_gamma
            first = f"{self.first_n_step or n_step} steps and gamma {first_gamma:g}"
            last = f"{n_step} and {gamma:g} within {self.horizon_updates:,} updates"
            notes.append(f"{first} at first{', and after each of these,' if self.reset_updates else ''} become {last}")
        return tuple(notes)

    def check(self) -> None:
        """Raise UserError for a value out of range."""
        at_least(self.reset_updates, 1, "--reset-updates")
        between(self.reset_keep, 0.0, 1.0, "--reset-keep")
        at_least(self.reset_until, 1, "--reset-until")
        if self.reset_updates is not None and self.reset_until is not None and self.reset_until < self.reset_updates:
            raise UserError(
                f"--reset-until {self.reset_until} is before the first reset, at update {self.reset_updates} "
                "(--reset-updates), so that there would be none."
            )
        at_least(self.first_n_step, 1, "--first-n-step")
        if self.first_gamma is not None and not 0.0 <= self.first_gamma < 1.0:
            raise UserError(f"--first-gamma must be at least 0 and below 1, not {self.first_gamma:g}.")
        at_least(self.horizon_updates, 1, "--horizon-updates")
