"""What a run says at its start: what it learns from, and what ends it."""

from __future__ import annotations

from fastdqn.options.agents import AGENTS
from fastdqn.options.dqn import AgentOptions, DQNOptions, PaceOptions, UpdateOptions
from fastdqn.options.parts import PartOptions
from fastdqn.options.run import RunOptions

_OPTIMIZERS = {"adam": "Adam", "rmsprop": "RMSProp"}


def describe_learning(
    dqn: DQNOptions,
    pace: PaceOptions | None = None,
    update: UpdateOptions | None = None,
    agent: AgentOptions | None = None,
    parts: PartOptions | None = None,
) -> tuple[str, ...]:
    """Return lines that say by which hyper-parameters a script with these groups learns."""
    steps = 1 if pace is None else pace.steps
    rate = f"{_OPTIMIZERS[dqn.optimizer]} {dqn.learning_rate:g}"
    if update is not None and update.final_learning_rate is not None:
        rate += f" moving to {update.final_learning_rate:g}"
    target = f"target copied every {dqn.target_sync:,} env steps"
    if agent is not None and agent.target_average is not None:
        target = f"target moved by {agent.target_average:g} of the way at each update"
    said = [
        rate,
        f"{dqn.batch_size} samples for each env step"
        + (f" (batch {steps * dqn.batch_size} every {steps})" if steps > 1 else ""),
        f"{dqn.n_step} step{'s' if dqn.n_step > 1 else ''}",
        f"gamma {dqn.gamma:g}",
        target,
        f"epsilon {dqn.epsilon_start:g} to {dqn.epsilon_final:g}" if dqn.epsilon_start > 0 else "no epsilon",
    ]
    if dqn.loss == "clipped" and (parts is None or not parts.distributional):
        said.insert(1, "clipped errors")
    lines = [f"learns by agent {dqn.agent}: {', '.join(said)}"]
    by_paper = AGENTS[dqn.agent].settings.get("pace", {}).get("steps", 1)
    if pace is None and by_paper > 1:
        lines.append(
            f"differs from {dqn.agent}: updates on {dqn.batch_size} transitions after each env step; those on "
            f"{by_paper * dqn.batch_size} every {by_paper} are 02's"
        )
    return tuple(lines)


def describe_parts(dqn: DQNOptions, agent: AgentOptions, parts: PartOptions) -> str:
    """Return one line that names the network and the parts of Rainbow that are on, with their settings."""
    over = "the whole run" if parts.importance_decay is None else f"{parts.importance_decay:,} env steps"
    beta = f"beta from {parts.importance_exponent:g} to {parts.importance_final:g} over {over}"
    if parts.importance_exponent == parts.importance_final:
        beta = f"beta {parts.importance_final:g}"
    said = [
        "double" if dqn.double else "",
        "dueling" if parts.dueling else "",
        f"{parts.noise} noise" if parts.noisy else "",
        f"prioritized (alpha {parts.priority_exponent:g}, {beta})" if parts.prioritized else "",
        f"{parts.atoms} atoms from {parts.value_min:g} to {parts.value_max:g}" if parts.distributional else "",
    ]
    return ", ".join([f"parts: {agent.network} network", *(part for part in said if part)])


def describe_end(run: RunOptions) -> str:
    """Return one line that says what ends a run."""
    ends = [
        "" if run.stop_score is None else f"when the mean of 100 games is above {run.stop_score:g}",
        "" if run.max_env_steps is None else f"after {run.max_env_steps:,} env steps",
        "" if run.max_minutes is None else f"after {run.max_minutes:g} minutes",
    ]
    return f"stops {', or '.join(end for end in ends if end) or 'at Ctrl-C alone'}"
