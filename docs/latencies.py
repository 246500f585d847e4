"""Tables of measured and simulated latencies, as pages show them; what they are made of is in docs/results."""

from __future__ import annotations

import json
import math
from statistics import fmean, geometric_mean
from typing import Any

from measurements import RESULTS

SIMULATED_RANKS = (8, 64, 512, 4096, 32768, 65536)
"""Of the policies solo and quorum of half the ranks, each."""


def markdown(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows))


def not_measured(name: str) -> str:
    return f"Not measured yet: `python docs/generate.py --measure {name}`."


def headline() -> str:
    """The mean latency of each policy at 32 skewed ranks, and of MPI_Allreduce in the same run."""
    cells = read_results("skew-32")
    sizes = [size for size in sorted({cell["bytes"] for cell in cells}) if size in HEADLINE_SIZES]
    mpi = [fmean(cell["baseline_us"]["mean"] for cell in cells if cell["bytes"] == size) for size in sizes]
    rows = [["`MPI_Allreduce`", *map(time_of, mpi)]]
    for policy in dict.fromkeys(cell["policy"] for cell in cells):
        row = {cell["bytes"]: cell for cell in cells if cell["policy"] == policy}
        rows.append([f"`{policy}`", *(time_of(row[size]["latency_us"]["mean"]) for size in sizes)])
    return f"{where(cells[0])}\n\n" + markdown(["", *map(size_of, sizes)], rows)


HEADLINE_SIZES = (8, 1 << 18, 1 << 22)


def baselines_table() -> str:
    """`Full()` and the fastest MPI_Allreduce of all MPIs."""
    if not (RESULTS / "baselines.jsonl").exists():
        return not_measured("baselines")
    cells = read_results("baselines")
    rows = []
    for cell in cells:
        ours, best, default = (cell[key]["mean"] for key in ("latency_us", "baseline_us", "default_us"))
        of_default = f"{time_of(default)} ({default / ours:.2f}x)"
        rows.append(
            [
                str(cell["ranks"]),
                size_of(cell["bytes"]),
                time_of(ours),
                f"{time_of(best)} ({best / ours:.2f}x)",
                cell["baseline"],
                of_default,
            ]
        )
    speedups = [cell["speedup"] for cell in cells]
    head = ["ranks", "bytes", "`Full()`", "fastest MPI", "MPI and setting", cells[0]["default"]]
    summary = (
        f"The geometric mean of the speedups over the fastest is {geometric_mean(speedups):.2f}, the least "
        f"{min(speedups):.2f}."
    )
    return f"{where(cells[0])}\n\n{markdown(head, rows)}\n\n{summary}"


def read_results(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (RESULTS / f"{name}.jsonl").read_text().splitlines()]


def where(result: dict[str, Any]) -> str:
    """What comes first: a number without its machine says nothing."""
    return f"On {result['machine']}; {result['mpi']}; commit {result['commit']}."


def size_of(size: int) -> str:
    return f"{size:,} B".replace(",", " ")


def time_of(us: float) -> str:
    if us < 10:
        return f"{us:.1f} us"
    return f"{us:.0f} us" if us < 1000 else f"{us / 1000:.1f} ms"


def simulated_latencies() -> str:
    """The latency of each policy in the simulator, against the number of ranks."""
    found = [json.loads(line) for line in (RESULTS / "simulated.jsonl").read_text().splitlines()]
    by_ranks = {ranks: [one for one in found if one["ranks"] == ranks] for ranks in SIMULATED_RANKS}
    head = ["ranks", "log2 P"]
    for one in by_ranks[SIMULATED_RANKS[0]]:
        name = one["policy"].partition(":")[0]
        head += [f"{name}: mean (us)", "per log2 P", "99th percentile (us)"]
    rows = []
    for ranks, runs in by_ranks.items():
        row = [f"{ranks:,}".replace(",", " "), f"{math.log2(ranks):.0f}"]
        for one in runs:
            mean = one["latency_us_mean"]
            row += [f"{mean:.1f}", f"{mean / math.log2(ranks):.2f}", f"{one['latency_us_p99']:.1f}"]
        rows.append(row)
    return markdown(head, rows)
