"""Tables of the experiments for the documentation, and statements that are computed from them."""

from __future__ import annotations

import json
import textwrap
from statistics import fmean
from typing import Any

from measurements import RESULTS
from tables import (
    HEADLINE_SIZES,
    markdown,
    over_messages,
    rate_and_accuracy,
    read_results,
    size_of,
    table_by_load,
    time_of,
)

from pycollectives.experiments import report
from pycollectives.experiments.experiment import catalogue

__all__ = [
    "accuracy_compared",
    "decision",
    "experiment_results",
    "experiments_section",
    "measured_by_load",
    "methods_compared",
    "three_numbers",
]


def experiment_results() -> list[dict[str, Any]]:
    """Return the results of the jobs that are in the catalogue now."""
    kept = []
    for experiment in catalogue():
        path = RESULTS / "experiments" / f"{experiment.name}.json"
        found = json.loads(path.read_text()) if path.exists() else {"results": []}
        found |= {"title": experiment.title, "figure": experiment.figure, "scale": experiment.scale}
        of = {job.name: job for job in experiment.jobs}
        found["results"] = [
            {**result, "paper_speedup": of[result["job"]].paper}
            for result in found["results"]
            if result["job"] in of and of[result["job"]].gave(result)
        ]
        if found["results"]:
            kept.append(found)
    return kept


def accuracy_compared() -> str:
    """Return how many methods end with their baseline's accuracy, within the range of seeds, and which end below."""
    compared, above, below = 0, 0, []
    for found in experiment_results():
        runs: dict[str, list[float]] = {}
        for result in found["results"]:
            if (accuracy := result["curve"][-1]["accuracy"]) is not None:
                runs.setdefault(result["job"], []).append(100 * accuracy)
        titles, table = report.table(found)
        shown = {row[0]: dict(zip(titles, row, strict=True)) for row in table}
        for job, baseline in {result["job"]: result["baseline"] for result in found["results"]}.items():
            own, its = runs.get(job, []), runs.get(baseline, [])
            if min(len(own), len(its)) < 2:
                continue
            compared += 1
            above += min(own) > max(its)
            if max(own) < min(its):
                of = shown[job]
                row = [
                    found["name"],
                    job,
                    of.get("speedup", "-"),
                    of["accuracy"],
                    baseline,
                    shown[baseline]["accuracy"],
                ]
                below.append(row)
    head = ["experiment", "method", "speedup", "accuracy at the end", "baseline", "its accuracy"]
    text = (
        f"In experiments with injected delays, we ran {compared} combinations of a method and a load with two or three "
        "seeds each, and compared the accuracy at the end with a baseline's. The ranges over seeds overlap in "
        f"{compared - above - len(below)} combinations. The accuracy is higher in {above} and lower in {len(below)}. "
        "The table lists the lower ones, with means and ranges:"
    )
    return "\n".join(textwrap.wrap(text, 120)) + "\n\n" + markdown(head, below)


METHODS = (  # your ranks, use, experiment and job, needs
    ("Every result must be complete.", "mpi4py or NCCL; the policy `Full()` only for comparison", None, ""),
    (
        "A different rank is late in each step, and you compute sums or train with SGD.",
        "[partial allreduce](choosing.md), `Quorum(k)`: k is the number of ranks that usually arrive in time",
        ("digits", "quorum:4"),
        "a step that is linear in the data; `flush`",
    ),
    (
        "A different rank is late in each step, and you train with Adam, AdamW, or gradient clipping.",
        "`Quorum(k)` with a larger k, or `Full()`",
        ("transformer", "quorum:3, sum, rate 0.001"),
        "a comparison with the accuracy of `Full()` first, because "
        "[late gradients cost some accuracy](index.md#the-cost-in-accuracy)",
    ),
    (
        "One node or a few nodes are slow at times.",
        "`Quorum(k)`: k is the number of ranks on the other nodes",
        None,
        "the same as for SGD above",
    ),
    (
        "The same rank is always slower, and all ranks are on one machine.",
        '[parameter server](parameter-server.md), `sync=pc.servers.ElasticBSP(15)`, `servers="node"`',
        ("elastic", "elastic:15, one 3x slower"),
        "a lower learning rate",
    ),
    (
        "The same rank is always slower, and ranks are on several machines.",
        "[AD-PSGD](neighbor-averaging.md), `pairwise_averaging`",
        ("neighbors", "ad-psgd, one 10x slower"),
        "a call of `equalize` at the end; a [graph](topology.md), or the default one",
    ),
    (
        "The same rank is always slower, and ranks must not be many iterations apart.",
        '[Hop](hop.md), `mode="skip:10"`',
        ("hop", "skip 10, one 4x slower"),
        "a [graph](topology.md), or the default one",
    ),
    (
        "Ranks run at different speeds, and you average weights.",
        '[groups](groups.md), `partial_reduce(groups="punctual")`',
        ("methods", "ripples punctual, speeds 1 to 2"),
        "",
    ),
    (
        "One rank is many times slower, and its oldest gradients may be discarded.",
        "[parameter server](parameter-server.md), `sync=pc.servers.Ringmaster(16)`",
        ("servers", "ringmaster:16, one 10x slower"),
        "a lower learning rate",
    ),
    ("The job must continue if ranks die.", '[`on_failure="continue"`](howto/after-a-death.md)', None, "Open MPI 5"),
    (
        "Dead ranks must be replaced.",
        "[`spares=k` or `respawn=True`](howto/after-a-death.md#replace-dead-ranks)",
        None,
        "Open MPI 5; spare ranks, or free cores",
    ),
    ("New ranks must join the running program.", "another library, such as torchft", None, ""),
)
"""The advice of the page on methods. Its numbers come from the results."""


def methods_compared() -> str:
    """Return the table of the page on methods, with the measured speedups."""
    speedups = {}
    for found in experiment_results():
        titles, table = report.table(found)
        unit = "examples/s" if found["target_loss"] is None else "time to a loss"
        for row in table:
            cells = dict(zip(titles, row, strict=True))
            speedups[found["name"], row[0]] = f"{cells['speedup']} ({unit}; `{found['name']}`, {found['ranks']} ranks)"
    rows = [
        [ranks, use, "" if of is None else speedups.get(of, "not measured yet"), needs]
        for ranks, use, of, needs in METHODS
    ]
    return markdown(["your ranks", "use", "measured speedup", "requirements"], rows)


def decision() -> str:
    """Return the table of the page on methods without its numbers, for the home page."""
    return markdown(["your ranks", "use"], [[ranks, use] for ranks, use, _, _ in METHODS])


def three_numbers() -> str:
    """Return the numbers of the home page: a call, a training, and where the library is slower than MPI."""
    size = HEADLINE_SIZES[1]
    calls = [one for one in read_results("skew-32") if one["bytes"] == size]
    (call,) = (one for one in calls if one["policy"] == "quorum:16")
    ours, mpi = call["latency_us"]["mean"], fmean(one["baseline_us"]["mean"] for one in calls)
    (found,) = (one for one in experiment_results() if one["name"] == "digits")
    titles, table = report.table(found)
    of = {row[0]: dict(zip(titles, row, strict=True)) for row in table}
    quorum, synchronous = of["quorum:4"], of["synchronous"]
    least, most = over_messages()
    items = (
        f"**{quorum['speedup']} the steps per second** of synchronous training: SGD with a quorum of 4 of "
        f"{found['ranks']} ranks that are late in rotation, and the default `late`. The accuracy is "
        f"{quorum['accuracy']}. In synchronous training it is {synchronous['accuracy']} "
        "([`digits`](results/experiments/digits.json)).",
        f"**{mpi / ours:.1f}x faster**: with a quorum of 16 of {call['ranks']} skewed ranks on one machine, a call of "
        f"{size_of(size)} takes {time_of(ours)} on average, and `MPI_Allreduce` takes {time_of(mpi)}. In this run, "
        f'late data is dropped (`late="{call["late"]}"`, [`skew-32`](results/skew-32.txt)).',
        f"`Full()` takes **{least:.1f} to {most:.1f} times as long** as `MPI_Allreduce` over messages, if all ranks "
        "arrive at the same time ([`latency-8-flat`](results/latency-8-flat.txt), 8 ranks, one per node).",
    )
    return "\n".join(textwrap.fill(f"- {item}", 120, subsequent_indent="  ", break_on_hyphens=False) for item in items)


MOST_ROWS = 20
"""An experiment with more jobs gets a table of methods by loads."""
LEFT_OUT = {"baseline", "active", "epochs to target", "ideal", "of the replica", "by the replica"}
"""Columns that only the command prints."""
MOST_NAMED = 8
"""Jobs that are named if they are not measured."""


def measured_by_load(name: str) -> str:
    """Return the table of an experiment with a row for each method and a column for each load."""
    for found in experiment_results():
        if found["name"] == name:
            return f"On {found['machine']}; commit {found['commit']}{of_one_replica(found)}.\n\n" + table_by_load(found)
    return f"Not measured yet: `python docs/generate.py --experiments {name}`."


def of_one_replica(found: dict[str, Any]) -> str:
    """Return a remark about results of earlier versions, which have the time to a loss of one replica."""
    by_mean = any("replica_time_to_target_s" in result for result in found["results"])
    return "" if found["target_loss"] is None or by_mean else "; the loss is of rank 0's replica"


def measured_by_job(found: dict[str, Any]) -> str:
    """Return a table with a row for each job. A speedup names its baseline unless that is the last one above."""
    titles, table = report.table(found)
    shown = [
        title for title in titles if title not in LEFT_OUT | ({"validation loss"} if "accuracy" in titles else set())
    ]
    rows, last = [], ""
    for row in table:
        of = dict(zip(titles, row, strict=True))
        baseline = of.get("baseline", last)
        if baseline == report.UNKNOWN:
            last = of["method"]
        elif baseline != last:
            of["speedup"] += f" over {baseline}"
        rows.append([of[title] for title in shown])
    return markdown(shown, rows)


def experiments_section() -> str:
    """Return a heading, the differences from the paper, a table and a figure for each measured experiment."""
    all_found = {found["name"]: found for found in experiment_results()}
    machines = sorted({found["machine"] for found in all_found.values()})
    parts = [f"Measured on {'; and on '.join(machines)}. The files name the commits."]
    for name, found in all_found.items():
        if name == "methods":
            table = (
                "Examples per second of all workers, and the final accuracy of the mean model. [Which "
                f"method?](which-method.md) has the times to the loss.\n\n{table_by_load(found, rate_and_accuracy)}"
            )
        elif len({result["job"] for result in found["results"]}) > MOST_ROWS:
            table = table_by_load(found)
        else:
            table = measured_by_job(found)
        parts += [
            f"## {found['title']}",
            f"[`{name}`](results/experiments/{name}.json), {found['ranks']} ranks. Source: {found['figure']}. "
            f"{found['scale'].removesuffix('.')}{of_one_replica(found)}.",
            table,
            f"![{name}](figures/experiment-{name}.png)",
        ]
    for experiment in catalogue():
        found = all_found.get(experiment.name, {"results": []})
        run = {(result["job"], result["seed"]) for result in found["results"]}
        left = sorted({job.name for job in experiment.jobs for seed in experiment.seeds if (job.name, seed) not in run})
        if left:
            names = ", ".join(f"`{name}`" for name in left[:MOST_NAMED])
            if len(left) > MOST_NAMED:
                names = f"{len(left)} of {len(experiment.jobs)} jobs"
            parts.append(f"Not measured yet of `{experiment.name}`, with all its seeds: {names}.")
    return "\n\n".join(parts)
