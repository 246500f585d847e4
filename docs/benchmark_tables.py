"""Tables for the page on benchmarks. Each shows the cases that matter, and links to its results."""

from __future__ import annotations

import textwrap
from statistics import geometric_mean
from typing import TYPE_CHECKING, Any

import numpy as np
from measurements import ALIKE, LINKS, RESULTS
from tables import HEADLINE_SIZES, markdown, not_measured, read_results, size_of, time_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Record = dict[str, Any]

__all__ = ["BENCHMARKS", "grid", "measured", "sources"]


def grid(head: list[str], entries: list[tuple[list[str], Mapping[str, str]]]) -> str:
    """Return a table with a row for each different list of titles; `-` where a row has no value for a column."""
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for titles, values in entries:
        rows.setdefault(tuple(titles), {}).update(values)
    columns = list(dict.fromkeys(column for values in rows.values() for column in values))
    return markdown(
        [*head, *columns],
        [[*titles, *(values.get(column, "-") for column in columns)] for titles, values in rows.items()],
    )


def sources(names: list[str]) -> str:
    """Return a line for each machine, with the MPI and a link to each result, whose head has the commit."""
    machines: dict[str, list[str]] = {}
    for name in names:
        first = read_results(name)[0]
        machine = f"{first['machine'].partition(', Linux')[0]}, {first['mpi']}".removesuffix(", None")
        machines.setdefault(machine, []).append(f"[{name}](results/{name}.txt)")
    return "\n".join(f"{machine}: {', '.join(links)}." for machine, links in machines.items())


def measured(
    files: Mapping[str, str],
    head: list[str],
    entry: Callable[[str, Record], tuple[list[str], Mapping[str, str]] | None],
) -> Callable[[], str]:
    """Return a block: the sources and a table. `entry` gives the titles and values of a record."""

    def block() -> str:
        missing = [name for name in files if not (RESULTS / f"{name}.jsonl").exists()]
        if missing:
            return not_measured(" ".join(missing))
        found = [entry(title, record) for name, title in files.items() for record in read_results(name)]
        return f"{sources(list(files))}\n\n{grid(head, [one for one in found if one is not None])}"

    return block


def times(factor: float) -> str:
    return f"{factor:.0f}x" if factor >= 20 else f"{factor:.2f}x"


def code(text: str) -> str:
    return f"`{text}`"


def megabytes(record: Record) -> str:
    return f"{record['bytes'] / 1e6:g} MB"


def _latency(title: str, record: Record) -> tuple[list[str], Mapping[str, str]] | None:
    if record["bytes"] not in HEADLINE_SIZES:
        return None
    value = f"{time_of(record['latency_us']['mean'])} ({times(record['speedup'])})"
    return [title, code(record["policy"])], {size_of(record["bytes"]): value}


def _rate(record: Record, ideal: str | None = None) -> str:
    """Return iterations per second, the speedup over the baseline, and the speedup if messages cost nothing."""
    limit = f"; {times(record[ideal])}" if ideal else ""
    return f"{record['iterations_per_s']:.2f} ({times(record['speedup'])}{limit})"


def fastest() -> str:
    speedups = [record["speedup"] for record in read_results("baselines")]
    return (
        "Over all sizes, the geometric mean of the speedups over the fastest is "
        f"{geometric_mean(speedups):.2f}, the least {min(speedups):.2f}."
    )


def _baseline(_: str, record: Record) -> tuple[list[str], Mapping[str, str]] | None:
    if record["bytes"] not in HEADLINE_SIZES:
        return None
    ours, best, default = (record[key]["mean"] for key in ("latency_us", "baseline_us", "default_us"))
    return [str(record["ranks"]), size_of(record["bytes"])], {
        "`Full()`": time_of(ours),
        "fastest MPI": f"{time_of(best)} ({times(best / ours)})",
        "MPI and setting": record["baseline"],
        record["default"]: f"{time_of(default)} ({times(default / ours)})",
    }


def _throughput(title: str, record: Record) -> tuple[list[str], Mapping[str, str]] | None:
    if record["slowdown"] != "none":
        return None
    single = sum(record["iterations_per_s_of"]) / record["ideal_iterations_per_s"]
    return [code(record["method"])], {title: f"{single:.1f} ({100 * single / record['ranks']:.0f} %)"}


def of_the_ideal() -> str:
    records = [record for name in ("skew-8", "skew-32") for record in read_results(name)]
    fractions = [record["ideal_fraction"] for record in records if record["ideal_fraction"]]
    return (
        f"On one node, majority and quorum reach {min(fractions):.2f} to {max(fractions):.2f} of the speedup that they "
        "would have if communication\ncost nothing. Solo has no such limit. Above 1, MPI is further from its own ideal."
    )


def kills() -> str:
    records = read_results("kills")
    told = [(record["victim"], each) for record in records for each in record["told"]]
    right = sum(each["error"] == "RankFailedError" and each["ranks"] == [victim] for victim, each in told)
    p50, p99, most = np.percentile([each["after_s"] for _, each in told], [50, 99, 100])
    return (
        f"In {len(records)} kills, {right} of {len(told)} survivors got the error with the right rank: "
        f"after {p50:.2f} s\n(median), {p99:.2f} s (99th percentile) and {most:.2f} s (longest). "
        "[kills](results/kills.txt) has each phase."
    )


def survived() -> str:
    records = read_results("survive-kills")
    quiet = [record for record in records if record["disturb"] == "none"]
    p50, p99, most = np.percentile([ms for record in quiet for ms in record["next_ms"]], [50, 99, 100])
    load = np.median([record["load"] for record in records])
    text = (
        f"In {sum(record['kills'] for record in records)} kills (8 ranks on 2 cores at load {load:.0f}, all programs, "
        "three shapes of nodes) no value was wrong, and no living rank was left out. In "
        f"{len(records) - len(quiet)} of {len(records)} jobs a survivor was stopped for 1 s at each death, or its GIL "
        f"was held for 3 s. In the others the next step was complete after {p50:.0f} ms (median), {p99:.0f} ms (99th "
        f"percentile) and {most:.0f} ms (longest)."
    )
    return textwrap.fill(text, 120)


def on_failure() -> str:
    """Return the time of a call with on_failure="continue" divided by the time with "raise"."""
    entries = []
    for bench in ("skew", "latency"):
        raises = {(one["policy"], one["bytes"]): one["latency_us"]["p50"] for one in read_results(f"{bench}-8-raise")}
        for one in read_results(f"{bench}-8-continue"):
            if one["bytes"] not in HEADLINE_SIZES:
                continue
            ratio = one["latency_us"]["p50"] / raises[one["policy"], one["bytes"]]
            entries.append(([bench, code(one["policy"])], {size_of(one["bytes"]): f"{ratio:.2f}"}))
    return f"{sources(['skew-8-continue', 'latency-8-continue'])}\n\n{grid(['benchmark', 'policy'], entries)}"


def bias() -> str:
    off = {record["weighting"]: record["off"] for record in read_results("bias-8")}
    found = " and ".join(f"{100 * distance:.1f} % with `{weighting}`" for weighting, distance in off.items())
    return f"The models end at a distance from the optimum of {found}.\n{sources(['bias-8'])}"


def cost_of_top() -> str:
    if not (RESULTS / "top-2.jsonl").exists():
        return not_measured("top-2")
    (found,) = read_results("top-2")
    return (
        f"{found['ranks']} ranks that fill {found['ranks']} cores make {found['steps_per_s']:.1f} steps/s without the "
        f"command and {found['watched_steps_per_s']:.1f} with it, in runs of {found['seconds']:g} s: it costs "
        f"{found['cost_percent']:.1f} %.\n{sources(['top-2'])}"
    )


BENCHMARKS: dict[str, Callable[[], str]] = {
    "skew": measured(
        {
            "skew-8": "8 on one node",
            "skew-32": "32 on one node",
            "skew-32-mixed": "32 on two nodes",
            "skew-32-flat": "32, one per node",
            "hosts-skew-1gbit": "8 on two hosts, 1 Gbit/s",
            "hosts-skew-100mbit": "8 on two hosts, 100 Mbit/s",
        },
        ["ranks", "policy"],
        _latency,
    ),
    "latency": measured(
        {
            "latency-2": "2 on one node",
            "latency-8": "8 on one node",
            "latency-32": "32 on one node",
            "latency-8-flat": "8, one per node",
        },
        ["ranks", "policy"],
        _latency,
    ),
    "of-the-ideal": of_the_ideal,
    "baselines": measured(
        {"baselines": ""},
        ["ranks", "bytes"],
        _baseline,
    ),
    "fastest": fastest,
    "workers": measured({"gossip-8": "8 workers", "gossip-16": "16 workers"}, ["method"], _throughput),
    "groups-measured": measured(
        {"groups-16": "all equal", "groups-16-slow-2": "one 2x slower", "groups-16-slow-5": "one 5x slower"},
        ["generator"],
        lambda title, of: ([code(of["generator"])], {title: _rate(of, "model_speedup")}),
    ),
    "hosts-groups": measured(
        {f"hosts-groups{link}": link.lstrip("-") or "no limit" for link in ALIKE},
        ["generator"],
        lambda title, of: ([code(of["generator"])], {title: _rate(of)}),
    ),
    "gossip": measured(
        {"gossip-16": ""},
        ["method"],
        lambda _, of: (
            [code(of["method"])],
            {of["slowdown"]: f"{of['others_iterations_per_s']:.2f} ({100 * of['others_kept']:.0f} %)"},
        ),
    ),
    "hosts-gossip": measured(
        {f"hosts-gossip{link}": link.lstrip("-") or "no limit" for link in LINKS},
        ["method"],
        lambda title, of: ([code(of["method"])], {title: _rate(of)}),
    ),
    "exchange": measured(
        {"exchange-2": "2 ranks", "exchange-8": "8 ranks"},
        ["model", "neighbor"],
        lambda title, of: (
            [megabytes(of), of["neighbor"]],
            {title: f"{time_of(of['latency_us']['mean'])}, MPI {time_of(of['baseline_us']['mean'])}"},
        ),
    ),
    "bias": bias,
    "hop": measured(
        {"hop-16": "6x slower at random", "hop-16-slow": "one 4x slower"},
        ["mode"],
        lambda title, of: ([code(of["mode"])], {title: _rate(of, "ideal_speedup")}),
    ),
    "hosts-hop": measured(
        {"hosts-hop-ring-based": "ring-based", "hosts-hop-two-level": "two-level"},
        ["mode"],
        lambda title, of: ([code(of["mode"])], {title: f"{of['iterations_per_s']:.2f}"}),
    ),
    "server": measured(
        {"server-8": "speeds 1 to 1.5", "server-8-slow": "one 3x slower"},
        ["sync"],
        lambda title, of: ([code(of["sync"])], {title: _rate(of, "ideal_speedup")}),
    ),
    "c-calls": measured(
        {"c-calls-2": ""},
        ["missed", "work before each call"],
        lambda _, of: (
            [code(of["missed"]), size_of(of["work_bytes"])],
            {"Python": f"{of['python_us']:.2f} us", "C": f"{of['c_us']:.2f} us", "C/Python": f"{of['ratio']:.2f}"},
        ),
    ),
    "one-call": measured(
        {"hop-queue": "an update of Hop's queue", "server-micro": "push-pull by 4 workers at once"},
        ["call", "bytes", "`servers`"],
        lambda title, of: (
            [title, megabytes(of), of.get("servers", "")],
            {
                "library": time_of(of["latency_us"]["mean"]),
                "MPI": time_of(of["baseline_us"]["mean"]),
                "speedup": times(of["speedup"]),
            },
        ),
    ),
    "kills": kills,
    "survive": measured(
        {
            "survive-8": "one node",
            "survive-8-flat": "one rank per node",
            "survive-8-spares": "spares replace the dead",
            "survive-8-respawn": "new processes replace the dead",
            "survive-8-churn": "the same, a death every 3.5 s",
            "survive-8-background": "new processes in the background",
            "survive-hosts": "two hosts",
            "survive-hosts-node": "two hosts; all ranks of one die",
        },
        ["8 ranks", "kills"],
        lambda title, of: (
            [title, str(of["kills"])],
            {key: f"{of['kill_to_next_ms'][key]:.0f} ms" for key in ("p50", "p99", "max")}
            | {"lost": str(of["lost"])}
            | ({"all ranks again, p50": f"{of['kill_to_full_ms']['p50']:.0f} ms"} if "kill_to_full_ms" in of else {}),
        ),
    ),
    "goodput": measured(
        {"survive-every-10": "10 s"},
        ["4 replicas", "a failure each"],
        lambda title, of: (
            [of.get("baseline", 'this library, `respawn="background"`'), title],
            {
                "next step, p50": f"{of['kill_to_next_ms']['p50']:.0f} ms",
                "all again, p50": f"{of['kill_to_full_ms']['p50']:.0f} ms",
                "goodput": f"{of['goodput']:.2f}",
            },
        ),
    ),
    "survived": survived,
    "on-failure": on_failure,
    "grace": measured(
        {"grace": ""},
        ["deviation", "phase"],
        lambda _, of: (
            (
                [str(of["deviation"]), f"{of['phase'] + 1}: {of['step_ms']:g} ms"],
                {"contributors": f"{of['contributors']:.2f}", "wait": f"{of['wait_ms']:.1f} ms"}
                | {"the best fixed grace at this wait": f"{of['fixed_contributors']:.2f}"},
            )
            if of["grace"] == "auto"
            else None
        ),
    ),
    "top": cost_of_top,
    "idle": measured(
        {"idle-8": "one node", "idle-8-flat": "one rank per node"},
        ["8 ranks"],
        lambda title, of: (
            [title],
            {
                "CPU seconds per second": f"{of['cpu_fraction']:.4f}",
                "the most of a rank": f"{of['cpu_fraction_max']:.4f}",
                "slowdown of a computing rank": f"{of['slowdown']:.3f}",
            },
        ),
    ),
    "zipline": measured(
        {"zipline": ""},
        ["algorithm"],
        lambda _, of: (
            [code(of["algorithm"])],
            {f"{of['workers']} x {of['lookahead']}": f"{time_of(of['time_us']['p50'])} ({times(of['times_linear'])})"},
        ),
    ),
}
"""The blocks of measurements, by their names on the pages."""
