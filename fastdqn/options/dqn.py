"""Deep Q-learning: its hyper-parameters, and how many env steps there are for each update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fastdqn.errors import UserError, counted
from fastdqn.options.fields import FRAME_SCALES, MOST_THREADS, above_zero, at_least, beside, between

NetworkName = Literal["nature", "narrow", "wide", "der", "dopamine", "tiles"]
AgentName = Literal[
    "post2017",
    "nature",
    "rainbow",
    "dopamine-dqn",
    "dopamine-rainbow",
    "der",
    "der-2021",
    "drq-eps",
    "100k-fast",
    "pong-fast",
]
"""The keys of fastdqn/options/agents.py, which says what each stands for."""


@dataclass(frozen=True)
class DQNOptions:
    """Deep Q-learning. The defaults are the 2017 post's for Pong."""

    agent: AgentName = "post2017"
    """Hyper-parameters by paper, which are the defaults of the options that change what is learnt. Which one is that
    of a script and a game is in docs/agents.md."""
    replay_size: int = 100_000
    """Transitions that the replay holds."""
    replay_initial: int = 10_000
    """Transitions played before the first update."""
    batch_size: int = 32
    """Transitions drawn from the replay for each env step (with --steps N, N times as many for each update)."""
    learning_rate: float = 1e-4
    """Learning rate of the optimiser."""
    gamma: float = 0.99
    """Discount of future rewards for each env step."""
    n_step: int = 1
    """Rewards summed before bootstrapping (Sutton 1988; Rainbow uses 3, the post's 2-step agent 2)."""
    target_sync: int = 1_000
    """Env steps between two copies of the network into the target network."""
    epsilon_start: float = 1.0
    """Probability of a random action at the start."""
    epsilon_final: float = 0.02
    """Probability of a random action at the end of the decay."""
    epsilon_decay: int = 100_000
    """Env steps in which epsilon would fall by 1: epsilon = max(final, start - env_step / decay)."""
    epsilon_delay: int = 0
    """Env steps before epsilon begins to fall (Dopamine waits for its first update)."""
    double: bool = False
    """Let the online network choose the action whose value the target network gives (van Hasselt et al. 2015)."""
    loss: Literal["squared", "clipped"] = "squared"
    """The squared TD error, or half of it with its derivative clipped to -1..1 (Mnih et al. 2015; the Huber loss). With
    --distributional neither: the cross-entropy."""
    optimizer: Literal["adam", "rmsprop"] = "adam"
    """Adam (Kingma & Ba 2015), or centred RMSProp with a decay of 0.95 (Mnih et al. 2015)."""
    adam_epsilon: float = 1e-8
    """Adam's epsilon, added to the root of its second moment (Kingma & Ba 2015; Rainbow uses 1.5e-4)."""
    rmsprop_epsilon: float = 0.01 / 32**2
    """RMSProp's epsilon, added to the variance of the gradient under its root (Mnih et al. 2015: 0.01, for the sum of
    the gradients of 32 transitions; here they are averaged)."""
    weight_decay: float = 0.0
    """Share of every weight but biases that an update takes off, times the learning rate (AdamW, Loshchilov & Hutter
    2019; Schwarzer et al. 2023 take 0.1)."""
    max_norm: float | None = None
    """The gradient is clipped to this norm. None: not at all."""

    def check(self) -> None:
        """Raise UserError for a value out of range, or for values that contradict each other."""
        at_least(self.replay_size, 1, "--replay-size")
        at_least(self.replay_initial, 1, "--replay-initial")
        between(self.batch_size, 1, 2**31, "--batch-size")
        above_zero(self.learning_rate, "--learning-rate")
        between(self.gamma, 0.0, 1.0, "--gamma")
        at_least(self.n_step, 1, "--n-step")
        at_least(self.target_sync, 1, "--target-sync")
        between(self.epsilon_start, 0.0, 1.0, "--epsilon-start")
        between(self.epsilon_final, 0.0, 1.0, "--epsilon-final")
        at_least(self.epsilon_decay, 0, "--epsilon-decay")
        at_least(self.epsilon_delay, 0, "--epsilon-delay")
        above_zero(self.adam_epsilon, "--adam-epsilon")
        above_zero(self.rmsprop_epsilon, "--rmsprop-epsilon")
        above_zero(self.max_norm, "--max-norm")
        between(self.weight_decay, 0.0, 100.0, "--weight-decay")
        if self.weight_decay > 0.0 and self.optimizer != "adam":
            raise UserError("--weight-decay is Adam's; leave it out, or give --optimizer adam.")
        if self.replay_initial > self.replay_size:
            raise UserError(
                f"--replay-initial {self.replay_initial} cannot be more than --replay-size {self.replay_size}; "
                "lower the first or raise the second."
            )
        if self.epsilon_final > self.epsilon_start:
            raise UserError(
                f"--epsilon-final {self.epsilon_final!r} is above --epsilon-start {self.epsilon_start!r}; epsilon only "
                "falls."
            )

    def describe(
        self,
        steps: int,
        moving: str,
        target_average: float | None,
        distributional: bool,
        returns: str | None = None,
        final_gamma: float | None = None,
    ) -> str:
        """Return one line that says what is learnt from, with so many env steps for each update; `moving` is how the
        learning rate does, `returns` are those that take the place of n-step returns and a target network, and
        `final_gamma` is where gamma moves to.
        """
        rate = f"{ {'adam': 'Adam', 'rmsprop': 'RMSProp'}[self.optimizer] } {self.learning_rate:g}"
        pace = f" (batch {steps * self.batch_size} every {steps})" if steps > 1 else ""
        target = f"target copied every {self.target_sync:,} env steps"
        if target_average is not None:
            target = f"target moved by {target_average:g} of the way at each update"
        if returns:
            target = "no target network"
            if target_average is not None:
                target += f", played by an average of the weights, to which each update adds {target_average:g}"
        said = [
            rate + moving,
            "" if self.max_norm is None else f"gradients clipped to {self.max_norm:g}",
            "clipped errors" if self.loss == "clipped" and not distributional else "",
            f"{counted(self.batch_size, 'sample')} for each env step{pace}",
            returns or f"{self.n_step} step{'s' if self.n_step > 1 else ''}",
            f"gamma {self.gamma:g}" if final_gamma is None else f"gamma {self.gamma:g} moving to {final_gamma:g}",
            target,
            f"epsilon {self.epsilon_start:g} to {self.epsilon_final:g}" if self.epsilon_start > 0 else "no epsilon",
        ]
        return f"learns by agent {self.agent}: {', '.join(part for part in said if part)}"


@dataclass(frozen=True)
class PaceOptions:
    """How many env steps there are for each update."""

    steps: int = 4
    """Env steps N played for each update, which is one of --batch-size x N transitions."""

    def check(self) -> None:
        """Raise UserError for a value out of range."""
        at_least(self.steps, 1, "--steps")


@dataclass(frozen=True)
class UpdateOptions:
    """How an update is computed, and what enters the network."""

    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Arithmetic of the network's body; auto is bf16 on GPUs and processors that have instructions for it. The last
    layer, values, targets, loss and optimiser are always float32. With fp32 the convolutions of a CUDA device are TF32,
    as is PyTorch's default. On mps everything is float32."""
    center_frames: bool = False
    """Subtract from every frame the mean frame of the play that fills the replay, so that what moves stands out
    (LeCun et al. 1998, "Efficient BackProp", 4.3: inputs near zero learn faster)."""
    frame_scale: float = 255.0
    """Pixels are divided by this before they enter the network."""
    random_shift: int = 0
    """Pixels by which the frames of an update are padded on each side, by copies of their edges, and then cropped at
    random (Kostrikov et al. 2020: 4)."""
    random_intensity: float = 0.0
    """How much the brightness of the observations of an update varies: 1 plus this times a normal number between -2
    and 2 (Schwarzer et al. 2020: 0.05). With --center-frames what varies is how far they are from the mean frame."""
    final_learning_rate: float | None = None
    """Learning rate of the optimiser at the end of --learning-rate-decay. None: it stays as it is."""
    learning_rate_decay: int = 250_000
    """Env steps over which the learning rate moves to --final-learning-rate, in a straight line."""
    learning_rate_restart: int | None = None
    """Env steps after which --learning-rate-decay begins anew at --learning-rate, again and again (warm restarts:
    Loshchilov & Hutter 2017, "SGDR"). None: it moves once."""
    crowded_threads: int | None = beside(None)
    """CPU threads that PyTorch trains with while other processes use this machine's cores; by default one where that
    changes no bit of what is learnt, and --threads elsewhere. A run that changes them elsewhere does not repeat."""

    def moving(self) -> str:
        """Return how the learning rate moves, to be said behind it; nothing if it stays."""
        if self.final_learning_rate is None:
            return ""
        again = "" if self.learning_rate_restart is None else f", anew every {self.learning_rate_restart:,} env steps"
        return f" moving to {self.final_learning_rate:g}{again}"

    def check(self) -> None:
        """Raise UserError for a value out of range."""
        between(self.frame_scale, *FRAME_SCALES, "--frame-scale")
        between(self.random_shift, 0, 100, "--random-shift")
        between(self.random_intensity, 0.0, 0.49, "--random-intensity")
        above_zero(self.final_learning_rate, "--final-learning-rate")
        at_least(self.learning_rate_decay, 1, "--learning-rate-decay")
        restart, decay = self.learning_rate_restart, self.learning_rate_decay
        if restart is not None and restart < decay:
            raise UserError(
                f"--learning-rate-restart must be at least --learning-rate-decay, here {decay:,}, or None, not "
                f"{restart:,}."
            )
        between(self.crowded_threads, 1, MOST_THREADS, "--crowded-threads")


@dataclass(frozen=True)
class AgentOptions:
    """The agent beside Rainbow's parts: its network, its target network, and reports on what is inside."""

    network: NetworkName = "nature"
    """Nature DQN's network; one half as wide throughout, with a third of its arithmetic; one twice as wide; that of
    Data-efficient Rainbow, with a sixth (van Hasselt et al. 2019); Dopamine's, whose convolutions are padded and whose
    dueling streams share their hidden layer (Agarwal et al. 2021); or tiles, two convolutions that read every pixel
    once."""
    init: Literal["pytorch", "xavier", "dopamine"] = "pytorch"
    """Initial weights, except of noisy layers: PyTorch's uniform numbers; those of Xavier, larger where a layer
    has few outputs, and biases of 0 (Glorot & Bengio 2010); or those of Dopamine's Rainbow, a third larger than
    PyTorch's, and biases of 0."""
    target_average: float | None = None
    """Move the target network by this share towards the online one at each update, instead of copying it every
    --target-sync env steps (Lillicrap et al. 2016; Schwarzer et al. 2023 take 0.005). With --trace-decay and --act-with
    target it only plays, and gives the values that returns are made of."""
    act_with: Literal["online", "target"] = "online"
    """The network that plays; an averaged target network changes its mind less often (Schwarzer et al. 2023)."""
    report_env_steps: int = beside(20_000)
    """Env steps between two reports on what is inside: the mean value of held-out states, the signal-to-noise ratio of
    noisy layers, priorities, atoms."""
    held_out: int = beside(1_000)
    """States whose mean value is reported (the 2017 post takes 1,000); a resumed run keeps those that it had."""

    def describe(self) -> str:
        """Return a few words about the network."""
        weights = "" if self.init == "pytorch" else f" with initial weights by {self.init}"
        return f"{self.network} network{weights}"

    def check(self) -> None:
        """Raise UserError for a value out of range."""
        if self.target_average is not None and not 0.0 < self.target_average <= 1.0:
            raise UserError(f"--target-average must be above 0 and at most 1, not {self.target_average:g}.")
        at_least(self.report_env_steps, 1, "--report-env-steps")
        between(self.held_out, 1, 100_000, "--held-out")
