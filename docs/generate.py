"""Generate the tables, figures and outputs in the documentation, so that none of them is typed by hand.

    python docs/generate.py             write the parts that are the same on every machine: the blocks, the .dot file
    python docs/generate.py --check     only report parts that are out of date (tests/unit/docs/test_docs.py)
    python docs/generate.py --measure [NAME...]
                                        also run all or some benchmarks, with the mpirun on PATH (45 minutes)
    python docs/generate.py --experiments [NAME...]
                                        also run all or some experiments (an hour)
    python docs/generate.py --ideals    also compute the zero-cost limits of the experiments again
    python docs/generate.py --simulate  also simulate up to 65 536 ranks (15 minutes)
    python docs/generate.py --defaults  also time the choices of algorithm="auto" against all others (two minutes)
    python docs/generate.py --pictures  also draw the pictures of the simulators and of graphviz
    python docs/generate.py --trace     also draw the traces of runs, on an otherwise idle machine
    python docs/generate.py --ci        also keep the times and counts of the last `.ci/run`
    python docs/generate.py --stale     list the results, with the number of commits that changed the sources since

A block is between `<!-- begin NAME -->` and `<!-- end NAME -->`. Measurements are stored in docs/results: the JSON
lines that bench/plot.py draws, and the printed tables. They need a clean checkout, a package that was built from it
(`make install`), and an otherwise idle machine. If one of several measurements fails, the others are stored, and the
failed one keeps its previous results.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import mpi4py

mpi4py.rc.initialize = False  # nothing here communicates

import defaults  # noqa: E402
from benchmark_tables import BENCHMARKS  # noqa: E402
from claims import CLAIMS, claims_table, verdicts  # noqa: E402
from experiment_tables import (  # noqa: E402
    accuracy_compared,
    decision,
    experiment_results,
    experiments_section,
    measured_by_load,
    methods_compared,
    three_numbers,
)
from measurements import (  # noqa: E402
    MEASUREMENTS,
    RESULTS,
    ROOT,
    UncleanError,
    ages,
    collected,
    keep_ci,
    measure,
    require_clean,
    run,
)
from pictures import PICTURES  # noqa: E402
from tables import (  # noqa: E402
    SIMULATED_RANKS,
    build_times,
    ci_summary,
    defaults_table,
    forecasts_table,
    headline,
    markdown,
    overlap_table,
    simulated_latencies,
    slower,
    wheel_table,
)

import pycollectives as pc  # noqa: E402
from pycollectives import groups, policies  # noqa: E402
from pycollectives._version import commit as built_from  # noqa: E402
from pycollectives.experiments import report  # noqa: E402
from pycollectives.experiments.experiment import catalogue, find  # noqa: E402
from pycollectives.experiments.ideal import ideal_steps_per_s  # noqa: E402
from pycollectives.experiments.runner import compare  # noqa: E402
from pycollectives.simulation import mixing, workload  # noqa: E402
from pycollectives.simulation.allreduce import simulate  # noqa: E402
from pycollectives.simulation.groups import simulate_groups  # noqa: E402
from pycollectives.support.native import core  # noqa: E402
from pycollectives.train.files import dumps, replace  # noqa: E402
from pycollectives.train.job import Plan  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

FIGURES = ROOT / "docs" / "figures"

# --- Blocks ---------------------------------------------------------------------------------------------------------


def algorithms_table() -> str:
    rows = [[f"`{a['name']}`", a["steps"], a["bytes"], a["reference"]] for a in core.algorithms()]
    return markdown(["name", "steps", "bytes sent per rank", "reference"], rows)


def activation_in_words() -> str:
    """Return the comment at the top of the file of the activations."""
    lines = itertools.takewhile(
        lambda line: line.startswith("//"), (ROOT / "csrc" / "algorithms" / "activation.cc").read_text().splitlines()
    )
    return "\n".join(line[2:].strip() for line in lines)


LOADS = (  # title, load, work and skew in seconds, calls of 8 ranks
    ("one of 8 late by 200 ms on 195 ms", "one-late", 0.195, 0.2),
    ("all late by 50 to 400 ms on 100 ms, in rotation", "shifting", 0.1, 0.4),
    ("lognormal, mean 1.2 s, shape 0.55", "lognormal", 1.2, 0.66),
    ("399 to 1892 ms, mean 454 ms, as on a cloud", "cloud", 0.399, 0.055),
    ("one rank 10 times slower", "one-slow", 0.1, 0.9),
)
CHOICES = ("full", "quorum:6", "quorum:4", "majority", "solo")


def policies_table() -> str:
    rows = []
    for title, load, work, skew in LOADS:
        seconds = workload.make(load, ranks=8, calls=400, work=work, skew=skew, seed=1)
        for text in CHOICES:
            summary = simulate(seconds, policies.parse(text), nbytes=8, algorithm="recursive_doubling")
            rows.append(
                [
                    title,
                    f"`{text}`",
                    f"{summary.throughput:.2f}x",
                    f"{summary.contributors_mean:.1f}",
                    f"{summary.active_mean:.1f}",
                    f"{summary.missed_mean:.2f}",
                    f"{100 * summary.late_fraction:.0f} %",
                ]
            )
            title = ""
    return markdown(["load", "policy", "throughput", "contributors", "active", "missed per call", "late calls"], rows)


GENERATORS: dict[str, groups.AnyGroups] = {
    "RandomGroups()": groups.RandomGroups(),
    "RandomGroups(group_buffer=False)": groups.RandomGroups(group_buffer=False),
    "StaticGroups(4)": groups.StaticGroups(4),
    "SmartGroups()": groups.SmartGroups(),
    "SmartGroups(inter_intra=False)": groups.SmartGroups(inter_intra=False),
    "PunctualGroups()": groups.PunctualGroups(),
}


def groups_table() -> str:
    """Simulate 16 workers on 4 nodes, worker 3 slowed down as in Ripples 7.4; P-Reduce and messages cost nothing."""
    slow = (0.0, 2.0, 5.0)
    full = [simulate_groups(None, 16, slowdown={3: s}).iterations_per_s for s in slow]
    rows = []
    for name, generator in GENERATORS.items():
        runs = [simulate_groups(generator, 16, slowdown={3: s}) for s in slow]
        speeds = [f"{r.iterations_per_s / f:.2f}x" for r, f in zip(runs, full, strict=True)]
        gap = mixing.spectral_gap(generator, size=16)
        rows.append(
            [f"`{name}`", *speeds, f"{100 * runs[-1].sync_fraction:.0f} %", f"{runs[0].conflicts:.1f}", f"{gap:.3f}"]
        )
    limits = [f"{(15 + 1 / (1 + s)) / 16 * (1 + s):.2f}x" for s in slow]
    rows.append(["no worker waits", *limits, "0 %", "", ""])
    head = ["generator", "all equal", "one 2x slower", "one 5x slower", "... time waiting", "conflicts", "spectral gap"]
    return markdown(head, rows)


def example_output() -> str:
    return f"```text\n{(RESULTS / 'example.txt').read_text().strip()}\n```"


def layers() -> str:
    """Return the map of `tools/check_layers.py`; of the Python parts, which have many uses, only the purposes."""
    command = [sys.executable, "tools/check_layers.py", "--map"]
    found = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    cpp, python = found.split("\n\n")
    return f"{cpp}\n\n" + re.sub(r" \|[^|]*\|$", " |", python, flags=re.MULTILINE)


BLOCKS: dict[str, Callable[[], str]] = {
    "algorithms": algorithms_table,
    "accuracy": accuracy_compared,
    "activation-in-words": activation_in_words,
    "build-times": build_times,
    "claims-verdicts": verdicts,
    **{f"claims-{paper}": partial(claims_table, paper) for paper in CLAIMS},
    "forecasts": forecasts_table,
    "ci": ci_summary,
    "headline": headline,
    "slower": slower,
    "layers": layers,
    "overlap": overlap_table,
    "policies": policies_table,
    "defaults": defaults_table,
    "simulated": simulated_latencies,
    "methods": methods_compared,
    "decision": decision,
    "three-numbers": three_numbers,
    "all-methods": partial(measured_by_load, "methods"),
    "experiments": experiments_section,
    "groups": groups_table,
    "wheel": wheel_table,
    "example-output": example_output,
    **BENCHMARKS,
}


def documents() -> list[Path]:
    pages = (path for folder in ("docs", "docs/design") for path in (ROOT / folder).glob("*.md"))
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(pages)]


def filled(text: str) -> str:
    """Return the text of a document with up-to-date blocks."""

    def fill(match: re.Match[str]) -> str:
        return f"<!-- begin {match[1]} -->\n\n{BLOCKS[match[1]]()}\n\n<!-- end {match[1]} -->"

    return re.sub(r"<!-- begin ([\w-]+) -->\n.*?<!-- end \1 -->", fill, text, flags=re.DOTALL)


def activation_dot() -> str:
    """Return the schedule of rank 3 of 4 (eager-SGD, Fig. 6)."""
    return str(core.plan_partial_allreduce("recursive_doubling", 3, 4, 1, activation="dissemination").dot())


def generated() -> dict[Path, str]:
    files = {path: filled(path.read_text()) for path in documents()}
    files[FIGURES / "activation.dot"] = activation_dot()
    return files


# --- Measurements ---------------------------------------------------------------------------------------------------


FIGURES_OF = {
    "skew": ["skew-32"],
    "skew-8": ["skew-8"],
    "latency": ["latency-8"],
    "groups-slow": ["groups-16-slow-2", "groups-16-slow-5"],
    "zipline": ["zipline"],
}


def draw_figures(names: list[str]) -> None:
    """Draw the figures of the named measurements."""
    for figure, files in FIGURES_OF.items():
        if not set(files) & set(names):
            continue
        inputs = [str(RESULTS / f"{name}.jsonl") for name in files]
        run([sys.executable, "bench/plot.py", *inputs, "--output", str(FIGURES / f"{figure}.png")])


def simulate_latencies() -> None:
    """Simulate ranks that arrive together after equal work in each call, with the simulator's default costs."""
    options = ["--load", "equal", "--work-us", "1000", "--calls", "2", "--json"]
    lines = []
    for ranks in SIMULATED_RANKS:
        for policy in ("solo", f"quorum:{ranks // 2}"):
            lines.append(
                run([sys.executable, "-m", "pycollectives", "simulate", "-n", str(ranks), "--policy", policy, *options])
            )
    (RESULTS / "simulated.jsonl").write_text("".join(lines))


def run_experiments(names: list[str]) -> list[str]:
    """Run experiments; return the names of the failed ones."""
    with collected(RESULTS / "experiments") as everything:
        for name in names:
            command = ["tools/mpirun", "-n", str(find(name).ranks), sys.executable, "-m", "pycollectives"]
            command += ["experiments", "run", name, "--output"]
            everything.add(name, lambda folder, name=name, command=command: run([*command, f"{folder}/{name}.json"]))
    draw_experiments()
    return everything.failed


def renew_ideals() -> None:
    for found in experiment_results():
        jobs = {job.name: job for job in find(found["name"]).jobs}
        for result in found["results"]:
            settings = jobs[result["job"]].with_seed(result["seed"])
            result["ideal_steps_per_s"] = ideal_steps_per_s(settings, Plan.of(settings, rank=0, ranks=found["ranks"]))
        compare(found["results"])
        replace(RESULTS / "experiments" / f"{found['name']}.json", dumps(found, indent=1) + "\n")
    draw_experiments()


def draw_experiments() -> None:
    for found in experiment_results():
        report.plot(found, FIGURES / f"experiment-{found['name']}.png")


def run_example() -> None:
    example = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert example is not None
    output = run(["tools/mpirun", "-n", "4", sys.executable, "-c", example[1]])
    (RESULTS / "example.txt").write_text("\n".join(sorted(output.splitlines())) + "\n")


def draw_traces() -> None:
    """Run programs and commands of the documentation on 8 ranks, and draw their traces."""
    skewed, gap = program_of("tutorial.md", "time.sleep(1e-3"), program_of("hop.md", "time.sleep(0.2")
    draw_trace("trace", skewed, ["--rounds", "4:6"])
    draw_trace("hop-standard", gap)
    draw_trace("hop-backup", gap.replace('mode="standard"', 'mode="backup:1"'))


def program_of(page: str, part: str) -> str:
    """Return the only program of a page that contains `part`."""
    programs = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL)
    (program,) = [text for text in programs if part in text]
    return str(program)


def draw_trace(figure: str, program: str, options: Sequence[str] = ()) -> None:
    with tempfile.TemporaryDirectory() as folder:
        command = ["tools/mpirun", "-n", "8", sys.executable, "-c", program]
        subprocess.run(command, cwd=ROOT, check=True, env={**os.environ, "PYC_TRACE": f"{folder}/run.json"})
        files = sorted(str(path) for path in Path(folder).glob("run.rank?.json"))
        picture = ["-o", str(FIGURES / f"{figure}.png"), *options]
        run([sys.executable, "-m", "pycollectives", "trace", "draw", *files, *picture])


def render(dot_file: Path) -> None:
    dot = shutil.which("dot")
    if dot is None:
        print(f"graphviz is not installed: {dot_file.with_suffix('.svg').name} is left as it is", file=sys.stderr)
    else:
        run([dot, "-Tsvg", str(dot_file), "-o", str(dot_file.with_suffix(".svg"))])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--check", action="store_true")
    mode.add_argument("--measure", nargs="*", metavar="NAME")
    mode.add_argument("--experiments", nargs="*", metavar="NAME")
    mode.add_argument("--ideals", action="store_true")
    mode.add_argument("--simulate", action="store_true")
    mode.add_argument("--defaults", action="store_true")
    mode.add_argument("--pictures", action="store_true")
    mode.add_argument("--trace", action="store_true")
    mode.add_argument("--ci", action="store_true")
    mode.add_argument("--stale", action="store_true")
    arguments = parser.parse_args()
    if arguments.stale:
        for since, commit, name in ages(RESULTS, ROOT):
            print(f"{since if since >= 0 else 'unknown':>8} {commit:12}  {name}")
        return
    failed: list[str] = []
    if arguments.measure is not None or arguments.experiments is not None or arguments.simulate:
        try:
            require_clean(ROOT, pc.__version__, built_from)
        except UncleanError as error:
            sys.exit(f"error: {error}")
    if arguments.measure is not None:
        if unknown := set(arguments.measure) - set(MEASUREMENTS):
            parser.error(f"--measure: expected some of {', '.join(MEASUREMENTS)}, got {', '.join(sorted(unknown))}")
        names = arguments.measure or list(MEASUREMENTS)
        failed = measure(names)
        draw_figures([name for name in names if name not in failed])
        if not arguments.measure:
            run_example()
    if arguments.experiments is not None:
        failed = run_experiments(arguments.experiments or [one.name for one in catalogue()])
    if arguments.ideals:
        renew_ideals()
    if arguments.simulate:
        simulate_latencies()
    if arguments.defaults:
        (RESULTS / "defaults.jsonl").write_text(defaults.as_lines(list(defaults.cells())))
    if arguments.pictures:
        for name, draw in PICTURES.items():
            draw(FIGURES / f"{name}.png")
        for path in FIGURES.glob("*.dot"):
            render(path)
    if arguments.trace:
        draw_traces()
    if arguments.ci:
        try:
            keep_ci(ROOT / "build" / "ci.json", RESULTS)
        except (OSError, UncleanError) as error:
            sys.exit(f"error: {error}")
    stale = {path: text for path, text in generated().items() if not path.exists() or path.read_text() != text}
    if arguments.check:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is out of date: run `python docs/generate.py`")
        sys.exit(bool(stale))
    for path, text in stale.items():
        path.write_text(text)
        print(f"wrote {path.relative_to(ROOT)}")
        if path.suffix == ".dot":
            render(path)
    if failed:
        sys.exit(f"error: not measured, the old results are kept: {', '.join(failed)}")


if __name__ == "__main__":
    main()
