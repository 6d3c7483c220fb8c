"""06 vector env: many games at once.

The idea: the emulators play N games in threads of their own, and one evaluation of the network chooses all N
actions. No second process, no queue, no pickling.

Differs from 05: the games and who chooses for them. The picture is 05's but for rounding; a lost life no longer
presses FIRE; frames before a game's first are zero. Updates fall due at the same env steps as in 02, whatever N is
(with n-step returns 02's first ones come n - 1 env steps later).

Measured (2 cores, no GPU, see LOG.md): 30.5 env steps/s, where 01 makes 21.5 and 05 28.7; the games alone 2,810.
"""

import fastdqn.startup  # noqa: F401 - first: the clock, and Ctrl-C during the imports below

import torch

from fastdqn import cli
from fastdqn.acting import GameStacks, epsilons_at, greedy_actions
from fastdqn.config import VectorOptions
from fastdqn.device import prepare_device
from fastdqn.envs.vector import describe_games
from fastdqn.replay.transitions import AsyncCollator, describe_replay
from fastdqn.run import Run
from fastdqn.schedules import target_sync_due
from fastdqn.variants import make_games, make_learner, make_policy, make_replay


def train(options: VectorOptions) -> int:
    dqn = options.dqn
    device = prepare_device(options.run)
    games = make_games(options)
    learner = make_learner(options, games.obs_shape, games.num_actions, device)
    replay = make_replay(options)
    batch_size = dqn.batch_size * options.steps
    collate = AsyncCollator(batch_size, games.obs_shape, device)
    notes = (describe_games(games, options.run.game, options.protocol), describe_replay(dqn.replay_size))

    with Run("06_vector_env", options, device, notes) as run:
        run.weights = learner.network.state_dict()
        run.where.enable(options.where)
        stacks = GameStacks(games.reset(), options.protocol.frame_stack, dqn.n_step, dqn.gamma)
        policy = make_policy(
            options,
            lambda: greedy_actions(learner.greedy, torch.from_numpy(stacks.obs()).to(device)),
            games.num_actions,
        )
        run.keep(learner=learner, games=games, stacks=stacks, replay=replay, policy=policy)

        while not run.over():
            env_steps = run.env_steps
            epsilon = epsilons_at(env_steps, games.num_envs, dqn)
            with run.where("acting"):
                actions = policy.act(epsilon)
            with run.where("emulator"):
                games.send(actions)
                step = games.recv()
            with run.where("replay"):
                replay.extend(stacks.add(actions, step))
            run.played_vector(step, epsilon[-1])

            for env_step in run.due(options.steps):
                with run.where("replay"):
                    batch = collate(replay.sample(batch_size))
                with run.where("update"):
                    run.updated(learner.update(batch), batch_size)
                if target_sync_due(env_step, dqn.target_sync, options.steps):
                    learner.sync_target()

    return 0


if __name__ == "__main__":
    cli.start(train, VectorOptions, __doc__)
