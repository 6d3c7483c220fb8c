"""Options that change nothing beside others: some are refused, most are said, since a sweep may vary the one and fix
the other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from fastdqn.errors import UserError
from fastdqn.options.groups import Groups


class _Idle(NamedTuple):
    """Options that do nothing as things are."""

    options: str
    why: str


def refuse_idle(groups: Groups, asked: Collection[str]) -> None:
    """Refuse what was asked for and would do nothing. The files of older runs may say it.

    Args:
        groups: the options of a script.
        asked: names of options, as on the command line.

    Raises:
        UserError: with what to leave out.
    """
    update, sac = groups.update, groups.sac
    moves = groups.returns is not None and groups.whole_returns and groups.returns.final_gamma is not None
    fixed = update is not None and update.final_learning_rate is None
    stays = fixed and not moves
    if stays and "--learning-rate-decay" in asked:
        raise UserError(
            "--learning-rate-decay says how fast the learning rate moves to --final-learning-rate; give both."
        )
    if fixed and "--learning-rate-restart" in asked:
        raise UserError(
            "--learning-rate-restart says when the learning rate moves to --final-learning-rate once more; give both."
        )
    waits = groups.freeze is not None and groups.freeze.decay_share is not None
    if stays and waits and "--decay-share" in asked:
        raise UserError("--decay-share says when the learning rate begins to move to --final-learning-rate; give both.")
    learnt = ("--target-entropy", "--initial-temperature")
    if sac is not None and sac.temperature is not None and any(option in asked for option in learnt):
        raise UserError(
            f"--target-entropy and --initial-temperature are of a temperature that is learnt, which --temperature "
            f"{sac.temperature:g} is not; leave them out, or give --temperature None."
        )


def idle_notes(
    groups: Groups, asked: Collection[str], pictures: bool | None = None, in_turn: bool = False
) -> list[str]:
    """Return a sentence for each option that was asked for and does nothing.

    Args:
        groups: the options of a script.
        asked: names of options, as on the command line (--atoms).
        pictures: whether the game shows pictures, or else vectors; None where that is not known yet.
        in_turn: whether the games of a process are played one after the other.
    """
    return [
        f"{option} changes nothing here: {one.why}"
        for one in (*_all(groups), *_of_what_is_shown(groups, pictures, in_turn))
        for option in one.options.split()
        if option in asked
    ]


def _all(groups: Groups) -> Iterator[_Idle]:
    run, parts, returns, dqn = groups.run, groups.parts, groups.returns, groups.dqn
    whole = groups.whole_returns
    if not run.checkpoints:
        yield _Idle("--checkpoint-env-steps --checkpoint-minutes --checkpoint-replay", "there are no checkpoints")
    elif groups.actor_critic and groups.sac is None:
        yield _Idle("--checkpoint-replay", "what is learnt from is played anew for each update, and nothing is kept")
    if not (run.wandb or run.trackio):
        yield _Idle("--project", "it is of --wandb and --trackio")
    if dqn is not None:
        rmsprop = dqn.optimizer == "rmsprop"
        yield _Idle("--adam-epsilon" if rmsprop else "--rmsprop-epsilon", f"the optimiser is {dqn.optimizer}")
        if dqn.epsilon_start == dqn.epsilon_final:
            yield _Idle("--epsilon-decay --epsilon-delay", f"epsilon stays at {dqn.epsilon_final:g}")
    if run.stop_score is None:
        yield _Idle("--fresh-games", "they follow a run that is solved, and there is no --stop-score")
    if groups.evaluation is not None and groups.evaluation.evaluation_games == 0:
        yield _Idle("--evaluation-envs", "there are no --evaluation-games")
    if parts is not None:
        if parts.prioritized and parts.importance_exponent == parts.importance_final:
            yield _Idle("--importance-decay", f"beta stays at {parts.importance_final:g}")
        if not parts.noisy:
            yield _Idle("--noise --noisy-sigma", "there are no noisy layers, which --noisy asks for")
        if not parts.prioritized:
            draws = "--priority-exponent --priority-floor --importance-exponent --importance-final --importance-decay"
            yield _Idle(draws, "draws are uniform without --prioritized")
        if not (parts.prioritized and parts.distributional) or whole:
            yield _Idle("--priority-measure", "it is of --prioritized with --distributional, without lambda-returns")
        if not parts.distributional:
            yield _Idle("--atoms --value-min --value-max", "there is no distribution, which --distributional asks for")
        else:
            yield _Idle("--loss", "distributions are learnt by their cross-entropy")
    if returns is not None and not whole:
        yield _Idle(
            "--block-steps --refresh-env-steps --refresh-turns --refresh-delay --final-gamma",
            "there are no lambda-returns, which --trace-decay asks for",
        )
    if returns is not None and whole and returns.refresh_env_steps is None:
        yield _Idle("--refresh-turns --refresh-delay", "returns stay as they are without --refresh-env-steps")
    if whole:
        yield _Idle("--target-sync", "lambda-returns have no target network")
    elif groups.agent is not None and groups.agent.target_average is not None:
        yield _Idle("--target-sync", "the target network is an average of the weights")
    if groups.freeze is not None and groups.freeze.freeze_share is None:
        yield _Idle("--freeze-slack", "nothing is frozen without --freeze-share")
    if groups.resets is not None:
        if groups.resets.reset_updates is None:
            yield _Idle("--reset-keep --reset-until", "there are no resets, which --reset-updates asks for")
        if groups.resets.first_n_step is None and groups.resets.first_gamma is None:
            yield _Idle("--horizon-updates", "neither --first-n-step nor --first-gamma moves")


def _of_what_is_shown(groups: Groups, pictures: bool | None, in_turn: bool) -> Iterator[_Idle]:
    if pictures is True and groups.actor_critic:
        yield _Idle("--hidden", f"{groups.game.name} shows pictures, and these units are for vectors")
    if pictures is False:
        frames = "--frame-size --frame-scale --precision"
        yield _Idle(frames, f"{groups.game.name} shows vectors, and this is for pictures")
    if in_turn:
        yield _Idle("--env-threads", f"games of {groups.game.name} are played one after the other")
