"""Rainbow's parts, lambda-returns, and the freeze trials of an agent that wins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from fastdqn.errors import UserError
from fastdqn.options.fields import above_zero, at_least, between

Variant = Literal["dqn", "n-step", "double", "noisy", "prioritized", "dueling", "distributional", "rainbow"]
VARIANTS: tuple[Variant, ...] = get_args(Variant)
"""The eight systems of the 2017 post's author, after Hessel et al. 2017."""


@dataclass(frozen=True)
class PartOptions:
    """Rainbow's parts (Hessel et al. 2017) beside --double and --n-step; any mix of them."""

    dueling: bool = False
    """Value and advantage in two streams (Wang et al. 2016)."""
    noisy: bool = False
    """Explore by noisy layers (Fortunato et al. 2018) instead of epsilon, which is then 0 unless it is given, by the
    agent or with --epsilon-final."""
    noise: Literal["factorised", "independent"] = "factorised"
    """Gaussian noise from one number for each input and output, or one for each weight."""
    noisy_sigma: float | None = None
    """Noise of the layers at the start. None: the paper's, 0.5 (factorised, over sqrt(inputs)) or 0.017."""
    prioritized: bool = False
    """Draw transitions in proportion to their TD error, or to what --priority-measure says with --distributional and
    without --trace-decay (Schaul et al. 2016)."""
    priority_exponent: float = 0.6
    """Alpha: how much the priorities count; 0 is uniform (Schaul et al. 2016, proportional variant)."""
    importance_exponent: float = 0.4
    """Beta at the start: how much of the bias of such draws the importance weights undo (Schaul et al. 2016)."""
    importance_final: float = 1.0
    """Beta at the end."""
    importance_decay: int | None = 100_000
    """Env steps in which beta rises to its end (the 2017 post's author); None for the whole run, to its limit
    --max-env-steps (Schaul et al. 2016)."""
    priority_floor: float = 1e-6
    """Added to every priority (Schaul et al. 2016, epsilon of section 3.3)."""
    priority_measure: Literal["kl", "cross-entropy"] = "kl"
    """What the priority of a distribution is: its KL divergence, 0 where it is right (Hessel et al. 2017), or its
    cross-entropy, which is never less than what is left to chance (Dopamine)."""
    distributional: bool = False
    """Learn the distribution of returns instead of their mean (C51, Bellemare et al. 2017); with --trace-decay each
    return as a histogram around it (HL-Gauss, Farebrother et al. 2024)."""
    atoms: int = 51
    """Atoms of the distribution (Bellemare et al. 2017); with --trace-decay closer together near 0."""
    value_min: float = -10.0
    """The lowest atom (Bellemare et al. 2017)."""
    value_max: float = 10.0
    """The highest atom (Bellemare et al. 2017)."""

    def check(self) -> None:
        """Raise UserError for a value out of range."""
        between(self.noisy_sigma, 0.0, 100.0, "--noisy-sigma")
        between(self.priority_exponent, 0.0, 1.0, "--priority-exponent")
        between(self.importance_exponent, 0.0, 1.0, "--importance-exponent")
        between(self.importance_final, 0.0, 1.0, "--importance-final")
        at_least(self.importance_decay, 1, "--importance-decay")
        above_zero(self.priority_floor, "--priority-floor")
        between(self.priority_floor, 1e-30, 1e30, "--priority-floor")  # of float32
        between(self.atoms, 2, 1_001, "--atoms")
        ends = (self.value_min, self.value_max)
        for end, option in zip(ends, ("--value-min", "--value-max"), strict=True):
            between(end, -1e30, 1e30, option)  # of float32
        if self.value_min >= self.value_max:
            raise UserError(
                f"--value-min {self.value_min!r} must be below --value-max {self.value_max!r}; the atoms lie between."
            )

    def describe(self, network: str, double: bool) -> str:
        """Return one line that says which network there is and which parts are on, with their settings."""
        over = "the whole run" if self.importance_decay is None else f"{self.importance_decay:,} env steps"
        beta = f"beta from {self.importance_exponent:g} to {self.importance_final:g} over {over}"
        if self.importance_exponent == self.importance_final:
            beta = f"beta {self.importance_final:g}"
        measure = " by cross-entropy" if self.distributional and self.priority_measure == "cross-entropy" else ""
        said = [
            network,
            "double" if double else "",
            "dueling" if self.dueling else "",
            f"{self.noise} noise" if self.noisy else "",
            f"prioritized{measure} (alpha {self.priority_exponent:g}, {beta})" if self.prioritized else "",
            f"{self.atoms} atoms from {self.value_min:g} to {self.value_max:g}" if self.distributional else "",
        ]
        return f"parts: {', '.join(part for part in said if part)}"


@dataclass(frozen=True)
class VariantOptions:
    """Which variant."""

    variant: Variant | None = None
    """Which parts are on by default: none, one of them, or all (rainbow), instead of those of the agent; each has an
    option of its own, too."""


@dataclass(frozen=True)
class ReturnOptions:
    """What an agent learns instead of the target network's values."""

    trace_decay: float | None = None
    """Lambda of lambda-returns, of the values that the network gave while it played (Peng & Williams 1996): 0 for one
    step, 1 for whole games. There is no target network then. None: n-step returns and a target network."""
    block_steps: int = 64
    """Env steps of each game after which their returns are computed."""
    refresh_env_steps: int | None = None
    """Env steps after which all returns in the replay are computed anew, with the network that plays then (Daley &
    Amato 2019); a longer replay pays then. None: never."""
    refresh_turns: int = 1
    """Refreshes in which every stored env step is evaluated once. With 4, a refresh evaluates every fourth step of each
    game, another fourth each time, and returns bootstrap at the newly evaluated steps only."""
    refresh_delay: float = 0.0
    """Share of --refresh-env-steps after which the values of a refresh count, from 0 to 0.99; the first has no delay.
    Where PyTorch has one thread and the process another core, they are computed there meanwhile, else at once."""
    final_gamma: float | None = None
    """Discount to which --gamma moves within --learning-rate-decay, when the learning rate does (1 - gamma by the same
    factor each env step): an agent that wins looks further ahead then, and risks less for a point that comes sooner.
    None: it stays."""

    def check(self) -> None:
        """Raise UserError for a value out of range."""
        between(self.trace_decay, 0.0, 1.0, "--trace-decay")
        at_least(self.block_steps, 1, "--block-steps")
        at_least(self.refresh_env_steps, 1, "--refresh-env-steps")
        between(self.refresh_turns, 1, 1_000_000, "--refresh-turns")
        between(self.refresh_delay, 0.0, 0.99, "--refresh-delay")
        if self.final_gamma is not None and not 0.0 <= self.final_gamma < 1.0:
            raise UserError(f"--final-gamma must be at least 0 and below 1, not {self.final_gamma:g}.")

    @property
    def delay(self) -> int:
        """Env steps after which the values of a refresh count."""
        return int(self.refresh_delay * (self.refresh_env_steps or 0))

    def describe(self) -> str:
        """Return a few words about the returns that are learnt."""
        anew = "" if self.refresh_env_steps is None else f", anew every {self.refresh_env_steps:,} env steps"
        anew += f" in {self.refresh_turns} turns" if anew and self.refresh_turns > 1 else ""
        anew += f", in use {self.delay:,} later" if self.delay else ""
        return f"lambda-returns ({self.trace_decay:g}, blocks of {self.block_steps} env steps a game{anew})"


@dataclass(frozen=True)
class FreezeOptions:
    """What changes once the agent wins: its learning rate falls, and while it wins nearly always it does not learn."""

    freeze_share: float | None = None
    """An agent that has won nearly this share (--freeze-slack less) of its last points, rewards above 0 against those
    below, is frozen: it learns nothing, and plays faster, until a sequential test says that it wins less
    than about this share. None: it is never frozen."""
    freeze_slack: float = 0.15
    """A freeze trial begins once the agent has won --freeze-share less this of its last points; a failed one costs
    little."""
    decay_share: float | None = None
    """The learning rate, and gamma, stay until the agent has won this share of its last 100 points; then
    --learning-rate-decay begins. None to begin at once."""

    def describe(self, final_learning_rate: float | None, final_gamma: float | None = None) -> tuple[str, ...]:
        """Return a line that says when learning rate and gamma move to their last values, if they wait for that."""
        moving = {"the learning rate": final_learning_rate, "gamma": final_gamma}
        names = [name for name, final in moving.items() if final is not None]
        if not names or self.decay_share is None:
            return ()
        stay = "stays" if len(names) == 1 else "stay"
        return (f"{' and '.join(names)} {stay} until the agent has won {self.decay_share:.0%} of its last 100 points",)

    def check(self) -> None:
        """Raise UserError for a value out of range."""
        between(self.freeze_share, 0.5, 0.99, "--freeze-share")
        between(self.freeze_slack, 0.0, 1.0, "--freeze-slack")
        between(self.decay_share, 0.0, 1.0, "--decay-share")
