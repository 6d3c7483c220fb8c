"""What the documents show works as it stands there."""

from __future__ import annotations

import importlib.util
import math
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch
from gymnasium.utils.env_checker import check_env

from fastdqn.algorithms.dqn import DQNLearner
from fastdqn.tools.evaluate import load_agent
from tests.helpers import forks
from tests.helpers.learners import network, random_batch
from tests.helpers.scripts import ROOT, fastdqn, only_run, summary, train


def blocks(document: str, language: str) -> list[str]:
    """Return the blocks of code in a document."""
    text = (ROOT / "docs" / document).read_text(encoding="utf-8")
    return [block.split("```")[0] for block in text.split(f"```{language}\n")[1:]]


def test_the_worked_example_learns() -> None:
    """docs/new-idea.md: its code, by the paper's formulas."""
    names: dict[str, Any] = {}
    exec(blocks("new-idea.md", "python")[0], names)
    batch = random_batch(8)
    learner = DQNLearner(network(), network, objective=names["SquashedObjective"]())
    with torch.no_grad():
        best = learner.target(batch.next_obs).max(dim=1).values.double()
        value = learner.network(batch.obs)[torch.arange(8), batch.action].double()
    ahead = [math.copysign((abs(q) + 1) ** 2 - 1, q) for q in best.tolist()]
    returns = [r + d * g for r, d, g in zip(batch.reward.tolist(), batch.discount.tolist(), ahead, strict=True)]
    goals = [math.copysign(math.sqrt(abs(g) + 1) - 1, g) for g in returns]
    by_hand = sum((goal - q) ** 2 for goal, q in zip(goals, value.tolist(), strict=True)) / 8
    assert any(g > 0 for g in returns)
    assert any(g < 0 for g in returns)
    assert learner.objective.values(torch.tensor([[-3.0, 0.0, 1.0]])).tolist() == [[-15.0, 0.0, 3.0]]  # of returns
    assert learner.update(batch).scalars["loss"].item() == pytest.approx(by_hand, rel=1e-5)


def test_the_demo_wins_a_game_from_python() -> None:
    """docs/look.md."""
    names: dict[str, Any] = {}
    exec(blocks("look.md", "python")[0], names)
    assert names["points"] >= 18


def test_an_agent_with_continuous_actions_plays_from_python(tmp_path: Path) -> None:
    """docs/look.md, its second block."""
    run = train("31_sac", tmp_path, "--replay-initial", "20", "--max-env-steps", "30", "--no-checkpoints")
    names: dict[str, Any] = {"agent": load_agent(run, torch.device("cpu"))}
    first, second = blocks("look.md", "python")
    exec(first.partition("agent =")[0] + second, names)
    assert names["actions"].shape == (1, 1)
    assert names["obs"].shape == (3,)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the catch.py of docs/own-environment.md."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "catch.py").write_text(blocks("own-environment.md", "python")[0])
    return folder


def test_the_environment_of_the_example_is_gymnasiums_and_can_be_won(own: Path) -> None:
    spec = importlib.util.spec_from_file_location("catch", own / "catch.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    env = module.Catch()
    check_env(env, skip_render_check=True)
    for seed in range(30):
        env.reset(seed=seed)
        reward, over = 0.0, False
        while not over:
            _, reward, over, _, _ = env.step(1 + (env.ball > env.paddle) - (env.ball < env.paddle))
        assert reward == 1.0


@pytest.mark.parametrize(
    "script",
    [
        *(pytest.param(script, marks=pytest.mark.slow) for script in ("01_baseline", "05_opencv_wrappers")),
        "09_cuda_graph",
    ],
)
def test_the_environment_of_the_example_is_trained_looked_at_and_resumed(own: Path, script: str) -> None:
    """docs/own-environment.md: its command line for a few steps, in the folder of catch.py."""
    training, looking = (
        shlex.split(block.replace("\\\n", ""), comments=True) for block in blocks("own-environment.md", "sh")
    )
    assert training[:2] == ["python", "experiments/09_cuda_graph.py"]
    few = ("--replay-initial", "60", "--max-env-steps", "100", "--threads", "1", "--runs-dir", str(own / script))
    path = str(ROOT / "experiments" / f"{script}.py")

    def run(*words: str) -> str:
        done = forks.run([path, *words], own)
        assert done.returncode == 0, done.stderr
        return done.stdout

    said = run(*training[2:], *few)
    assert "catch:Catch: " in said
    assert "of the whole picture in gray, frame skip 1, no-ops none, stack 4" in said
    folder = only_run(own / script)
    result = summary(folder)
    assert result["updates"] > 5
    assert 5 <= result["episodes"] <= 10
    if script != "09_cuda_graph":
        return
    assert looking[:3] == ["fastdqn", "evaluate", "latest"]
    trusted = ("--game", "catch:Catch")
    assert " ".join(looking).count(" ".join(trusted)) == 3
    done = fastdqn("evaluate", str(folder), "--games", "3", *trusted, cwd=own)
    assert "3 games, 33 env steps: mean" in done.stdout, done.stderr
    done = fastdqn("watch", str(folder), "--out", "catch.gif", "--values", *trusted, cwd=own)
    assert "a game of 11 env steps, score" in done.stdout, done.stderr
    assert "the games continue where they were" in run("--resume", str(folder), "--max-env-steps", "130", *trusted)
