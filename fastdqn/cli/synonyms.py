"""What other trainers call options that fastdqn has by another name, and where the two count differently.

The names are those of CleanRL, Stable-Baselines3 and its zoo, Dopamine, Tianshou, and Rainbow by Kaixhin.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple


class Synonym(NamedTuple):
    """What an option of fastdqn is called elsewhere."""

    ours: str
    others: str  # names, without dashes in front
    differs: str = ""  # what to know before the value is copied
    beside: str = ""  # an option that there must be, too


_ENV_STEPS = "which counts env steps, of 4 frames each in Atari's games"
_FRAMES = "which counts env steps, of --frame-skip frames each"
_DECAY = "the env steps in which epsilon falls by 1, not a share of the run"
_SYNC = "which counts env steps, not updates"
_EVERY = "train-frequency train-freq update-frequency update-freq update-period replay-frequency"
_TABLE = (
    Synonym("--game", "env env-id env-name environment task rom game-name"),
    Synonym("--agent", "algo alg"),
    Synonym("--max-env-steps", "total-timesteps total-steps num-timesteps n-timesteps timesteps", _ENV_STEPS),
    Synonym("--rollout-steps", "num-steps n-steps", "which counts the steps of each game"),
    Synonym("--n-step", "num-steps", "which counts the steps of each game", "--value-weight"),
    Synonym("--max-env-steps", "num-steps max-steps max-timesteps t-max", _ENV_STEPS),
    Synonym("--max-env-steps", "total-frames num-frames max-num-frames", _FRAMES, "--frame-skip"),
    Synonym("--max-env-steps", "total-frames num-frames max-num-frames", "which counts env steps"),
    Synonym("--max-minutes", "max-time time-limit minutes", "which counts from the start of the process"),
    Synonym("--stop-score", "target-score reward-threshold solved-score target-reward"),
    Synonym("--learning-rate", "lr adam-lr step-size"),
    Synonym("--adam-epsilon", "adam-eps opt-eps optimizer-eps optimizer-epsilon"),
    Synonym(
        "--batch-size", "batch minibatch-size mini-batch-size", "for each env step: --steps multiplies it", "--steps"
    ),
    Synonym("--batch-size", "batch minibatch-size mini-batch-size"),
    Synonym("--gamma", "discount discount-factor discount-rate"),
    Synonym("--replay-size", "buffer-size replay-buffer-size replay-capacity memory-capacity memory-size"),
    Synonym("--replay-initial", "learning-starts learn-start min-replay-history warmup-steps start-timesteps"),
    Synonym("--epsilon-decay", "exploration-fraction exploration-steps eps-decay epsilon-decay-period", _DECAY),
    Synonym("--epsilon-start", "start-e eps-start exploration-initial-eps initial-epsilon"),
    Synonym("--epsilon-final", "end-e eps-end exploration-final-eps final-epsilon epsilon-train"),
    Synonym("--target-sync", "target-network-frequency target-update-interval target-update", _SYNC),
    Synonym("--target-sync", "target-update-period target-update-freq target-update-frequency", _SYNC),
    Synonym("--target-average", "tau polyak", "the share of the online network at each update"),
    Synonym("--steps", _EVERY, "the env steps for each update on so many times --batch-size transitions"),
    Synonym("--steps-per-update", _EVERY, "the env steps for each update"),
    Synonym("--n-step", "n-steps nstep multi-step update-horizon estimation-step"),
    Synonym("--num-envs", "n-envs num-env n-env num-workers num-actors training-num"),
    Synonym("--temperature", "ent-coef alpha", "a weight that stays; by default it is learnt"),
    Synonym("--entropy-weight", "ent-coef entropy-coef entropy-beta entropy-coefficient"),
    Synonym("--value-weight", "vf-coef value-coef value-loss-coef", "of the squared error itself, not of half of it"),
    Synonym("--max-norm", "max-grad-norm clip-grad grad-clip gradient-clip"),
    Synonym("--players", "num-processes n-processes num-players"),
    Synonym("--double", "double-q double-dqn use-double"),
    Synonym("--dueling", "duel dueling-dqn use-dueling"),
    Synonym("--network", "small", "as in --network narrow"),
    Synonym("--noisy", "noisy-net noisy-nets"),
    Synonym("--noisy-sigma", "noisy-std sigma sigma-init"),
    Synonym("--distributional", "c51 categorical"),
    Synonym("--prioritized", "prioritized-replay prioritised prioritised-replay per use-per"),
    Synonym("--priority-exponent", "prioritized-replay-alpha per-alpha alpha"),
    Synonym("--importance-exponent", "prioritized-replay-beta per-beta beta priority-weight"),
    Synonym("--importance-decay", "prioritized-replay-beta-iters beta-anneal-steps", "which counts env steps"),
    Synonym("--priority-floor", "prioritized-replay-eps per-eps"),
    Synonym("--atoms", "n-atoms num-atoms"),
    Synonym("--value-min", "v-min vmin"),
    Synonym("--value-max", "v-max vmax"),
    Synonym("--frame-skip", "frameskip frames-skip action-repeat"),
    Synonym("--frame-stack", "framestack frames-stack stack num-stack n-stack stack-num history-length"),
    Synonym("--frame-size", "screen-size image-size resolution"),
    Synonym("--noop-max", "noops max-noops no-op-max"),
    Synonym("--sticky-actions", "repeat-action-probability sticky sticky-action-prob", "a probability"),
    Synonym("--episodic-life", "terminal-on-life-loss terminal-on-loss-of-life"),
    Synonym("--clip-rewards", "clip-reward reward-clip reward-clipping"),
    Synonym("--full-action-set", "full-action-space"),
    Synonym(
        "--max-frames",
        "max-episode-length max-episode-steps max-episode-frames",
        "which counts frames, --frame-skip to an env step",
        "--frame-skip",
    ),
    Synonym("--max-frames", "max-episode-length max-episode-steps max-episode-frames", "which counts env steps"),
    Synonym("--cuda", "gpu use-cuda use-gpu enable-cuda"),
    Synonym("--device", "cpu no-gpu disable-cuda accelerator", "as in --device cpu"),
    Synonym("--threads", "num-threads n-threads torch-threads"),
    Synonym("--precision", "amp bf16 fp16 mixed-precision dtype", "as in --precision bf16"),
    Synonym("--wandb", "track use-wandb log-wandb"),
    Synonym("--project", "wandb-project wandb-project-name project-name"),
    Synonym("--runs-dir", "log-dir logdir log-folder save-dir output-dir out-dir tensorboard-log"),
    Synonym("--resume", "load load-model load-checkpoint restore checkpoint trained-agent"),
    Synonym("--checkpoint-env-steps", "save-freq save-interval checkpoint-interval checkpoint-freq"),
    Synonym("--log-seconds", "log-interval log-freq print-freq", "which counts seconds"),
)
_OF_COMMANDS = (
    Synonym("--device", "cuda gpu use-cuda use-gpu enable-cuda", "as in --device cuda"),
    Synonym("--episodes", "games num-games n-games num-episodes n-episodes n-eval-episodes"),
    Synonym("--address", "engine-address"),
)


def _by_name(table: Sequence[Synonym]) -> dict[str, list[Synonym]]:
    found: dict[str, list[Synonym]] = {}
    for synonym in table:
        for other in synonym.others.split():
            found.setdefault(f"--{other}", []).append(synonym)
    return found


SYNONYMS, COMMANDS = _by_name(_TABLE), _by_name(_OF_COMMANDS)
"""By the name that an option of scripts, and of commands alone, has elsewhere; of several the first that there is."""


_SEVERAL = {"--seeds", "--num-seeds", "--n-seeds", "--num-runs"}
_SCRIPTS = {
    "09, 41 and 42": "processes engine engine-address rank-timeout",
    "10": "variant",
    "10 to 12": "network init act-with report-env-steps held-out dueling noisy noise noisy-sigma "
    "prioritized priority-exponent priority-floor priority-measure importance-exponent importance-final "
    "importance-decay distributional atoms value-min value-max",
    "11": "freeze-share freeze-slack decay-share",
    "11 and 12": "block-steps refresh-env-steps refresh-turns refresh-delay final-gamma",
    "12": "reset-updates reset-keep reset-until first-n-step first-gamma horizon-updates evaluation-games "
    "evaluation-envs final-average",
    "20 and 21": "pieces",
    "21 and 22": "players synchronous",
    "22": "gradients",
    "31 to 33 and 42": "steps-per-update newest-in-batch target-entropy initial-temperature temperature",
    "32": "sessions distributed sync-every session-timeout",
    "33": "algorithm trainer-thread",
    "41 and 42": "published",
}
ELSEWHERE = {f"--{name}": scripts for scripts, names in _SCRIPTS.items() for name in names.split()}
"""By option, the scripts that alone have it."""


def answer(flag: str, flags: Collection[str]) -> str | None:
    """Return a sentence on what fastdqn calls the option `flag`, or which scripts have it; None if nothing is known.

    Args:
        flag: with its dashes.
        flags: what there is to be named here.
    """
    known = SYNONYMS.get(flag, [])
    for synonym in (*known, *COMMANDS.get(flag, ())):
        if {synonym.ours, synonym.beside} - {""} <= set(flags):
            differs = f", {synonym.differs}" if synonym.differs else ""
            return f"There is no option {flag}; fastdqn calls it {synonym.ours}{differs}."
    scripts = ELSEWHERE.get(flag)
    if scripts is not None:
        have = f"the scripts {scripts} have it" if " " in scripts else f"script {scripts} has it"
        return f"There is no option {flag} here; {have}."
    if flag in _SEVERAL:
        how = "fastdqn calls it --seeds" if "--seeds" in flags else "fastdqn sweep runs any script with several seeds"
        return f"There is no option {flag} here; {how}."
    if not known:
        return None
    named = " or ".join(dict.fromkeys(synonym.ours for synonym in known))
    return f"There is no option {flag}; fastdqn calls it {named}, which this command does not have."
