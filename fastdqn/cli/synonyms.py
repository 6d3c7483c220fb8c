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


_COUNTS = "which counts env steps"
_ENV_STEPS = "which counts env steps, of 4 frames each in Atari's games"
_FRAMES = "which counts env steps, of --frame-skip frames each"
_DECAY = "the env steps in which epsilon falls by 1, not a share of the run"
_MOVES = "the env steps over which it moves to --final-learning-rate"
_RATES = "q-lr policy-lr actor-lr critic-lr pi-lr"
_RATIO = "gradient-steps utd utd-ratio replay-ratio update-to-data"
_EVERY = "train-frequency train-freq update-frequency update-freq update-period replay-frequency"
_TABLE = (
    Synonym("--game", "env env-id env-name environment task rom game-name"),
    Synonym("--algorithm", "algo alg"),
    Synonym("--agent", "algo alg"),
    Synonym("--max-env-steps", "total-timesteps total-steps num-timesteps n-timesteps timesteps", _ENV_STEPS),
    Synonym("--max-env-steps", "env-steps num-env-steps total-env-steps"),
    Synonym("--steps-per-update", "steps", "the env steps for each update"),
    Synonym("--rollout-steps", "num-steps n-steps", "which counts the steps of each game"),
    Synonym("--n-step", "num-steps", "which counts the steps of each game", "--value-weight"),
    Synonym("--max-env-steps", "num-steps max-steps max-timesteps t-max", _ENV_STEPS),
    Synonym("--max-env-steps", "total-frames num-frames max-num-frames frames", _FRAMES, "--frame-skip"),
    Synonym("--max-env-steps", "total-frames num-frames max-num-frames frames", "which counts env steps"),
    Synonym("--max-minutes", "max-time time-limit minutes", "which counts from the start of the process"),
    Synonym("--stop-score", "target-score reward-threshold solved-score target-reward"),
    Synonym("--learning-rate", "lr adam-lr step-size"),
    Synonym("--learning-rate", _RATES, "the same for actor, critics and temperature", "--target-entropy"),
    Synonym("--learning-rate", _RATES),
    Synonym("--learning-rate-decay", "anneal-lr lr-decay decay-learning-rate", _MOVES, "--final-learning-rate"),
    Synonym(
        "--learning-rate-decay", "anneal-lr lr-decay decay-learning-rate", "the env steps over which it falls to 0"
    ),
    Synonym("--final-learning-rate", "learning-rate-final final-lr lr-final end-lr min-lr"),
    Synonym("--learning-rate-restart", "warm-restarts lr-restart restart-period", "a number of env steps"),
    Synonym("--adam-epsilon", "adam-eps opt-eps optimizer-eps optimizer-epsilon"),
    Synonym(
        "--batch-size", "batch minibatch-size mini-batch-size", "for each env step: --steps multiplies it", "--steps"
    ),
    Synonym("--batch-size", "batch minibatch-size mini-batch-size"),
    Synonym(
        "--batch-size", "num-minibatches n-minibatches nminibatches num-mini-batch", "a size, not a number of them"
    ),
    Synonym("--gamma", "discount discount-factor discount-rate"),
    Synonym("--final-gamma", "gamma-final gamma-end"),
    Synonym("--first-gamma", "gamma-first gamma-start gamma-initial initial-gamma"),
    Synonym("--first-n-step", "n-step-first n-step-start n-step-initial initial-n-step"),
    Synonym("--trace-decay", "gae-lambda gae-lam lam lambda td-lambda"),
    Synonym("--clip", "clip-coef clip-range cliprange clip-param clip-ratio clip-epsilon eps-clip"),
    Synonym("--epochs", "update-epochs n-epochs num-epochs noptepochs ppo-epoch ppo-epochs k-epochs"),
    Synonym("--replay-size", "buffer-size replay-buffer-size replay-capacity memory-capacity memory-size"),
    Synonym(
        "--replay-initial", "learning-starts learn-start min-replay-history warmup-steps start-timesteps initial-replay"
    ),
    Synonym(
        "--epsilon-decay", "exploration-fraction exploration-steps eps-decay decay-epsilon epsilon-decay-period", _DECAY
    ),
    Synonym("--epsilon-start", "start-e eps-start exploration-initial-eps initial-epsilon start-epsilon"),
    Synonym("--epsilon-final", "end-e eps-end exploration-final-eps final-epsilon epsilon-train"),
    Synonym("--target-sync", "target-network-frequency target-update-interval target-update-period", _COUNTS),
    Synonym("--target-sync", "target-update target-update-freq target-update-frequency", f"{_COUNTS}, not updates"),
    Synonym("--target-average", "tau polyak", "the share of the online network at each update"),
    Synonym("--steps", _EVERY, "the env steps for each update on so many times --batch-size transitions"),
    Synonym("--steps-per-update", _EVERY, "the env steps for each update"),
    Synonym("--steps-per-update", _RATIO, "its inverse: the env steps for each update"),
    Synonym("--batch-size", _RATIO, "the samples for each env step", "--agent"),
    Synonym("--n-step", "n-steps nstep multi-step update-horizon estimation-step"),
    Synonym("--players", "num-workers n-workers num-actors"),
    Synonym("--sessions", "num-workers n-workers num-actors num-sessions"),
    Synonym("--num-envs", "n-envs num-env n-env num-workers n-workers num-actors training-num"),
    Synonym(
        "--temperature", "autotune auto-alpha automatic-entropy-tuning", "a weight that stays, or None to learn it"
    ),
    Synonym("--initial-temperature", "temperature-initial init-temperature initial-alpha init-alpha"),
    Synonym("--temperature", "ent-coef alpha", "a weight that stays; by default it is learnt"),
    Synonym("--entropy-weight", "ent-coef entropy-coef entropy-beta entropy-coefficient"),
    Synonym("--value-weight", "vf-coef value-coef value-loss-coef", "of the squared error itself, not of half of it"),
    Synonym("--max-norm", "max-grad-norm clip-grad grad-clip gradient-clip"),
    Synonym("--processes", "num-processes n-processes nproc world-size num-ranks"),
    Synonym("--players", "num-processes n-processes num-players"),
    Synonym("--engine-address", "address"),
    Synonym("--double", "double-q double-dqn use-double"),
    Synonym("--dueling", "duel dueling-dqn use-dueling"),
    Synonym("--network", "small", "as in --network narrow"),
    Synonym("--profile", "where"),
    Synonym("--freeze-share", "hold-share"),
    Synonym("--freeze-slack", "hold-slack"),
    Synonym("--noisy", "noisy-net noisy-nets"),
    Synonym("--noisy-sigma", "noisy-std sigma sigma-init"),
    Synonym("--distributional", "c51 categorical"),
    Synonym("--prioritized", "prioritized-replay prioritised prioritised-replay per use-per"),
    Synonym("--priority-exponent", "prioritized-replay-alpha per-alpha alpha"),
    Synonym("--importance-exponent", "prioritized-replay-beta per-beta beta priority-weight"),
    Synonym("--importance-final", "final-importance final-beta beta-final beta-end"),
    Synonym("--importance-decay", "prioritized-replay-beta-iters beta-anneal-steps", "which counts env steps"),
    Synonym("--priority-floor", "prioritized-replay-eps per-eps"),
    Synonym("--final-average", "average-final"),
    Synonym("--atoms", "n-atoms num-atoms"),
    Synonym("--value-min", "v-min vmin min-value"),
    Synonym("--value-max", "v-max vmax max-value"),
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
    Synonym(
        "--log-seconds", "log-interval log-freq print-freq", "seconds between two lines of progress on the terminal"
    ),
)
_OF_COMMANDS = (
    Synonym("--device", "cuda gpu use-cuda use-gpu enable-cuda", "as in --device cuda"),
    Synonym("--games", "num-games n-games num-episodes n-episodes n-eval-episodes", "", "--protocol"),
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
    "01 to 12": "epsilon-start epsilon-final epsilon-decay epsilon-delay double loss optimizer rmsprop-epsilon "
    "weight-decay target-sync",
    "01 to 12, 20 to 22 and 41": "protocol frame-skip frame-stack noop-max crop episodic-life clip-rewards fire-reset "
    "sticky-actions full-action-set",
    "01 to 12 and 20 to 22": "n-step",
    "01 to 12, 31 to 33 and 42": "replay-size replay-initial",
    "02 to 12": "steps",
    "03 to 05, 21 and 22": "player-device player-timeout",
    "06 to 12, 20 to 22, 31 to 33, 41 and 42": "num-envs profile",
    "06 to 12, 20 to 22 and 41": "env-threads frame-size",
    "09 to 12": "crowded-threads final-learning-rate learning-rate-restart random-shift random-intensity",
    "09 to 12 and 41": "learning-rate-decay precision",
    "09 to 12, 20 to 22 and 41": "center-frames frame-scale",
    "09, 41 and 42": "processes engine engine-address rank-timeout",
    "10": "variant",
    "10 to 12": "network init act-with report-env-steps held-out dueling noisy noise noisy-sigma "
    "prioritized priority-exponent priority-floor priority-measure importance-exponent importance-final "
    "importance-decay distributional atoms value-min value-max",
    "10 to 12, 31 to 33 and 42": "target-average",
    "11": "freeze-share freeze-slack decay-share",
    "11 and 12": "block-steps refresh-env-steps refresh-turns refresh-delay final-gamma",
    "11, 12 and 41": "trace-decay",
    "12": "reset-updates reset-keep reset-until first-n-step first-gamma horizon-updates evaluation-games "
    "evaluation-envs final-average",
    "20 and 21": "pieces",
    "20 to 22 and 41": "entropy-weight value-weight",
    "21 and 22": "players synchronous",
    "22": "gradients",
    "31 to 33 and 42": "steps-per-update newest-in-batch target-entropy initial-temperature temperature",
    "31 to 33, 41 and 42": "hidden orthogonal",
    "32": "sessions distributed sync-every session-timeout",
    "33": "algorithm trainer-thread",
    "41": "rollout-steps epochs clip target-kl",
    "41 and 42": "published",
}
ELSEWHERE = {f"--{name}": scripts for scripts, names in _SCRIPTS.items() for name in names.split()}
"""By option, the scripts that alone have it."""
_OF_BEFORE = "gradient-threads hold-average hold-epsilon pixel-floor end-at-reward small"
REMOVED = frozenset(f"--{name}" for name in _OF_BEFORE.split())
"""Options that 0.1.0 had."""
PPO = "33 with --algorithm ppo"
_OF_PPO = (
    "protocol frame-skip frame-stack noop-max crop episodic-life clip-rewards fire-reset sticky-actions "
    "full-action-set env-threads frame-size learning-rate-decay precision center-frames frame-scale trace-decay "
    "entropy-weight value-weight rollout-steps epochs clip target-kl"
)
OF_PPO = frozenset(f"--{name}" for name in _OF_PPO.split())
"""Options that 33 has with PPO alone."""
_IN_PPO = {"--trace-decay": "GAE's lambda"}
"""What options of other algorithms are in PPO."""


def answer(flag: str, flags: Collection[str]) -> str | None:
    """Return a sentence on what fastdqn calls the option `flag`, or which scripts have it; None if nothing is known.

    Args:
        flag: with its dashes.
        flags: what there is to be named here.
    """
    known, scripts = SYNONYMS.get(flag, []), ELSEWHERE.get(flag)
    for synonym in (*known, *COMMANDS.get(flag, ())):
        if {synonym.ours, synonym.beside} - {""} <= set(flags):
            differs = f", {synonym.differs}" if synonym.differs else ""
            other = scripts is not None and synonym in known  # an option of other scripts
            said = " here; this script has" if other else "; fastdqn calls it"
            return f"There is no option {flag}{said} {synonym.ours}{differs}."
    if scripts is not None:
        have = f"the scripts {scripts} have it" if " " in scripts else f"script {scripts} has it"
        also = f", and {PPO}" if flag in OF_PPO else ""
        means = f"; of PPO it is {_IN_PPO[flag]}" if flag in _IN_PPO else ""
        return f"There is no option {flag} here; {have}{also}{means}."
    if flag in _SEVERAL:
        how = "fastdqn calls it --seeds" if "--seeds" in flags else "fastdqn sweep runs any script with several seeds"
        return f"There is no option {flag} here; {how}."
    if flag.replace("--no-", "--", 1) in REMOVED and not known:
        return f"There is no option {flag} any more; it gained nothing."
    if not known:
        return None
    named = " or ".join(dict.fromkeys(synonym.ours for synonym in known))
    return f"There is no option {flag}; fastdqn calls it {named}, which this command does not have."
