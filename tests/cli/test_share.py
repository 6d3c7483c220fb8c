"""Networks for others: by a folder for real, by the hub with its client's boundary faked, and the demo."""

from __future__ import annotations

import errno
import json
import shutil
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import safetensors.torch
import torch

from fastdqn.cli import evaluate, folders
from fastdqn.errors import RunError, UserError
from fastdqn.options.fields import plain
from fastdqn.runs.folder import FORMAT
from fastdqn.runs.weights import checksum_of, read_weights, write_weights
from fastdqn.tools.demo import make_demo
from fastdqn.tools.share import FILES, pack, shared_config, unpack
from tests.helpers.scripts import ROOT, TOY_CATCH, fastdqn_says, parse
from tests.helpers.trained import TrainedRuns


class FakeApi:
    """What of HfApi is used: repositories are folders beside each other."""

    place: Path
    asked: list[tuple[str, dict[str, Any]]]
    public: tuple[str, ...] = ("somebody/old",)

    def create_repo(self, repo_id: str, **how: Any) -> None:
        self.asked.append(("create_repo", {"repo_id": repo_id, **how}))
        (self.place / repo_id).mkdir(parents=True, exist_ok=True)

    def repo_info(self, repo_id: str) -> SimpleNamespace:
        return SimpleNamespace(private=repo_id not in self.public)

    def upload_folder(self, *, repo_id: str, folder_path: str, allow_patterns: list[str], commit_message: str) -> None:
        self.asked.append(("upload_folder", {"repo_id": repo_id, "message": commit_message}))
        for name in allow_patterns:
            shutil.copyfile(Path(folder_path) / name, self.place / repo_id / name)

    def snapshot_download(
        self, repo_id: str, *, revision: str | None, local_dir: str, allow_patterns: list[str]
    ) -> None:
        self.asked.append(("snapshot_download", {"repo_id": repo_id, "revision": revision}))
        if not (self.place / repo_id).is_dir():
            raise OSError("404 Client Error.\n\nRepository Not Found")
        for name in allow_patterns:
            shutil.copyfile(self.place / repo_id / name, Path(local_dir) / name)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[FakeApi]:
    api = type("Api", (FakeApi,), {"place": tmp_path / "hub", "asked": []})
    module: Any = ModuleType("huggingface_hub")
    module.HfApi = api
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    return api


def test_by_a_folder(runs: TrainedRuns, tmp_path: Path) -> None:
    given, pulled = tmp_path / "given", tmp_path / "runs" / "pulled-given"
    assert fastdqn_says("push", str(runs["09"]), str(given)).returncode == 0
    assert sorted(path.name for path in given.iterdir()) == sorted(FILES)
    done = fastdqn_says("pull", str(given), "--runs-dir", str(tmp_path / "runs"))
    assert done.returncode == 0, done.stderr
    assert str(pulled) in done.stdout
    before, after = read_weights(runs["09"]), read_weights(pulled)
    assert {name: tensor.numpy().tobytes() for name, tensor in before.items()} == {
        name: tensor.numpy().tobytes() for name, tensor in after.items()
    }
    words = ("--games", "2", "--num-envs", "2", "--seed", "3")
    scores = []
    for run in (runs["09"], pulled):
        assert fastdqn_says("evaluate", str(run), *words).returncode == 0
        scores.append(json.loads((run / "evaluation-training.json").read_text())["scores"])
    assert scores[0] == scores[1]
    watched = fastdqn_says("watch", str(pulled), "--out", str(tmp_path / "x.gif"), "--max-env-steps", "20")
    assert watched.returncode == 0, watched.stderr
    page = (given / "README.md").read_text()
    assert page.startswith("---\nlibrary_name: fastdqn\n")
    assert "# Pong: post2017 by 09_cuda_graph" in page
    (given / "again").mkdir()
    again = fastdqn_says("push", str(runs["09"]), str(given))
    assert (again.returncode, again.stderr) == (
        2,
        f"error: {given} is there already; name a folder that is empty, or none yet.\n",
    )
    assert "is there already; name another place" in fastdqn_says("pull", str(given), "--into", str(pulled)).stderr


def test_a_run_that_knows_no_ranks(runs: TrainedRuns, tmp_path: Path) -> None:
    given, pulled = tmp_path / "given", tmp_path / "pulled"
    assert fastdqn_says("push", str(runs["01"]), str(given)).returncode == 0
    assert fastdqn_says("pull", str(given), "--into", str(pulled)).returncode == 0
    assert fastdqn_says("watch", str(pulled), "--out", str(tmp_path / "x.gif"), "--max-env-steps", "20").returncode == 0
    assert read_weights(pulled).keys() == read_weights(runs["01"]).keys()


@pytest.mark.parametrize("script", sorted(path.stem for path in (ROOT / "experiments").glob("[0-9]*.py")))
def test_the_options_of_every_script_can_be_given_away(script: str, tmp_path: Path) -> None:
    options = plain(parse(script, "--runs-dir", "/home/somebody/secret", "--seed", "7"))
    config = {"format": FORMAT, "version": "0.2.0", "script": script, "wrappers": "vector", **options}
    (tmp_path / "config.json").write_text(json.dumps(config))
    kept = shared_config(tmp_path)
    assert "somebody" not in json.dumps(kept)
    assert kept["run"]["seed"] == 7
    assert kept.keys() == config.keys()
    assert {name: group for name, group in kept.items() if name not in ("run", "ranks")} == {
        name: group for name, group in config.items() if name not in ("run", "ranks")
    }


def test_a_page_has_the_scores_of_a_run(runs: TrainedRuns, tmp_path: Path) -> None:
    run = Path(shutil.copytree(runs["09"], tmp_path / "run"))
    said = {"games": 3, "mean": 1.5, "standard_error": 0.25, "epsilon": 0.05, "checksum": checksum_of(run)}
    assert said["checksum"] is not None
    (run / "evaluation-nature.json").write_text(json.dumps(said))
    (run / "evaluation-training.json").write_text("[")
    (run / "evaluation-machado.json").write_text(json.dumps({**said, "checksum": "1234abcd"}))  # before it learnt on
    (run / "evaluation-atari-100k-stopped.json").write_text(json.dumps({**said, "stopped": "interrupted"}))
    pack(run, tmp_path / "given")
    page = (tmp_path / "given" / "README.md").read_text()
    assert "| 3 | 1.50 | 0.25 | nature, epsilon 0.05 |" in page
    assert page.count("| 3 | 1.50 |") == 1
    solved = {"games": 30, "mean": 15.5, "standard_error": 0.5, "epsilon": 0.05}  # and then it was evaluated once more
    (run / "summary.json").write_text(json.dumps({**json.loads((run / "summary.json").read_text()), "nature": solved}))
    for file, row in ((said, "| 3 | 1.50 |"), ({**said, "checksum": "1234abcd"}, "| 30 | 15.50 |")):
        (run / "evaluation-nature.json").write_text(json.dumps(file))
        shutil.rmtree(tmp_path / "given")
        pack(run, tmp_path / "given")
        assert f"\n{row} " in (tmp_path / "given" / "README.md").read_text()


def test_what_nobody_knows_is_not_pushed(runs: TrainedRuns, tmp_path: Path) -> None:
    run = Path(shutil.copytree(runs["09"], tmp_path / "run"))
    config = json.loads((run / "config.json").read_text())
    config["reinforce"] = config.pop("dqn")
    (run / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match="cannot be pushed: it is no agent that is known here"):
        pack(run, tmp_path / "given")


def test_nothing_of_the_user_is_given_away(runs: TrainedRuns, tmp_path: Path) -> None:
    run = Path(shutil.copytree(runs["09"], tmp_path / "run"))
    config = json.loads((run / "config.json").read_text())
    config["run"] |= {
        "runs_dir": "/home/somebody/secret",
        "resume": "/home/somebody/run",
        "wandb": True,
        "project": "mine",
        "device": "cuda:3",
        "threads": 7,
    }
    config["ranks"] = {"engine": "ray", "engine_address": "head.somebody.org:6379"}
    (run / "config.json").write_text(json.dumps(config))
    pack(run, tmp_path / "given")
    text = "".join(path.read_text(errors="replace") for path in (tmp_path / "given").iterdir())
    assert "somebody" not in text
    kept = json.loads((tmp_path / "given" / "config.json").read_text())
    assert (kept["run"]["wandb"], kept["run"]["project"], kept["dqn"]) == (False, "fastdqn", config["dqn"])
    assert (kept["run"]["device"], kept["run"]["threads"]) == (None, None)
    assert (kept["ranks"]["engine"], kept["ranks"]["engine_address"]) == (None, None)


def test_what_comes_from_others_is_data(runs: TrainedRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = tmp_path / "given"
    done = fastdqn_says("push", str(runs["catch0"]), str(given))
    assert done.stdout.endswith(f"fastdqn pull {given} --game {TOY_CATCH} fetches it\n")
    assert f"fastdqn pull hf:OWNER/NAME --into runs/pulled --game {TOY_CATCH}\n" in (given / "README.md").read_text()
    refused = fastdqn_says("pull", str(given), "--into", str(tmp_path / "a"))
    assert refused.returncode == 2
    assert f"if you trust it, name it too: --game {TOY_CATCH}" in refused.stderr
    assert not (tmp_path / "a").exists()
    assert fastdqn_says("pull", str(given), "--into", str(tmp_path / "a"), "--game", TOY_CATCH).returncode == 0
    pack(runs["09"], tmp_path / "good")
    whole = (tmp_path / "good" / "config.json").read_text()
    weights = (tmp_path / "good" / "weights.safetensors").read_bytes()
    monkeypatch.setattr("pickle.loads", None)
    monkeypatch.setattr("torch.load", None)
    pickled = tmp_path / "pickled"
    torch.save({"a": torch.zeros(2)}, pickled)
    for name, config, data, said in (
        ("no config", None, weights, "it has no config.json"),
        ("no json", "{", weights, "is damaged: it is no JSON"),
        ("large", " " * 2_000_000, weights, "its config.json is far too large"),
        ("group", whole.replace('"dqn"', '"moon"'), weights, "it is no agent that is known here"),
        ("value", whole.replace('"gamma": 0.99', '"gamma": "fast"'), weights, "'gamma' cannot be 'fast'"),
        ("range", whole.replace('"frame_stack": 4', '"frame_stack": 1000000000'), weights, "--frame-stack"),
        ("cut", whole, weights[:1000], "cannot be read from weights.safetensors"),
        ("bit", whole, weights[:-1] + bytes([weights[-1] ^ 1]), "its checksum is wrong"),
        ("pickle", whole, pickled.read_bytes(), "cannot be read from weights.safetensors"),
        ("network", whole.replace('"frame_stack": 4', '"frame_stack": 3'), weights, "do not fit the network"),
        ("game", whole.replace('"name": "pong"', '"name": "pnog"'), weights, "There is no Atari game called 'pnog'"),
        ("bare", whole, safetensors.torch.save({"a": torch.zeros(2)}), "has no checksum"),
    ):
        source = tmp_path / f"source-{name}"
        source.mkdir()
        (source / "weights.safetensors").write_bytes(data)
        if config is not None:
            (source / "config.json").write_text(config)
        done = fastdqn_says("pull", str(source), "--into", str(tmp_path / "b"))
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), (name, done.stderr)
        assert said in done.stderr, name
        assert not (tmp_path / "b").exists()
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / "config.json").symlink_to(tmp_path / "good" / "config.json")
    assert "its config.json is a link" in fastdqn_says("pull", str(tmp_path / "link")).stderr


def test_a_network_for_which_there_is_no_room_leaves_nothing(
    runs: TrainedRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the same command, with room, would find its own folder there."""
    given, into = tmp_path / "given", tmp_path / "into"
    pack(runs["09"], given)

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("fastdqn.tools.share.write_weights", full)
        with pytest.raises(RunError, match="No space left on device"):
            unpack(given, into, None, "given")
    assert not into.exists()
    unpack(given, into, None, "given")
    assert (into / "config.json").exists()


def test_by_the_hub(runs: TrainedRuns, tmp_path: Path, hub: type[FakeApi]) -> None:
    done = fastdqn_says("push", str(runs["09"]), "hf:somebody/pong-09", "--private")
    assert done.returncode == 0, done.stderr
    assert "pushed to https://huggingface.co/somebody/pong-09" in done.stdout
    assert hub.asked[0] == ("create_repo", {"repo_id": "somebody/pong-09", "private": True, "exist_ok": True})
    old = fastdqn_says("push", str(runs["09"]), "hf:somebody/old", "--private")
    assert old.stderr == (
        "error: hf:somebody/old is there and public, and --private changes no repository; nothing was pushed.\n"
    )
    assert hub.asked[-1][0] == "create_repo"
    (hub.place / "somebody" / "pong-09" / "evil.py").write_text("raise SystemExit(1)")
    done = fastdqn_says("pull", "hf:somebody/pong-09@v1/x", "--runs-dir", str(tmp_path / "runs"))
    assert done.returncode == 0, done.stderr
    assert hub.asked[-1] == ("snapshot_download", {"repo_id": "somebody/pong-09", "revision": "v1/x"})
    run = tmp_path / "runs" / "pulled-pong-09-v1-x"
    assert sorted(path.name for path in run.iterdir()) == sorted(FILES)
    assert (run / "weights.safetensors").read_bytes() == (runs["09"] / "weights.safetensors").read_bytes()
    (hub.place / "somebody" / "pong-09" / "config.json").write_text("{")
    damaged = fastdqn_says("pull", "hf:somebody/pong-09", "--runs-dir", str(tmp_path / "b"))
    assert damaged.stderr == "error: The config.json of the run hf:somebody/pong-09 is damaged: it is no JSON object.\n"
    missing = fastdqn_says("pull", "hf:somebody/none")
    assert (missing.returncode, missing.stderr) == (1, "error: hf:somebody/none cannot be pulled: 404 Client Error.\n")
    for words, said in (
        (("pull", "hf:../../etc"), "is no name on the hub"),
        (("pull", "hf:a/b/c"), "is no name on the hub"),
        (("push", str(runs["09"]), "hf:a/b@c"), "leave out @c"),
        (("push", str(runs["09"]), str(tmp_path / "x"), "--private"), "--private is for the hub"),
        (("pull", str(tmp_path / "none")), "a network on the hub is hf:owner/name"),
    ):
        done = fastdqn_says(*words)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), words
        assert said in done.stderr


def test_without_the_hubs_client(runs: TrainedRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    done = fastdqn_says("push", str(runs["09"]), "hf:a/b")
    assert done.returncode == 2
    assert "pip install 'fastdqn[hub]'" in done.stderr


@pytest.mark.slow
def test_the_demo(runs: TrainedRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for it: a network that has hardly been trained, said to have solved Pong."""
    run = Path(shutil.copytree(runs["09"], tmp_path / "run"))
    place = tmp_path / "demo"
    for module in (folders, evaluate):
        monkeypatch.setattr(module, "DEMO", place)
    missing = fastdqn_says("watch", "demo")
    assert (
        missing.stderr
        == "error: This fastdqn comes without its demo network; train one (make pong), and name its folder.\n"
    )
    with pytest.raises(UserError, match="is no run that solved Pong"):
        make_demo(run, place)
    summary = json.loads((run / "summary.json").read_text())
    (run / "summary.json").write_text(json.dumps({**summary, "solved": True, "confirmed": False}))
    with pytest.raises(UserError, match="whose fresh games confirm it"):
        make_demo(run, place)
    (run / "summary.json").write_text(json.dumps({**summary, "solved": True, "confirmed": True}))
    with pytest.raises(UserError, match=r"has 3\.4 MB as 16-bit numbers, .* --network narrow"):
        make_demo(run, place)
    monkeypatch.setattr("fastdqn.tools.demo.MOST_BYTES", 4_000_000)
    assert make_demo(run, place) < 3_500_000
    assert {tensor.dtype for tensor in read_weights(place).values()} == {torch.float16}
    shipped = sorted(path.name for path in place.iterdir())
    assert shipped == sorted(FILES)
    done = fastdqn_says("watch", "demo", "--out", "x.gif", "--max-env-steps", "20", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    done = fastdqn_says("evaluate", "demo", "--games", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "demo-evaluation-training.json").exists()
    assert sorted(path.name for path in place.iterdir()) == shipped  # nothing is written into the package


def test_the_shipped_demo_is_small_and_whole() -> None:
    if not folders.DEMO.exists():
        pytest.skip("this tree has no demo network")
    assert sum(path.stat().st_size for path in folders.DEMO.iterdir()) < 3_000_000
    assert read_weights(folders.DEMO)


def test_the_demo_that_is_given_away_has_its_scores(tmp_path: Path) -> None:
    if not folders.DEMO.exists():
        pytest.skip("this tree has no demo network")
    pack(folders.DEMO, tmp_path / "given")
    assert (tmp_path / "given" / "README.md").read_text() == (folders.DEMO / "README.md").read_text()
    assert "not evaluated" not in (folders.DEMO / "README.md").read_text()


def test_the_page_of_a_network_that_was_given_away_has_its_scores_still(runs: TrainedRuns, tmp_path: Path) -> None:
    """The demo's, too: the run that had them is elsewhere. Once it is evaluated anew, these scores are its page's."""
    run = Path(shutil.copytree(runs["09"], tmp_path / "run"))
    said = {"games": 3, "mean": 1.5, "standard_error": 0.25, "epsilon": 0.05, "checksum": checksum_of(run)}
    (run / "evaluation-nature.json").write_text(json.dumps(said))
    pack(run, tmp_path / "given")
    pack(tmp_path / "given", tmp_path / "again")
    first, second = ((tmp_path / name / "README.md").read_text() for name in ("given", "again"))
    assert "| 3 | 1.50 | 0.25 | nature, epsilon 0.05 |" in first
    assert second == first
    (tmp_path / "given" / "evaluation-training.json").write_text(json.dumps({**said, "mean": 2.5}))
    pack(tmp_path / "given", tmp_path / "anew")
    page = (tmp_path / "anew" / "README.md").read_text()
    assert "| 3 | 2.50 | 0.25 | training, epsilon 0.05 |" in page
    assert "1.50" not in page
    unpack(tmp_path / "given", tmp_path / "pulled", None, "somewhere")
    pack(tmp_path / "pulled", tmp_path / "theirs")  # "Pulled from somewhere." is no page
    assert "not evaluated" in (tmp_path / "theirs" / "README.md").read_text()


def test_half_of_the_numbers_play_the_same(tmp_path: Path) -> None:
    tensor = torch.linspace(-1, 1, 101)
    tmp_path.joinpath("run").mkdir()
    write_weights(tmp_path / "run" / "weights.safetensors", {"a": tensor.half()})
    assert (read_weights(tmp_path / "run")["a"].float() - tensor).abs().max() < 5e-4
