"""Groups of options together: what contradicts, and how a run's config.json says them.

A script composes the groups that it has into a dataclass of its own, one field for each, called as here.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

from fastdqn.errors import UserError
from fastdqn.options.actor_critic import A2COptions, GradientOptions, PieceOptions, PlayersOptions, PPOOptions
from fastdqn.options.dqn import AgentOptions, DQNOptions, PaceOptions, UpdateOptions
from fastdqn.options.evaluation import EvaluationOptions
from fastdqn.options.fields import LARGEST, changes_learning
from fastdqn.options.game import GameOptions, PlayerOptions, VectorOptions
from fastdqn.options.parts import FreezeOptions, PartOptions, ReturnOptions, VariantOptions
from fastdqn.options.ranks import RanksOptions
from fastdqn.options.resets import ResetOptions
from fastdqn.options.run import RunOptions
from fastdqn.options.sac import SACOptions, SessionOptions
from fastdqn.options.trainer import TrainerOptions

OptionsT = TypeVar("OptionsT")
LATER = (RanksOptions, VariantOptions)
"""Groups that runs of before there were any do not name; they have the defaults."""
GONE: Mapping[str, Mapping[str, Any]] = {
    "agent": {"gradient_threads": 1},
    "turns": {"game_groups": 1},
    "variant": {"seeds": 1},
}
"""By group, removed options and their values when off: runs with these values are still read."""
RENAMED = {"series": "variant"}
"""Groups that had other names."""


@dataclasses.dataclass(frozen=True)
class Groups:
    """The groups that the library knows; None where a script has no such group."""

    run: RunOptions = RunOptions()  # noqa: RUF009 - it cannot change
    game: GameOptions = GameOptions()  # noqa: RUF009
    dqn: DQNOptions | None = None
    pace: PaceOptions | None = None
    player: PlayerOptions | None = None
    vector: VectorOptions | None = None
    update: UpdateOptions | None = None
    agent: AgentOptions | None = None
    parts: PartOptions | None = None
    returns: ReturnOptions | None = None
    variant: VariantOptions | None = None
    freeze: FreezeOptions | None = None
    resets: ResetOptions | None = None
    evaluation: EvaluationOptions | None = None
    a2c: A2COptions | None = None
    ppo: PPOOptions | None = None
    pieces: PieceOptions | None = None
    gradients: GradientOptions | None = None
    players: PlayersOptions | None = None
    sac: SACOptions | None = None
    sessions: SessionOptions | None = None
    trainer: TrainerOptions | None = None
    ranks: RanksOptions | None = None

    def check(self) -> None:
        """Raise UserError, in one sentence, for options of different groups that contradict each other."""
        dqn = self.dqn
        if self.sac is not None:
            if self.trainer is None and not float(self.sac.steps_per_update).is_integer():
                raise UserError(
                    f"--steps-per-update must be a whole number, not {self.sac.steps_per_update:g}, where no trainer "
                    "runs beside the games."
                )
            sessions = 1 if self.sessions is None else self.sessions.sessions or 1
            self._check_first_update(self.sac.replay_initial, self.sac.steps_per_update, max(sessions, self.world))
        if self.ppo is not None and self.world > 1:
            self._check_rollouts(self.ppo)
        if dqn is None:
            return
        steps = 1 if self.pace is None else self.pace.steps
        lag = dqn.n_step - 1 if self.vector is None else 0  # a list of transitions holds whole windows alone
        self._check_first_update(dqn.replay_initial, steps, self.world, lag)
        if self._copies_target and steps * self.world > dqn.target_sync:
            each = f" in each of {self.world} processes" if self.world > 1 else ""
            raise UserError(
                f"--steps {steps}{each} cannot be more than --target-sync {dqn.target_sync}: the target network would "
                "miss copies."
            )
        if self.returns is not None and self.whole_returns:
            self._check_returns(self.returns, dqn)
        if self.resets is not None and self.resets.first_gamma is not None and dqn.gamma == 1.0:
            raise UserError("--first-gamma needs a --gamma below 1, as 1 - gamma moves by a factor.")

    @property
    def actor_critic(self) -> bool:
        """Whether what is learnt is a policy and its value."""
        return self.a2c is not None or self.ppo is not None or self.sac is not None

    @property
    def continuous(self) -> bool | None:
        """Whether actions are vectors of numbers instead of one of several; None where they may be either."""
        return None if self.ppo is not None else self.sac is not None

    @property
    def world(self) -> int:
        """Processes that learn together."""
        return 1 if self.ranks is None else self.ranks.processes

    @property
    def whole_returns(self) -> bool:
        """Whether lambda-returns are learnt, which need no target network."""
        return self.returns is not None and self.returns.trace_decay is not None

    @property
    def _copies_target(self) -> bool:
        """Whether there is a target network, copied now and then."""
        return not self.whole_returns and (self.agent is None or self.agent.target_average is None)

    @property
    def shares(self) -> int:
        """Parts of an update that players can be asked for, one each."""
        return self.gradients.gradients if self.gradients else self.pieces.pieces if self.pieces else 1

    def _check_first_update(self, initial: int, steps: float, sessions: int = 1, lag: int = 0) -> None:
        """Refuse a run that ends before its first update; each of several sessions waits for its own, and a trainer
        beside the games for so many env steps from --replay-initial on. A transition is whole `lag` env steps later.
        """
        most, needed = self.run.max_env_steps, initial + lag
        last = -(-needed // steps) * steps if self.trainer is None else math.ceil(needed - 1 + steps) - 1
        if most is not None and most // sessions <= last:
            called = "processes" if self.world > 1 else "sessions"
            each = f" transitions in each of {sessions} {called}" if sessions > 1 else " transitions"
            later = f" over {lag + 1} env steps each" if lag else ""
            raise UserError(
                f"--max-env-steps {most} ends the run by the first update, which waits for --replay-initial "
                f"{initial}{each}{later}; raise the first or lower the second."
            )

    def _check_rollouts(self, ppo: PPOOptions) -> None:
        """Refuse rollouts that may have fewer samples than batches: every rank has a sample for each. Of two rows of a
        game one at most is a reset, and none.
        """
        games = 1 if self.vector is None else self.vector.num_envs or 1
        batches = -(-ppo.rollout_steps * games // ppo.batch_size)
        if ppo.rollout_steps // 2 * games < batches:
            raise UserError(
                f"--rollout-steps {ppo.rollout_steps} and --batch-size {ppo.batch_size}: every process needs a sample "
                f"for each batch of a rollout, but where games are reset there may be too few; raise "
                f"{'--batch-size' if ppo.rollout_steps > 1 else '--rollout-steps'}."
            )

    def _check_returns(self, returns: ReturnOptions, dqn: DQNOptions) -> None:
        """Refuse what lambda-returns leave no room for."""
        agent = self.agent or AgentOptions()
        beside = {"--n-step": dqn.n_step > 1, "--double": dqn.double}
        for option in [option for option, on in beside.items() if on]:
            raise UserError(
                f"{option} contradicts --trace-decay {returns.trace_decay:g}, which learns lambda-returns without a "
                "target network; --trace-decay None turns them off."
            )
        if returns.final_gamma is not None and dqn.gamma == 1.0:
            raise UserError("--final-gamma needs a --gamma below 1, as 1 - gamma moves by a factor.")
        if self.resets is not None and (self.resets.first_n_step, self.resets.first_gamma) != (None, None):
            raise UserError(
                f"--first-n-step and --first-gamma contradict --trace-decay {returns.trace_decay:g}: lambda-returns "
                "have no windows that could move."
            )
        if (agent.target_average is None) != (agent.act_with == "online"):
            raise UserError(
                f"With --trace-decay {returns.trace_decay:g}, which learns from the values of the network that plays, "
                "--target-average and --act-with target go together: an average of the weights plays."
            )


def groups_of(options: Any) -> Groups:
    """Return those groups of a script's options that the library knows."""
    known = {field.name for field in dataclasses.fields(Groups)}
    return Groups(**{name: getattr(options, name) for name in known if hasattr(options, name)})


def kinds_of(kind: type[Any]) -> dict[str, type[Any]]:
    """Return the groups of a script's options by their names."""
    types = get_type_hints(kind)
    return {
        field.name: next((arg for arg in get_args(types[field.name]) if arg is not type(None)), types[field.name])
        for field in dataclasses.fields(kind)
    }


def defaults_of(kind: type[OptionsT]) -> OptionsT:
    """Return the options that a script composes, each group with its own defaults."""
    return kind(**{name: group() for name, group in kinds_of(kind).items()})


def check(options: Any) -> None:
    """Raise UserError, in one sentence, for a value out of range or for options that contradict each other."""
    for field in dataclasses.fields(options):
        group = getattr(options, field.name)
        if hasattr(group, "check"):
            group.check()
    groups_of(options).check()


def flag_of(kind: type[Any], name: str) -> str:
    """Return what the command line calls the field `name` of the group `kind`."""
    said = get_type_hints(kind, include_extras=True)[name]
    if get_origin(said) is Annotated:
        name = next((arg.name for arg in get_args(said)[1:] if getattr(arg, "name", None)), name)
    return f"--{name.replace('_', '-')}"


def learnt_by(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a run's config.json changes what is learnt, by the names of the fields."""
    beside: dict[str, set[str]] = {}
    for group, kind in kinds_of(Groups).items():
        beside[group] = {field.name for field in dataclasses.fields(kind) if not changes_learning(field)}
    return {
        name: value
        for group, values in config.items()
        if isinstance(values, dict)
        for name, value in cast(dict[str, Any], values).items()
        if name not in beside.get(group, ())
    }


def as_of_now(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run's config.json with the options of this version: one that there was not yet has its default, and one
    that is no more and was off is not named. So runs of several versions that learnt alike are alike.
    """
    kinds, config = kinds_of(Groups), _without_gone(config)
    found = {name: vars(kind()) for name, kind in kinds.items() if kind in LATER} | config
    for group, said in config.items():
        if group in kinds and isinstance(said, dict):
            known = cast(dict[str, Any], vars(kinds[group]()))
            values = cast(dict[str, Any], said)
            gone = {name for name, value in values.items() if name not in known and value in (None, False)}
            found[group] = known | {name: value for name, value in values.items() if name not in gone}
    return found


def learnt_as_of_now(learnt: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `learnt_by` said in any version, with the options of this one, as `as_of_now` does; but without those
    that several groups have, each with a default of its own: nobody says whose was meant.
    """
    off = {name: value for options in GONE.values() for name, value in options.items()}
    kinds = kinds_of(Groups).values()
    found: dict[str, list[Any]] = {}
    for kind in kinds:
        for field in dataclasses.fields(kind):
            found.setdefault(field.name, []).append(getattr(kind(), field.name))
    known = {name: values[0] for name, values in found.items() if all(one == values[0] for one in values)}
    return known | {name: value for name, value in learnt.items() if name not in off or value != off[name]}


def options_from(kind: type[OptionsT], config: Mapping[str, Any]) -> OptionsT:
    """Return the options of a script, or the `Groups` that the library knows, as a run's config.json says them; options
    that it does not name yet have their defaults.

    Raises:
        UserError: a group is missing, an option is unknown, or a value is out of range.
    """
    groups: dict[str, Any] = {}
    kinds, config = kinds_of(kind), _without_gone(config)
    for left in [config.get(name) for name in GONE.keys() - kinds.keys()]:
        if kind is not Groups and isinstance(left, dict) and left:
            raise _unknown(next(iter(cast(dict[str, Any], left))))
    for name, group in kinds.items():
        said = config.get(name)
        if said is None and kind is Groups:
            continue
        if said is None and group in LATER:
            said = {}
        if not isinstance(said, Mapping):
            raise UserError(f"The run's options are damaged: {name!r} is no group of options.")
        groups[name] = _filled(group, cast(Mapping[str, Any], said))
    options: Any = kind(**groups)
    try:
        check(options)
    except (TypeError, AttributeError) as error:
        raise UserError(f"The run's options are damaged: {error}.") from error
    return options


def _without_gone(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run's config.json with groups by their names of now, and without what is no more and was off."""
    found = {RENAMED.get(name, name): said for name, said in config.items()}
    for group, off in GONE.items():
        if isinstance(found.get(group), dict):
            values = cast(dict[str, Any], found[group])
            found[group] = {name: value for name, value in values.items() if name not in off or value != off[name]}
    return found


def _unknown(option: str) -> UserError:
    return UserError(f"The run has an option, {option!r}, that this version of fastdqn does not know.")


def _filled(kind: type[Any], said: Mapping[str, Any]) -> Any:
    default = kind()
    known = {field.name for field in dataclasses.fields(kind)}
    strange = sorted(set(said) - known)
    if strange:
        raise _unknown(strange[0])
    kinds = get_type_hints(kind)
    for name, value in said.items():
        if not _is_one(value, kinds[name]):
            raise UserError(f"The run's options are damaged: {name!r} cannot be {str(value)[:40]!r}.")
    values = {name: Path(value) if isinstance(getattr(default, name), Path) else value for name, value in said.items()}
    return kind(**values)


def _is_one(value: Any, kind: Any) -> bool:
    """Tell whether `value`, from a file, may stand for a field of this type."""
    choices = get_args(kind)
    if get_origin(kind) is Literal:
        return value in choices
    if choices:  # one of several types
        return any(_is_one(value, choice) for choice in choices)
    if kind is float:
        whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST
        return whole or isinstance(value, float)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST
    return isinstance(value, str if kind is Path else kind)
