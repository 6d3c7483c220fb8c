"""Tables of timings: the ladder and its ceilings, parts, actor-critics, the trainer's thread."""

from __future__ import annotations

from typing import Any, NamedTuple

from bench.fps_figures import gains_of, ratios
from bench.newest import Sources
from bench.pages import Page, grid, machine, processor, software, spread

IDEAS = {  # and env steps/s of 2017 on a GTX 1080Ti
    "01_baseline": ("play 1 step, train on 32", "154"),
    "02_play_steps": ("play 4 steps, train on 128", "227"),
    "03_parallel": ("play and train in two processes", "395"),
    "04_cuda_async": ("host-to-device copies that do not wait", "406"),
    "05_opencv_wrappers": ("faster wrappers", "484"),
    "06_vector_env": ("many games at once", ""),
    "07_device_replay": ("the replay is one tensor on the training device", ""),
    "08_overlap": ("the emulators play while the update runs", ""),
    "09_cuda_graph": ("a whole update in one launch; on a CPU its fastest plain form", ""),
}
APART = {"09_cuda_graph --precision fp32": ("09 without bf16", "")}
"""What of a step's gain is due to one part of it, timed in the same turns."""
READ_FIRST = ("01_baseline", "08_overlap", "09_cuda_graph")
SLOW = {
    "nothing": "its own",
    "python": "and {each} of Python",
    "outside": "and {each} outside Python",
    "sleep": "and {each} asleep",
}
STEPS_2017 = {"1": 154, "2": 200, "3": 212, "4": 227, "5": 228, "6": 232}
CEILINGS = {
    "--wrappers classic": ("one game, classic wrappers", "01 to 04", "env steps/s"),
    "--wrappers opencv": ("one game, OpenCV", "05", "env steps/s"),
    "--wrappers vector --num-envs 8": ("eight games in C++ threads", "06 to 09", "env steps/s"),
    "--form plain --batch-size 32": ("plain update, batch 32", "01", "samples/s"),
    "--form plain --batch-size 128": ("plain update, batch 128", "02 to 08", "samples/s"),
    "--form fast --batch-size 128": ("fastest update, batch 128", "09", "samples/s"),
    "--form fast --batch-size 128 --precision fp32": ("the same in float32", "09 without bf16", "samples/s"),
}


class Timing(NamedTuple):
    """A file of bench/fps.py."""

    stamp: dict[str, Any]
    rows: dict[str, dict[str, Any]]
    ceilings: dict[str, list[float]]  # by the words that asked for them


def timing_of(page: Page, name: str) -> Timing:
    timing = Timing({}, {}, {})
    for line in page.read(f"{name}.jsonl"):
        if line["kind"] == "environment":
            timing.stamp.update(line)
        elif line["kind"] == "row":
            timing.rows[line["row"]] = line
        elif line["kind"] == "ceiling" and "words" in line:
            unit = "env_steps_per_s" if line["what"] == "env" else "samples_per_s"
            timing.ceilings.setdefault(" ".join(line["words"]), []).append(line[unit])
    return timing


def timed(page: Page, name: str, timing: Timing) -> str:
    stamp = timing.stamp
    repeats = f"median (range) of {stamp['options']['repeats']} interleaved repetitions"
    return f"Measured on {machine(stamp)}; {repeats}; {software([stamp])}; {page.data('data', f'{name}.jsonl')}."


def turns(row: dict[str, Any], first: dict[str, Any]) -> list[float]:
    """Return how many times as fast a row was as the first one, in each turn."""
    return [1.0] if row is first else ratios(row["env_steps_per_s_all"], first["env_steps_per_s_all"])


def ladder(page: Page, sources: Sources) -> str:
    new, old = timing_of(page, sources.ladder), timing_of(page, sources.ladder_before)
    heads = ["script", "the idea", "env steps/s", "gain over 01", "of the update's speed alone"]
    heads += [f"gain on {processor(old.stamp)}", "2017, GTX 1080Ti, env steps/s"]
    rows: list[list[str]] = []
    for label, (idea, in_2017) in (IDEAS | APART).items():
        row, (script, _, more) = new.rows[label], label.partition(" ")
        called = page.link(script, f"experiments/{script}.py") + (f" `{more}`" if more else "")
        gains = turns(row, new.rows["01_baseline"])
        cells = [called, idea, spread(row["env_steps_per_s_all"]), spread(gains, 2)]
        before = f"{old.rows[label]['gain_over_first']:.2f}" if label in old.rows else ""
        rows.append([*cells, f"{row['share_of_update_only']:.0%}", before, in_2017])
    first = f"There 01 made {spread(old.rows['01_baseline']['env_steps_per_s_all'])} env steps/s."
    note = f"{timed(page, sources.ladder, new)}\n{timed(page, sources.ladder_before, old)} {first}"
    return f"{grid(heads, rows, note)}\n\n!{page.data('env steps/s of all scripts', f'{sources.ladder}.png')}"


def ladder_short(page: Page, sources: Sources) -> str:
    timing = timing_of(page, sources.ladder)
    rows: list[list[str]] = []
    for script, (idea, in_2017) in IDEAS.items():
        gain = f"{timing.rows[script]['gain_over_first']:.2f}"
        read = page.link(script, f"experiments/{script}.py")
        rows.append([f"**{read}**" if script in READ_FIRST else read, idea, gain, in_2017])
    note = f"In bold: read these first. {machine(timing.stamp)}, {software([timing.stamp])}."
    return grid(("script", "the idea", "speed, 01 = 1", "2017, GTX 1080Ti, env steps/s"), rows, note)


def ladder_gpu(page: Page, sources: Sources) -> str:
    lines = [line for name in sources.ladder_gpu for line in page.read(f"{name}.jsonl")]
    stamps = [line for line in lines if line["kind"] == "environment"]
    trials = [line for line in lines if line["kind"] == "trial"]
    rows: list[list[str]] = []
    for line in trials:
        speed, samples = line["env_steps_per_s"], line["samples_per_step"]
        script, _, more = line["row"].partition(" ")
        told = [page.link(script, f"experiments/{script}.py"), f"`{more}`" if more else "", f"{line['games']}"]
        told += [f"{line['batch_size']}", f"{samples:.0f}", f"{speed:,.0f}", f"{speed * samples:,.0f}"]
        told.append(f"{line['updates_per_s']:,.0f}")
        alike = round(samples) == round(trials[0]["samples_per_step"])
        gain = speed / trials[0]["env_steps_per_s"]
        rows.append([*told, f"{gain:.{0 if gain >= 10.0 else 1}f}" if alike else ""])
    heads = ["script", "options", "games at once", "batch", "samples for each env step"]
    heads += ["env steps/s", "samples/s", "updates/s", "x 01"]
    links = ", ".join(page.data(f"data {number}", f"{name}.jsonl") for number, name in enumerate(sources.ladder_gpu, 1))
    lengths = sorted({round(line["measured_seconds"]) for line in trials})
    each = " to ".join(str(length) for length in dict.fromkeys((lengths[0], lengths[-1])))
    note = f"Measured once each, for {each} s, on {machine(stamps[0])}; {software(stamps)}; {links}."
    return grid(heads, rows, note)


def ceilings(page: Page, sources: Sources) -> str:
    timing = timing_of(page, sources.ladder)
    rows = [[what, of, spread(timing.ceilings[asked], 0), unit] for asked, (what, of, unit) in CEILINGS.items()]
    return grid(("alone", "of", "speed", "unit"), rows, timed(page, sources.ladder, timing))


def steps(page: Page, sources: Sources) -> str:
    timing = timing_of(page, sources.steps)
    speeds = {label.split("=")[1]: spread(row["env_steps_per_s_all"]) for label, row in timing.rows.items()}
    rows = [
        ["env steps/s", *speeds.values()],
        ["2017, GTX 1080Ti, env steps/s", *(str(STEPS_2017.get(n, "")) for n in speeds)],
    ]
    return grid(("N", *speeds), rows, timed(page, sources.steps, timing))


def parts(page: Page, sources: Sources) -> str:
    timing = timing_of(page, sources.parts)
    alone = {words.split("--variant ")[-1]: values for words, values in timing.ceilings.items()}
    rows: list[list[str]] = []
    for label, row in timing.rows.items():
        variant, gain = label.split("=")[1], f"{row['gain_over_first']:.2f}"
        rows.append([variant, spread(row["env_steps_per_s_all"], 0), gain, spread(alone[variant], 0)])
    heads = ("variant", "env steps/s", "x dqn", "the update alone, samples/s")
    return grid(heads, rows, timed(page, sources.parts, timing))


def actor_critics(page: Page, sources: Sources) -> str:
    timing = timing_of(page, sources.actor_critics)
    rows: list[list[str]] = []
    for label, row in timing.rows.items():
        script, players, games = label.split()[0], int(row["players"]), int(row["games"])
        if not script.startswith("2"):  # 20 to 22 alone: PPO is another algorithm
            continue
        who = f"{players} player{'s' if players > 1 else ''}" if "--players" in label else "this process"
        cells = [page.link(script, f"experiments/{script}.py"), who, f"{games // players}"]
        cells += [spread(row["env_steps_per_s_all"], 0), spread(turns(row, timing.rows["20_a2c"]), 2)]
        rows.append([*cells, f"{row['samples_per_step']:.1f}", f"{row['share_of_env_only']:.0%}"])
    heads = ("script", "who plays", "games of each", "env steps/s", "x 20", "samples for each env step")
    return grid((*heads, "of the games alone"), rows, timed(page, sources.actor_critics, timing))


def trainer_thread(page: Page, sources: Sources) -> str:
    stamp: dict[str, Any] = {}
    rows: list[list[str]] = []
    for line in page.read(f"{sources.trainer_thread}.jsonl"):
        if line["kind"] == "environment":
            stamp = line
        if line["kind"] == "row":
            speeds = [spread(of, 0) for of in line["speeds"].values()]
            every = line.get("steps_per_update")  # there was one pace alone before, of which the page speaks
            pace = f", {every:g} env step{'s' if every != 1 else ''} an update" if every else ""
            gain = spread(gains_of(line["speeds"]), 2)
            rows.append([SLOW[line["work"]], line["algorithm"].upper() + pace, *speeds, gain])
    each = f"{float(stamp['options']['milliseconds']):g} ms"
    rows = [[cell.format(each=each) for cell in row] for row in rows]
    heads = ("each step of the environment", "algorithm", "no thread", "no thread, PyTorch on all cores", "a thread")
    note = timed(page, sources.trainer_thread, Timing(stamp, {}, {}))
    return grid((*heads, "a thread, over the better without"), rows, f"Env steps/s. {note}")
