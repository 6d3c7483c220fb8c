"""bench/tables.py: the tables of README.md and docs are what bench/results says, and nothing uncited stays there."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from bench import pages, records, tables
from bench.tables import NEWEST, ROOT, VARIANTS, DataError, Page

RESULTS = ROOT / "bench" / "results"
OF_A_RUN = {"config.json", "environment.json", "episodes.jsonl", "summary.json"}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the pages, with the data linked file by file."""
    for page in tables.pages():
        (tmp_path / page.name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / page.name, tmp_path / page.name)
    for file in RESULTS.rglob("*.json*"):
        link = tmp_path / file.relative_to(ROOT)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(file)
    return tmp_path


def text_of_pages() -> str:
    return "\n".join((ROOT / page.name).read_text(encoding="utf-8") for page in tables.pages())


def kept() -> list[Path]:
    """Return the files in bench/results that git knows; a measurement of today's is in nobody's way."""
    words = ["git", "ls-files", "-z", "bench/results"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    tracked = [ROOT / name for name in done.stdout.split("\0") if name]
    files = tracked if done.returncode == 0 and tracked else list(RESULTS.rglob("*"))
    return [file.relative_to(RESULTS) for file in files if file.is_file()]


def uncited(files: Iterable[Path], text: str) -> list[str]:
    """Return those of `files`, named from bench/results, that `text` does not link, by name or by their run."""
    cited = set(re.findall(r"bench/results/([\w./-]+)", text))
    return [
        file.as_posix()
        for file in files
        if file.as_posix() not in cited and not (file.parent.as_posix() in cited and file.name in OF_A_RUN)
    ]


def test_the_pages_have_what_the_data_say(capsys: pytest.CaptureFixture[str]) -> None:
    assert tables.main(["--check"]) == 0, capsys.readouterr().out


def test_every_table_is_on_a_page() -> None:
    assert {found["name"] for found in tables.MARKED.finditer(text_of_pages())} == set(tables.TABLES)


@pytest.mark.parametrize("name", list(tables.TABLES))
def test_a_changed_digit_is_noticed_and_mended(name: str, checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = next(page for page in tables.pages(checkout) if f"table: {name} -->" in (checkout / page.name).read_text())
    path = checkout / page.name
    right = path.read_text(encoding="utf-8")
    head, tail = right.split(f"table: {name} -->", 1)
    changed = re.sub(r"\d(?=\D)", lambda digit: str((int(digit[0]) + 1) % 10), tail, count=1)
    wrong = f"{head}table: {name} -->{changed}"
    assert wrong != right
    path.write_text(wrong, encoding="utf-8")

    assert tables.main(["--check"], checkout) == 1
    assert capsys.readouterr().out == (
        f"{page.name}: the table {name} is not what bench/results says; run python bench/tables.py.\n"
    )
    assert path.read_text(encoding="utf-8") == wrong

    assert tables.main([], checkout) == 0
    assert path.read_text(encoding="utf-8") == right


def test_text_outside_of_the_markers_stays_as_it_is() -> None:
    page = Page(ROOT, "README.md")
    text = "before 1\n<!-- table: steps -->\n<!-- end -->\nafter | 2 |\n"
    after, stale = tables.rewritten(text, page)
    assert stale == ["steps"]
    assert after.startswith("before 1\n<!-- table: steps -->\n| N |")
    assert after.endswith("\n<!-- end -->\nafter | 2 |\n")
    assert tables.rewritten(after, page) == (after, [])


@pytest.mark.parametrize("name", [f"{NEWEST.ladder}.jsonl", f"{NEWEST.variants}/dqn/episodes.jsonl"])
def test_missing_data_are_one_sentence(name: str, checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (checkout / "bench" / "results" / name).unlink()
    assert tables.main(["--check"], checkout) == 2
    said = capsys.readouterr().err
    assert said == f"error: bench/results/{name} cannot be read: No such file or directory.\n"


def test_damaged_data_are_one_sentence(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = checkout / "bench" / "results" / f"{NEWEST.steps}.jsonl"
    text = path.read_text(encoding="utf-8")
    path.unlink()
    path.write_text(text[:-20], encoding="utf-8")
    assert tables.main([], checkout) == 2
    assert capsys.readouterr().err.startswith(f"error: bench/results/{NEWEST.steps}.jsonl is damaged: ")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<!-- table: steps -->\n", "not closed"),
        ("<!-- table: steps -->\n<!-- table: parts -->\n<!-- end -->\n", "not closed"),
        ("<!-- table: stepz -->\n<!-- end -->\n", "the table stepz"),
    ],
)
def test_markers_that_name_nothing_are_refused(text: str, said: str) -> None:
    with pytest.raises(DataError, match=said):
        tables.rewritten(text, Page(ROOT, "README.md"))


@pytest.mark.parametrize(
    ("file", "changes", "said"),
    [
        ("summary", {"solved": False}, "did not solve Pong"),
        ("summary", {"confirmed": False}, "is not confirmed by fresh games"),
        ("summary", {"confirmed": None}, "is not confirmed by fresh games"),
        ("summary", {"fresh": {"games": 99}}, "has fewer than 100 fresh games"),
        ("environment", {"resumed_at_env_step": 100_000}, "was resumed"),
        ("environment", {"commit": "4e89fa473d68+"}, "is of code that was not committed"),
        ("config", {"game": {"name": "pong", "noop_max": 0}}, "is of another presentation of the game (noop_max)"),
    ],
)
def test_a_run_that_is_no_record_by_the_rules_has_no_time(
    file: str, changes: dict[str, Any], said: str, checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = NEWEST.pong[0].runs[0]
    path = checkout / "bench" / "results" / name / f"{file}.json"
    found = json.loads(path.read_text(encoding="utf-8"))
    path.unlink()
    path.write_text(json.dumps({**found, **changes}), encoding="utf-8")
    assert tables.main(["--check"], checkout) == 2
    assert capsys.readouterr().err == f"error: bench/results/{name} {said}: it has no time for a table.\n"


# What is in bench/results


def test_every_cited_file_is_there() -> None:
    runs = [name for setting in NEWEST.pong for name in setting.runs]
    runs += [f"{NEWEST.variants}/{name}" for name in VARIANTS]
    timings = [f"{name}.jsonl" for name in (NEWEST.ladder, NEWEST.ladder_before, NEWEST.steps, NEWEST.parts)]
    for name in [*timings, *(f"{run}/{file}" for run in runs for file in sorted(OF_A_RUN))]:
        assert (RESULTS / name).is_file(), name


def test_every_link_of_the_pages_leads_somewhere() -> None:
    for page in tables.pages():
        text = (ROOT / page.name).read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if "://" not in target:
                path = (ROOT / page.name).parent / target.split("#")[0]
                assert path.exists(), f"{page.name} links to {target}"


def test_nothing_uncited_stays() -> None:
    """Links that tables make count too; a mention in the log keeps nothing."""
    assert len(kept()) > 20
    assert uncited(kept(), text_of_pages()) == []


def test_what_no_page_cites_is_noticed() -> None:
    run = NEWEST.pong[0].runs[0]
    files = [
        Path(name) for name in ("20260101-000000-fps-cpu.jsonl", f"{run}/summary.json", f"{run}/run.log", "a/b.png")
    ]
    assert uncited(files, text_of_pages()) == ["20260101-000000-fps-cpu.jsonl", f"{run}/run.log", "a/b.png"]


# By hand


def test_the_game_at_which_a_mean_passes_a_level_by_hand() -> None:
    scores = [0.0, 4.0, 2.0, 3.0, -9.0]
    assert tables.passed(scores, 2.0, games=2) == 2  # (4 + 2) / 2; (0 + 4) / 2 is not above 2
    assert tables.passed(scores, 3.0, games=2) is None
    assert tables.passed(scores, -1.0, games=6) is None


@pytest.mark.parametrize(
    ("cpu", "said"),
    [
        ("AMD EPYC family 25 model 1 ['avx2']", "AMD EPYC (Zen 3, no bf16)"),
        ("AMD EPYC family 25 model 17 ['avx2', 'avx512f', 'avx512_bf16']", "AMD EPYC (Zen 4, bf16)"),
        ("AMD EPYC family 26 model 2 ['avx2', 'avx512f', 'avx512_bf16']", "AMD EPYC (Zen 5, bf16)"),
        ("Some Xeon family 6 model 143 ['avx2', 'amx_bf16']", "Some Xeon (family 6 model 143, AMX with bf16)"),
        ("Intel(R) Xeon(R) Processor family 6 model 106 ['avx512f']", "Intel Xeon (family 6 model 106, no bf16)"),
        ("arm64", "arm64"),
    ],
)
def test_processors_by_the_names_of_their_designs(cpu: str, said: str) -> None:
    assert pages.processor({"cpu": cpu}) == said


def test_the_network_of_a_run() -> None:
    assert records.network_of({"format": 3, "agent": {"network": "narrow"}}) == "narrow"
    assert records.network_of({"script": "09_cuda_graph"}) == "nature"


def test_spread_by_hand() -> None:
    assert tables.spread([1200.0, 900.0, 1000.0], 0) == "1,000 (900-1,200)"


def test_no_result_says_where_on_a_machine_it_was_made() -> None:
    here = re.compile(r'"(/(tmp|home|root|work|Users|mnt|var)/|[A-Z]:)')
    texts = [RESULTS / file for file in kept() if file.suffix in (".json", ".jsonl")]
    texts += (ROOT / "sweeps").glob("*/*.json")
    texts += (ROOT / "sweeps").glob("*/results/*.json")
    assert len(texts) > 100
    assert [str(file) for file in texts if here.search(file.read_text(encoding="utf-8"))] == []
