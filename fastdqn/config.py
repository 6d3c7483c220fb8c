"""All settings: frozen dataclasses whose field docstrings become `--help`, and the presets of games.

Defaults live here and nowhere else. `resolve_preset` gives the settings that a game's name implies, the
command line overrides them, and `check` refuses contradictions with a sentence that says what to change.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast, get_args

import tyro

from fastdqn.errors import UserError

WINDOW_EPISODES = 100  # "solved" looks at the mean score of this many finished games
FRAME_BYTES = 84 * 84


@dataclass(frozen=True)
class RunOptions:
    """The run: what, where and for how long."""

    game: str = "pong"
    """A preset (pong, pong-fast, breakout-small, breakout, invaders), any Atari game by name (seaquest, Seaquest,
    SeaquestNoFrameskip-v4, ALE/Seaquest-v5), or module:function for an environment of your own."""
    cuda: bool = False
    """Train on the CUDA device; the same as --device cuda."""
    device: str | None = None
    """Where to train: cpu, cuda, cuda:N, or auto (CUDA if there is one); by default cpu."""
    seed: int = 0
    """Root of all random numbers of the run."""
    max_env_steps: int | None = 3_000_000
    """Stop after this many env steps (4 frames each)."""
    max_minutes: float | None = None
    """Stop after this many minutes since the process began."""
    train_seconds: float | None = None
    """Stop this many seconds after the first update (what bench/fps.py uses)."""
    stop_score: float | None = 18.0
    """Solved, and so done, when the mean raw score of the last 100 games is above this."""
    threads: int | None = None
    """CPU threads that PyTorch learns with; by default one for each core."""
    runs_dir: Path = Path("runs")
    """Where the run's folder is made."""
    resume: str | None = None
    """Go on with a run where its newest checkpoint was taken: its folder, or "latest" for the newest in --runs-dir. Its
    options are the defaults; those that change what is learnt cannot be changed."""
    resume_previous: bool = False
    """Go on from the checkpoint before the newest."""
    checkpoints: bool = True
    """Write checkpoints: at the end, on Ctrl-C, and as often as the next two options say."""
    checkpoint_minutes: float | None = 10.0
    """Minutes between two checkpoints; None for none by the clock."""
    checkpoint_env_steps: int | None = None
    """Env steps between two checkpoints."""
    checkpoint_replay: bool = True
    """Keep the replay in the checkpoints (compressed: about 1 to 3%% of its memory). A run that is resumed without it
    plays --replay-initial env steps before it learns on."""
    wandb: bool = False
    """Log to Weights & Biases, too; offline unless WANDB_MODE says otherwise."""
    trackio: bool = False
    """Log to Trackio, too; on this machine unless TRACKIO_SPACE_ID says otherwise."""
    project: str = "fastdqn"
    """What these two call the project."""
    log_seconds: float | None = None
    """Seconds between progress reports; by default 1 on a terminal and 10 elsewhere."""


@dataclass(frozen=True)
class Protocol:
    """How the game is presented to the agent. The defaults are the 2017 post's."""

    frame_skip: int = 4
    """Frames for which one action is repeated; one env step (Mnih et al. 2015)."""
    noop_max: int = 30
    """A game starts with 1 to this many no-op frames; 0 turns them off (Mnih et al. 2015)."""
    frame_stack: int = 4
    """Frames that make up one observation."""
    episodic_life: bool = True
    """A lost life ends the learning episode; the score stays the whole game's."""
    clip_rewards: bool = True
    """Learn from the sign of the reward; scores stay raw."""
    fire_reset: bool = True
    """Press FIRE after a reset, in games that have it."""
    sticky_actions: float = 0.0
    """Probability that the emulator repeats the previous action (Machado et al. 2018 use 0.25)."""
    full_action_set: bool = False
    """All 18 joystick actions instead of those that the game uses (Machado et al. 2018)."""
    max_frames: int = 108_000
    """A game is truncated after this many frames (108,000 = 30 minutes of play)."""


@dataclass(frozen=True)
class DQNOptions:
    """Deep Q-learning. The defaults are the 2017 post's for Pong."""

    replay_size: int = 100_000
    """Transitions that the replay holds."""
    replay_initial: int = 10_000
    """Transitions played before the first update."""
    batch_size: int = 32
    """Transitions drawn from the replay for each env step (02 and later: times --steps for each update)."""
    learning_rate: float = 1e-4
    """Step size of Adam."""
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
    double: bool = False
    """Let the online network choose the action whose value the target network gives (van Hasselt et al. 2015)."""
    adam_epsilon: float = 1e-8
    """Adam's epsilon, added to the root of its second moment (Kingma & Ba 2015; Rainbow uses 1.5e-4)."""


@dataclass(frozen=True)
class Options:
    """Options that every script of the ladder has."""

    run: Annotated[RunOptions, tyro.conf.arg(name="")] = field(default_factory=RunOptions)
    protocol: Annotated[Protocol, tyro.conf.arg(name="")] = field(default_factory=Protocol)
    dqn: Annotated[DQNOptions, tyro.conf.arg(name="")] = field(default_factory=DQNOptions)

    @property
    def play_steps(self) -> int:
        """Env steps played for each update."""
        return 1


@dataclass(frozen=True)
class PlayStepsOptions(Options):
    """Options of the scripts that play N env steps for each update."""

    steps: int = 4
    """Env steps N played for each update of batch size 32 x N."""

    @property
    def play_steps(self) -> int:
        return self.steps


@dataclass(frozen=True)
class ParallelOptions(PlayStepsOptions):
    """Options of the scripts with a player process."""

    player_device: Literal["same", "cpu"] = "same"
    """Where the player evaluates the network: on the learner's device with the very same weights, or on
    the CPU with a copy that the learner refreshes, and waits for, after each update (for systems without
    CUDA IPC)."""
    player_timeout: float = 60.0
    """Seconds without a transition after which a living player counts as hung."""


@dataclass(frozen=True)
class VectorOptions(PlayStepsOptions):
    """Options of the scripts that play many games at once."""

    num_envs: int | None = None
    """Games N played at once; by default 4 for each core, at least 8 and at most 128."""
    env_threads: int | None = None
    """Threads that the emulators play in; by default one for each core, and no more than games."""
    frame_size: int = 84
    """Side of the square frames that the agent sees; 84 is Nature DQN's."""
    where: bool = False
    """Print at the end where the loop's time went; on a GPU this waits for the device after each part."""


Variant = Literal["dqn", "n-step", "double", "noisy", "prioritized", "dueling", "distributional", "rainbow"]
VARIANTS: tuple[Variant, ...] = get_args(Variant)
"""The eight systems of the 2017 post's author, after Hessel et al. 2017."""
NetworkName = Literal["nature", "slim", "narrow", "small"]


@dataclass(frozen=True)
class PartOptions:
    """Rainbow's parts (Hessel et al. 2017) beside --double and --n-step; any mix of them."""

    dueling: bool = False
    """Value and advantage in two streams (Wang et al. 2016)."""
    noisy: bool = False
    """Explore by noisy layers (Fortunato et al. 2018) instead of epsilon, which is then 0 unless given."""
    noise: Literal["factorised", "independent"] = "factorised"
    """Gaussian noise from one number for each input and output, or one for each weight."""
    noisy_sigma: float | None = None
    """Noise of the layers at the start; by default the paper's, 0.5 (factorised, over sqrt(inputs)) or 0.017."""
    prioritized: bool = False
    """Draw transitions in proportion to their TD error, or to their KL divergence with --distributional (Schaul et al.
    2016)."""
    priority_exponent: float = 0.6
    """Alpha: how much the priorities count; 0 is uniform (Schaul et al. 2016, proportional variant)."""
    importance_exponent: float = 0.4
    """Beta at the start: how much of the bias of such draws the importance weights undo (Schaul et al. 2016)."""
    importance_decay: int = 100_000
    """Env steps in which beta rises to 1 (the 2017 post; Schaul et al. 2016 take the whole run)."""
    priority_floor: float = 1e-6
    """Added to every priority (Schaul et al. 2016, epsilon of section 3.3)."""
    distributional: bool = False
    """Learn the distribution of returns instead of their mean (C51, Bellemare et al. 2017)."""
    atoms: int = 51
    """Atoms of the distribution (Bellemare et al. 2017)."""
    value_min: float = -10.0
    """The lowest atom (Bellemare et al. 2017)."""
    value_max: float = 10.0
    """The highest atom (Bellemare et al. 2017)."""


@dataclass(frozen=True)
class FastOptions(VectorOptions):
    """Options of the scripts with the fastest update."""

    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Arithmetic of the network's body; auto is bf16 on GPUs and processors that have instructions for it. The last
    layer, values, targets, loss and optimiser are always float32. With fp32 the convolutions of a GPU are TF32, as is
    PyTorch's default."""
    center_frames: bool = False
    """Subtract from every frame the mean frame of the play that fills the replay, so that what moves stands out
    (LeCun et al. 1998, "Efficient BackProp", 4.3: inputs near zero learn faster)."""
    frame_scale: float = 255.0
    """Pixels are divided by this before they enter the network."""
    pixel_floor: float | None = None
    """Divide each pixel, instead, by its own standard deviation in the play that fills the replay, plus this many grey
    levels, so that what moves rarely counts as much as what moves always (LeCun et al. 1998, 4.3)."""
    final_learning_rate: float | None = None
    """Step size of Adam at the end of --learning-rate-decay; by default it stays as it is."""
    learning_rate_decay: int = 250_000
    """Env steps over which the step size moves to --final-learning-rate, in a straight line."""


@dataclass(frozen=True)
class AgentOptions(FastOptions):
    """Options of the scripts that know all of Rainbow's parts."""

    parts: Annotated[PartOptions, tyro.conf.arg(name="")] = field(default_factory=PartOptions)
    network: NetworkName = "nature"
    """Nature DQN's network; one with half of the filters in its first layer; one half as wide throughout, with a third
    of its arithmetic; or one with a seventh of it at half the --frame-size."""
    target_average: float | None = None
    """Move the target network by this share towards the online network at each update, instead of copying it each
    --target-sync (Lillicrap et al. 2016; Schwarzer et al. 2023 take 0.005)."""
    act_with: Literal["online", "target"] = "online"
    """The network that plays; an averaged target network changes its mind less often (Schwarzer et al. 2023)."""
    end_at_reward: bool = False
    """Let a reward other than 0 end the return, as a lost life does, so that each point of Pong is learnt on its own
    (Karpathy 2016, "Deep Reinforcement Learning: Pong from Pixels")."""
    gradient_threads: int = 1
    """Gradients computed at a time, each of an update of its own and in a thread of its own, and then applied one after
    the other; on a CPU two are sooner done side by side than each in two threads. They share the --threads, at least
    one each, and the target network is copied between two groups of them. A GPU computes one at a time in any case."""
    report_env_steps: int = 20_000
    """Env steps between two reports on what is inside: the mean value of held-out states, noise, priorities, atoms."""
    held_out: int = 1_000
    """States whose mean value is reported (the 2017 post takes 1,000)."""


AgentT = TypeVar("AgentT", bound=AgentOptions)


@dataclass(frozen=True)
class RainbowOptions(AgentOptions):
    """Options of 10."""

    variant: Variant | Literal["all"] = "dqn"
    """Which parts are on by default: none, one of them, or all (rainbow); each has an option of its own, too. With
    "all" the eight run one after the other, and one picture shows their learning curves."""
    seeds: int = 1
    """Runs of each variant, with the seeds that follow --seed."""


@dataclass(frozen=True)
class RecordOptions(AgentOptions):
    """Options of 11."""

    run: Annotated[RunOptions, tyro.conf.arg(name="")] = field(
        default_factory=lambda: RunOptions(game="pong-fast", device="auto")
    )
    small: bool = False
    """The narrow network, a third of the arithmetic of Nature's; on a CPU its Pong is learnt in one thread, beside the
    games."""
    hold_share: float | None = None
    """An agent that has won nearly this share (--hold-slack less) of its last 48 points, rewards above 0 against those
    below, is held: it learns nothing, and its games are over sooner, until a sequential test says that it wins less
    than about this share. In Pong 0.9 is a score of 18.7. By default none is held."""
    hold_slack: float = 0.15
    """How much less than --hold-share an agent must have won for a trial, which costs little."""
    hold_average: float | None = None
    """Let each second agent that is held, the first included, play with an average of the weights, which each update
    moves by this share towards them; by default all play with the newest weights."""
    hold_epsilon: float = 0.01
    """Probability of a random action while the agent is held, if it is not lower anyway."""


@dataclass(frozen=True)
class Preset:
    """What a game's name implies."""

    game_id: str  # ROM name as ale_py spells it
    dqn: DQNOptions
    stop_score: float | None
    max_env_steps: int | None
    execution: Mapping[str, Any] = field(default_factory=dict[str, Any])  # for scripts that have these options


_BREAKOUT = DQNOptions(
    replay_size=1_000_000,
    replay_initial=50_000,
    epsilon_final=0.1,
    epsilon_decay=1_000_000,
    learning_rate=2.5e-4,
    target_sync=10_000,
)

_PONG_FAST = DQNOptions(
    replay_size=300_000,
    replay_initial=5_000,
    batch_size=2,
    learning_rate=5e-4,
    gamma=0.98,
    n_step=5,
    target_sync=3_200,
    epsilon_final=0.01,
    epsilon_decay=100_000,
)
_PONG_FAST_EXECUTION = {
    "num_envs": 16,
    "steps": 16,
    "center_frames": True,
    "frame_scale": 64.0,
    "final_learning_rate": 1e-4,
    "learning_rate_decay": 250_000,
}

_RECORD: dict[str, Any] = {
    "parts": PartOptions(prioritized=True),
    "learning_rate_decay": 400_000,
    "hold_share": 0.88,
    "hold_slack": 0.23,
    "hold_average": 0.002,
    "hold_epsilon": 0.001,
}

_RECORD_REPLAY = 50_000
_PONG_RECORDS: dict[str, tuple[int, dict[str, Any]]] = {
    "cpu": (4, _RECORD),
    "cuda": (16, _RECORD | {"num_envs": 128, "steps": 32}),
}
"""What differs from pong-fast, by machine: samples for each env step, the rest. The one for CUDA has run on CPUs alone,
where it solves Pong (LOG.md): samples are cheap on a GPU, and 16 for each env step need half of the env steps of 8."""

PRESETS = {
    "pong": Preset("pong", DQNOptions(), 18.0, 3_000_000),
    "pong-fast": Preset("pong", _PONG_FAST, 18.0, 3_000_000, _PONG_FAST_EXECUTION),
    "breakout-small": Preset(
        "breakout",
        dataclasses.replace(
            _BREAKOUT,
            replay_size=300_000,
            replay_initial=20_000,
            learning_rate=1e-4,
            target_sync=1_000,
            batch_size=64,
        ),
        500.0,
        10_000_000,
    ),
    "breakout": Preset("breakout", _BREAKOUT, 500.0, 50_000_000),
    "invaders": Preset("space_invaders", _BREAKOUT, 500.0, 50_000_000),
}
"""The four presets of the 2017 post, and Pong as 09 solves it soonest on two cores (LOG.md).

50 million env steps are Nature DQN's 200 million frames.
"""


def with_variant(options: RainbowOptions, variant: Variant) -> RainbowOptions:
    """Return `options` with everything that the name of the variant implies.

    `n-step` and `rainbow` take 2 steps, as the 2017 post's author did, where the game's preset takes 1.
    """
    everything = variant == "rainbow"
    dqn = options.dqn
    parts = dataclasses.replace(
        options.parts,
        dueling=variant == "dueling" or everything,
        noisy=variant == "noisy" or everything,
        prioritized=variant == "prioritized" or everything,
        distributional=variant == "distributional" or everything,
    )
    dqn = dataclasses.replace(
        dqn,
        double=dqn.double or variant == "double" or everything,
        n_step=max(dqn.n_step, 2) if variant == "n-step" or everything else dqn.n_step,
    )
    return dataclasses.replace(options, variant=variant, dqn=dqn, parts=parts)


def without_epsilon(options: AgentT) -> AgentT:
    """Return `options` as noisy layers want them: without epsilon (Fortunato et al. 2018, section 3)."""
    return dataclasses.replace(options, dqn=dataclasses.replace(options.dqn, epsilon_start=0.0, epsilon_final=0.0))


def with_record(options: RecordOptions, small: bool, cuda: bool) -> RecordOptions:
    """Return `options`, a preset's, with what suits Pong on this kind of machine (LOG.md); other games' as they
    are, but for the network that `small` stands for.
    """
    if small:
        options = dataclasses.replace(options, network="narrow")
    if options.run.game.strip().lower() != "pong-fast":
        return options
    samples, others = _PONG_RECORDS["cuda" if cuda else "cpu"]
    dqn = dataclasses.replace(options.dqn, replay_size=_RECORD_REPLAY, batch_size=samples)
    run = dataclasses.replace(options.run, threads=1) if small and not cuda else options.run
    return dataclasses.replace(options, run=run, dqn=dqn, **others)


def preset_for(name: str, game_id: str) -> Preset:
    """Return the preset called `name` (any case), else the one of the game `game_id`.

    A game without a preset gets Breakout's settings, Nature DQN's replay and schedule, and no stop score.
    """
    if name.strip().lower() in PRESETS:
        return PRESETS[name.strip().lower()]
    special = ("breakout-small", "pong-fast")
    of_game = [preset for key, preset in PRESETS.items() if preset.game_id == game_id and key not in special]
    return of_game[0] if of_game else Preset(game_id, _BREAKOUT, None, 50_000_000)


def _at_least(value: float, low: float, option: str) -> None:
    if not value >= low:  # also catches NaN
        raise UserError(f"{option} must be at least {low:g}, not {value:g}.")


def _between(value: float, low: float, high: float, option: str) -> None:
    if not low <= value <= high:
        raise UserError(f"{option} must be between {low:g} and {high:g}, not {value:g}.")


def check(options: Options) -> None:
    """Raise UserError, in one sentence, for a value out of range or for options that contradict each other."""
    run, protocol, dqn = options.run, options.protocol, options.dqn
    if run.cuda and run.device not in (None, "auto") and not str(run.device).startswith("cuda"):
        raise UserError(f"--cuda and --device {run.device} contradict each other; give one of them.")
    _at_least(run.seed, 0, "--seed")
    if run.max_env_steps is not None:
        _at_least(run.max_env_steps, 1, "--max-env-steps")
    for value, option in (
        (run.max_minutes, "--max-minutes"),
        (run.train_seconds, "--train-seconds"),
        (run.log_seconds, "--log-seconds"),
        (run.checkpoint_minutes, "--checkpoint-minutes"),
    ):
        if value is not None and not value > 0:
            raise UserError(f"{option} must be more than 0, not {value:g}.")
    if run.threads is not None:
        _at_least(run.threads, 1, "--threads")
    if run.checkpoint_env_steps is not None:
        _at_least(run.checkpoint_env_steps, 1, "--checkpoint-env-steps")
    _at_least(protocol.frame_skip, 1, "--frame-skip")
    _at_least(protocol.noop_max, 0, "--noop-max")
    _at_least(protocol.frame_stack, 1, "--frame-stack")
    _between(protocol.sticky_actions, 0.0, 1.0, "--sticky-actions")
    _at_least(protocol.max_frames, 1, "--max-frames")
    _at_least(dqn.replay_size, 1, "--replay-size")
    _at_least(dqn.replay_initial, 1, "--replay-initial")
    _at_least(dqn.batch_size, 1, "--batch-size")
    if not dqn.learning_rate > 0:
        raise UserError(f"--learning-rate must be more than 0, not {dqn.learning_rate:g}.")
    _between(dqn.gamma, 0.0, 1.0, "--gamma")
    _at_least(dqn.n_step, 1, "--n-step")
    _at_least(dqn.target_sync, 1, "--target-sync")
    _between(dqn.epsilon_start, 0.0, 1.0, "--epsilon-start")
    _between(dqn.epsilon_final, 0.0, 1.0, "--epsilon-final")
    _at_least(dqn.epsilon_decay, 0, "--epsilon-decay")
    if dqn.replay_initial > dqn.replay_size:
        raise UserError(
            f"--replay-initial {dqn.replay_initial} cannot be more than --replay-size {dqn.replay_size}; "
            "lower the first or raise the second."
        )
    if dqn.epsilon_final > dqn.epsilon_start:
        raise UserError(
            f"--epsilon-final {dqn.epsilon_final:g} is above --epsilon-start {dqn.epsilon_start:g}; epsilon only falls."
        )
    if isinstance(options, PlayStepsOptions):
        _at_least(options.steps, 1, "--steps")
    first_update = -(-dqn.replay_initial // options.play_steps) * options.play_steps  # the next multiple of N
    if run.max_env_steps is not None and run.max_env_steps <= first_update:
        raise UserError(
            f"--max-env-steps {run.max_env_steps} ends the run before the first update, which waits for "
            f"--replay-initial {dqn.replay_initial} transitions; raise the first or lower the second."
        )
    if options.play_steps > dqn.target_sync:
        raise UserError(
            f"--steps {options.play_steps} cannot be more than --target-sync {dqn.target_sync}: "
            "the target network would miss copies."
        )
    network = options.network if isinstance(options, AgentOptions) else "nature"
    if isinstance(options, VectorOptions):
        if options.num_envs is not None:
            _at_least(options.num_envs, 1, "--num-envs")
        if options.env_threads is not None:
            _at_least(options.env_threads, 1, "--env-threads")
        _between(options.frame_size, 18 if network == "small" else 36, 210, "--frame-size")
    if not dqn.adam_epsilon > 0:
        raise UserError(f"--adam-epsilon must be more than 0, not {dqn.adam_epsilon:g}.")
    if isinstance(options, RainbowOptions):
        _at_least(options.seeds, 1, "--seeds")
    if isinstance(options, AgentOptions):
        _check_parts(options.parts)
        if options.target_average is not None and not 0.0 < options.target_average <= 1.0:
            raise UserError(f"--target-average must be above 0 and at most 1, not {options.target_average:g}.")
        _between(options.gradient_threads, 1, 64, "--gradient-threads")
        if options.gradient_threads > 1:
            _check_gradient_threads(options)
        _at_least(options.report_env_steps, 1, "--report-env-steps")
        _between(options.held_out, 1, 100_000, "--held-out")
    if isinstance(options, FastOptions):
        if not 0 < options.frame_scale < math.inf:
            raise UserError(f"--frame-scale must be a number above 0, not {options.frame_scale:g}.")
        if options.pixel_floor is not None and not options.pixel_floor > 0:
            raise UserError(f"--pixel-floor must be more than 0, not {options.pixel_floor:g}.")
        if options.final_learning_rate is not None and not options.final_learning_rate > 0:
            raise UserError(f"--final-learning-rate must be more than 0, not {options.final_learning_rate:g}.")
        _at_least(options.learning_rate_decay, 1, "--learning-rate-decay")
    if isinstance(options, RecordOptions):
        if options.hold_share is not None:
            _between(options.hold_share, 0.5, 0.99, "--hold-share")
        _between(options.hold_slack, 0.0, 1.0, "--hold-slack")
        if options.hold_average is not None:
            _between(options.hold_average, 1e-6, 1.0, "--hold-average")
            if options.hold_share is None:
                raise UserError("--hold-average cannot be without --hold-share: no agent is held then.")
            if options.act_with == "target":
                raise UserError("--hold-average is of the online network's weights; leave out --act-with target.")
        _between(options.hold_epsilon, 0.0, 1.0, "--hold-epsilon")
    if isinstance(options, ParallelOptions):
        _at_least(options.player_timeout, 1.0, "--player-timeout")


def _check_gradient_threads(options: AgentOptions) -> None:
    group = options.gradient_threads * options.steps
    if options.num_envs is not None and options.num_envs < group:
        raise UserError(
            f"--gradient-threads {options.gradient_threads} needs as many updates in a round of the games, but "
            f"--num-envs {options.num_envs} brings fewer with --steps {options.steps}; it must be at least {group}."
        )
    if group > options.dqn.target_sync:
        raise UserError(
            f"--gradient-threads {options.gradient_threads} times --steps {options.steps} cannot be more than "
            f"--target-sync {options.dqn.target_sync}: the target network would miss copies."
        )


def _check_parts(parts: PartOptions) -> None:
    if parts.noisy_sigma is not None:
        _between(parts.noisy_sigma, 0.0, 100.0, "--noisy-sigma")
    _between(parts.priority_exponent, 0.0, 1.0, "--priority-exponent")
    _between(parts.importance_exponent, 0.0, 1.0, "--importance-exponent")
    _at_least(parts.importance_decay, 1, "--importance-decay")
    if not parts.priority_floor > 0:
        raise UserError(f"--priority-floor must be more than 0, not {parts.priority_floor:g}.")
    _between(parts.atoms, 2, 1_001, "--atoms")
    if not (math.isfinite(parts.value_min) and math.isfinite(parts.value_max) and parts.value_min < parts.value_max):
        raise UserError(
            f"--value-min {parts.value_min:g} must be below --value-max {parts.value_max:g}; the atoms lie between."
        )


SCRIPT_OPTIONS: dict[str, type[Options]] = {
    "01_baseline": Options,
    "02_play_steps": PlayStepsOptions,
    "03_parallel": ParallelOptions,
    "04_cuda_async": ParallelOptions,
    "05_opencv_wrappers": ParallelOptions,
    "06_vector_env": VectorOptions,
    "07_device_replay": VectorOptions,
    "08_overlap": VectorOptions,
    "09_cuda_graph": FastOptions,
    "10_rainbow": RainbowOptions,
    "11_pong_in_seconds": RecordOptions,
}
"""The options that each script of the ladder has."""


def flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return all options of nested groups by their own names."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        found |= flat(cast(Mapping[str, Any], value)) if isinstance(value, dict) else {name: value}
    return found


def options_from(said: Mapping[str, Any]) -> Options:
    """Return the options that a run's config.json holds; those that it does not know yet have their defaults.

    Raises:
        UserError: it is of a script, or has an option, that this version does not know.
    """
    script = str(said.get("script"))
    if script not in SCRIPT_OPTIONS:
        raise UserError(f"This version of fastdqn knows no script called {script!r}.")
    options = _filled(SCRIPT_OPTIONS[script](), {name: value for name, value in said.items() if name != "script"})
    try:
        check(options)
    except (TypeError, AttributeError) as error:
        raise UserError(f"The run's options are damaged: {error}.") from error
    return options


def _filled(default: Any, said: Mapping[str, Any]) -> Any:
    values: dict[str, Any] = {}
    known = {field.name for field in dataclasses.fields(default)}
    for name, value in said.items():
        if name not in known:
            raise UserError(f"The run has an option, {name!r}, that this version of fastdqn does not know.")
        now = getattr(default, name)
        if dataclasses.is_dataclass(now):
            if not isinstance(value, Mapping):
                raise UserError(f"The run's options are damaged: {name!r} is no group of options.")
            values[name] = _filled(now, cast(Mapping[str, Any], value))
        else:
            values[name] = Path(value) if isinstance(now, Path) else value
    return dataclasses.replace(default, **values)
