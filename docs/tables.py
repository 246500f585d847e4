"""Tables of measurements and simulations for the pages, from the data in docs/results."""

from __future__ import annotations

import json
import math
import re
import textwrap
from statistics import fmean
from typing import TYPE_CHECKING, Any

from measurements import OVERLAP_MODELS, OVERLAP_RANKS, RESULTS

from pycollectives.simulation.advice import rank_correlation

if TYPE_CHECKING:
    from collections.abc import Callable

SIMULATED_RANKS = (8, 64, 512, 4096, 32768, 65536)
"""Numbers of ranks, each simulated with the policies solo and quorum of half the ranks."""


def markdown(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows))


def not_measured(name: str) -> str:
    return f"Not measured yet: `python docs/generate.py --measure {name}`."


def headline() -> str:
    """Return the mean latency of each policy at 32 skewed ranks, and of MPI_Allreduce in the same run."""
    cells = read_results("skew-32")
    sizes = [size for size in sorted({cell["bytes"] for cell in cells}) if size in HEADLINE_SIZES]
    mpi = [fmean(cell["baseline_us"]["mean"] for cell in cells if cell["bytes"] == size) for size in sizes]
    rows = [["`MPI_Allreduce`", *map(time_of, mpi)]]
    for policy in dict.fromkeys(cell["policy"] for cell in cells):
        row = {cell["bytes"]: cell for cell in cells if cell["policy"] == policy}
        rows.append([f"`{policy}`", *(time_of(row[size]["latency_us"]["mean"]) for size in sizes)])
    (late,) = {cell["late"] for cell in cells}
    return f'{where(cells[0])} `late="{late}"`.\n\n' + markdown(["", *map(size_of, sizes)], rows)


def slower() -> str:
    """Return the cases in which the library is slower than MPI, in the runs over messages."""
    least, most = over_messages()
    skewed = [cell for cell in read_results("skew-32-flat") if cell["speedup"] < 1]
    text = (
        "If ranks communicate by messages and all arrive at the same time, `Full()` takes "
        f"{least:.1f} to {most:.1f} times as long as `MPI_Allreduce` (8 ranks, one per node)."
    )
    if skewed:
        which = ", ".join(
            f"`{cell['policy']}` with {size_of(cell['bytes'])} ({1 / cell['speedup']:.1f} times as long)"
            for cell in skewed
        )
        text += f" With the delays of the table, but over messages, these are slower than `MPI_Allreduce`: {which}."
    return "\n".join(textwrap.wrap(text, 120, break_on_hyphens=False))


def over_messages() -> tuple[float, float]:
    """Return the times of `Full()` over messages as multiples of MPI_Allreduce's: the least and the most."""
    times = [1 / cell["speedup"] for cell in read_results("latency-8-flat")]
    return min(times), max(times)


def build_times() -> str:
    """Return the times of the first installation command and of `make demo`, in a fresh clone."""
    path = RESULTS / "build.json"
    if not path.exists():
        return "Not measured yet: `python tools/time_build.py`."
    found = json.loads(path.read_text())

    def minutes(name: str) -> str:
        return f"{found[name]['wall_s'] / 60:.1f} minutes"

    return (
        f"On {found['cores']} cores the installation takes {minutes('install')}, and `make demo` {minutes('demo')} "
        f"from a fresh clone to its figure (docs/results/build.json; commit {found['commit']})."
    )


def wheel_table() -> str:
    """Return a table of the environments in which the wheel was tried, with times."""
    path = RESULTS / "wheel.json"
    if not path.exists():
        return ""  # the page is for users, who do not measure it
    record = json.loads(path.read_text())
    names = {"system": "Debian's packages"}
    rows = [
        [names.get(one["environment"], f"`pip install {one['environment']}`"), one["mpi"], f"{one['install_s']:.1f}",
         f"{one['import_s']:.2f}"]
        for one in record["environments"]
    ]  # fmt: skip
    head = ["environment", "MPI library", "installation (s)", "import (s)"]
    return (
        f"{markdown(head, rows)}\n\nOn {record['machine']} (docs/results/wheel.json; commit {record['commit']}).\n"
        "Installation: of the wheel, its requirements and the MPI (unless it is Debian's), without pip's cache.\n"
        "Import: from `import pycollectives` until the extension is loaded, after NumPy and mpi4py; the median of 5."
    )


HEADLINE_SIZES = (8, 1 << 18, 1 << 22)


def overlap_table() -> str:
    """Return the times of a training step with PyTorch: on one rank, with our averaging, and with DDP."""
    names = [f"overlap-{model}-{ranks}" for model in OVERLAP_MODELS for ranks in OVERLAP_RANKS]
    missing = [name for name in names if not (RESULTS / f"{name}.jsonl").exists()]
    if missing:
        return not_measured(" ".join(missing))
    rows, slower, ddp_hides = [], [], []
    for name in names:
        of = {cell["method"]: cell for cell in read_results(name)}
        alone, after, ours, ddp = (of[method]["latency_us"]["p50"] for method in ("alone", "after", "overlap", "ddp"))
        model = f"{of['ddp']['model']}, {of['ddp']['bytes'] / 1e6:.1f} MB"
        rows.append([model, str(of["ddp"]["ranks"]), *map(time_of, (alone, after, ours, ddp)), f"{ddp / ours:.2f}x"])
        row = f"{of['ddp']['model']} at {of['ddp']['ranks']} ranks"
        if ours > after:
            slower.append(f"{row} ({time_of(ours)} against {time_of(after)})")
        if ddp < after:
            ddp_hides.append(row)
    head = ["network", "ranks", "alone", "averaged after backward", "during backward", "DDP", "faster than DDP"]
    return "\n\n".join([where(of["ddp"]), markdown(head, rows), overlap_in_words(slower, ddp_hides)])


def overlap_in_words(slower: list[str], ddp_hides: list[str]) -> str:
    """Return the conclusions: the rows in which overlapping does not help, and whether DDP's does."""
    ours = "In each row, averaging during `backward` is faster than averaging after it."
    if slower:
        ours = f"Averaging during `backward` is slower than averaging after it for the {', and the '.join(slower)}."
    ddp = (
        "DDP hides none of its communication in any row: its step always takes longer than averaging after `backward`."
    )
    if ddp_hides:
        ddp = f"DDP's step is shorter than averaging after `backward` for the {', and the '.join(ddp_hides)}."
    return f"{ours}\n{ddp}"


def read_results(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (RESULTS / f"{name}.jsonl").read_text().splitlines()]


def where(result: dict[str, Any]) -> str:
    """Return the machine, MPI and commit of a result, which every table shows first."""
    return f"On {result['machine']}; {result['mpi']}; commit {result['commit']}."


def size_of(size: int) -> str:
    return f"{size:,} B".replace(",", " ")


def time_of(us: float) -> str:
    if us < 10:
        return f"{us:.1f} us"
    return f"{us:.0f} us" if us < 1000 else f"{us / 1000:.1f} ms"


def forecasts_table() -> str:
    """Return, for each load, the rank correlation of the best methods, and how far forecasts are off."""
    if not (RESULTS / "advice.jsonl").exists():
        return not_measured("advice")
    cells = read_results("advice")
    rows = []
    for load in dict.fromkeys(cell["load"] for cell in cells):
        of = [cell for cell in cells if cell["load"] == load]
        off = [cell["forecast_per_s"] / cell["measured_per_s"] - 1 for cell in of]
        best = max(of, key=lambda cell: cell["measured_per_s"])["method"]
        forecast = max(of, key=lambda cell: cell["forecast_per_s"])["method"]
        tau = rank_correlation(*zip(*((c["forecast_per_s"], c["measured_per_s"]) for c in of), strict=True))
        rows.append([f"`{load}`", best, forecast, f"{tau:.2f}", f"{100 * min(off):+.0f} to {100 * max(off):+.0f} %"])
    head = ["load", "fastest", "forecast as fastest", "tau of the best five", "forecasts are off by"]
    return f"{where(cells[0])}\n\n" + markdown(head, rows)


def time_to_target(runs: list[dict[str, Any]]) -> str:
    """Return means over seeds: the seconds, and the speedup over the baseline."""
    times, speedups = ([run[key] for run in runs] for key in ("time_to_target_s", "speedup"))
    if None in times:
        return "not reached"
    return f"{fmean(times):.1f} s" + ("" if None in speedups else f" ({fmean(speedups):.2f}x)")


def rate_and_accuracy(runs: list[dict[str, Any]]) -> str:
    """Return means over seeds: the examples per second of all workers, and the accuracy of the mean model."""
    accuracy = fmean(run["mean_curve"][-1]["accuracy"] for run in runs)
    return f"{fmean(run['steps_per_s'] * run['batch'] for run in runs):.0f}/s, {100 * accuracy:.1f} %"


def table_by_load(found: dict[str, Any], cell: Callable[[list[dict[str, Any]]], str] = time_to_target) -> str:
    """Return a cell for the runs of each method under each load; a job is called `METHOD, LOAD`."""
    cells: dict[str, dict[str, str]] = {}
    for job in dict.fromkeys(result["job"] for result in found["results"]):
        method, _, load = job.partition(", ")
        runs = [result for result in found["results"] if result["job"] == job]
        cells.setdefault(method, {})[load] = cell(runs)
    loads = list(dict.fromkeys(load for row in cells.values() for load in row))
    rows = [[f"`{method}`", *(row.get(load, "-") for load in loads)] for method, row in cells.items()]
    return markdown(["", *loads], rows)


def defaults_table() -> str:
    """Return the choices by network and bytes, with few and with many ranks, and the worst cell of all ranks."""
    if not (RESULTS / "defaults.jsonl").exists():
        return "Not computed yet: `python docs/generate.py --defaults`."
    cells = read_results("defaults")
    rows = []
    for network in dict.fromkeys(cell["network"] for cell in cells):
        title = network
        for nbytes in DEFAULTS_BYTES:
            row = {cell["ranks"]: cell for cell in cells if (cell["network"], cell["nbytes"]) == (network, nbytes)}
            shown = [row[ranks] for ranks in DEFAULTS_RANKS]
            worst = max(row.values(), key=lambda cell: cell["ratio"])
            rows.append(
                [
                    title,
                    size_of(nbytes),
                    *(f"`{cell['chosen']}` {time_of(1e6 * cell['seconds'])}" for cell in shown),
                    f"{worst['ratio']:.2f}" + (f" ({worst['ranks']} ranks)" if worst["ratio"] > 1 else ""),
                ]
            )
            title = ""
    head = ["network", "bytes", *(f"{ranks} ranks" for ranks in DEFAULTS_RANKS), "worst, of the best"]
    worst = max(cell["ratio"] for cell in cells)
    within = sum(cell["ratio"] <= 1.1 for cell in cells)
    return (
        markdown(head, rows)
        + f"\n\n{within} of {len(cells)} cells are within 1.1 of the best; the worst is at {worst:.2f}."
    )


DEFAULTS_RANKS = (8, 100, 1024, 65536)
DEFAULTS_BYTES = (8, 1 << 15, 1 << 20)


def simulated_latencies() -> str:
    """Return the simulated latency of each policy by the number of ranks."""
    found = [json.loads(line) for line in (RESULTS / "simulated.jsonl").read_text().splitlines()]
    rows = []
    for ranks in SIMULATED_RANKS:
        means = [one["latency_us_mean"] for one in found if one["ranks"] == ranks]
        solo, quorum = (f"{mean:.1f} us" for mean in means)
        rows.append([f"{ranks:,}".replace(",", " "), solo, f"{means[0] / math.log2(ranks):.2f} us", quorum])
    return markdown(["ranks", "solo", "solo, per log2 P", "quorum of half"], rows)


def ci_summary() -> str:
    """Return the number of tests of a run of CI, and its time."""
    if not (RESULTS / "ci.json").exists():
        return "Not measured yet: `.ci/run`, then `python docs/generate.py --ci`."
    record = json.loads((RESULTS / "ci.json").read_text())
    passed = sum(map(int, re.findall(r"(\d+) passed", (RESULTS / "test.txt").read_text())))
    tests = f"{passed:,}".replace(",", " ")
    return (
        f"A run of CI passes {tests} tests in {record['seconds'] / 60:.0f} minutes on {record['machine']} (commit "
        f"{record['commit']};\n[counts](docs/results/test.txt), [times](docs/results/ci.json))."
    )
