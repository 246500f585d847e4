"""The papers' claims, beside our numbers, which are computed from docs/results."""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from claim_numbers import (
    accuracies,
    cell,
    cells,
    experiments,
    job,
    relative_epochs,
    speedups,
    spread,
    times,
)
from tables import markdown

from pycollectives import topology, zipline
from pycollectives.simulation.theory import gap_between_others

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["CLAIMS", "claims_table", "verdicts"]

CLAIMS: dict[str, list[dict[str, Any]]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
"""By paper: place, claim, the paper's numbers, the function that computes ours, and the reason for a difference."""

Found = tuple[str, bool]
"""Our numbers in words, and whether they support the claim."""


# --- eager-SGD ------------------------------------------------------------------------------------------------------


def latency(policy: str) -> list[float]:
    """Return the mean speedups over MPI_Allreduce on one node, and by messages."""
    return [fmean(each["speedup"] for each in cells(name, policy=policy)) for name in ("skew-32", "skew-32-flat")]


def solo_latency() -> Found:
    board, messages = latency("solo")
    return f"{board:.0f}x in shared memory, {messages:.0f}x by messages (`skew-32`)", min(board, messages) > 53.32


def majority_latency() -> Found:
    board, messages = latency("majority")
    large = min(each["speedup"] for each in cells("skew-32-flat", policy="majority"))
    text = f"{board:.2f}x in shared memory, {messages:.2f}x by messages, {large:.2f}x with 4 MiB (`skew-32`)"
    return text, board > 2.46 * 0.9


def active_ranks() -> Found:
    solo, majority = (fmean(each["active_mean"] for each in cells("skew-32", policy=p)) for p in ("solo", "majority"))
    return f"{solo:.1f} and {majority:.1f} (`skew-32`)", abs(solo - 1) < 0.5 and abs(majority - 16.5) < 2


def hyperplane_speed() -> Found:
    found = speedups("hyperplane", *(f"solo, {skew} ms" for skew in (200, 300, 400)))
    (newest,) = speedups("hyperplane", "solo, newest result only, 200 ms")
    text = f"{times(found)}; {newest:.2f}x with the newest results only, 200 ms (`hyperplane`)"
    return text, all(map(float.__gt__, [*found, newest], (1.5, 1.75, 2.01, 1.5)))


def hyperplane_loss() -> Found:
    names = ("synchronous", "solo", "solo, newest result only", "majority")
    losses = [job("hyperplane", f"{name}, 200 ms").loss for name in names]
    text = ", ".join(f"{name} {loss:.2f}" for name, loss in zip(names, losses, strict=True))
    return f"{text} (`hyperplane`)", max(losses) < 1.01 * losses[0]


def hyperplane_majority() -> Found:
    (found,) = speedups("hyperplane", "majority, 200 ms")
    return f"{found:.2f}x (`hyperplane`)", found > 1.25


def table_2() -> Found:
    names = ("asp", "d-psgd", "sgp", "eager solo")
    rates = [job("methods", f"{name}, one late").rate for name in names]
    text = ", ".join(f"{name} {rate:.0f}" for name, rate in zip(names, rates, strict=True))
    return f"{text} examples/s (`methods`)", rates == sorted(rates)


def is_less(some: list[float], others: list[float]) -> bool:
    """Whether each of some values is less than the other one with the same seed."""
    return all(one < other for one, other in zip(some, others, strict=True))


def severe_accuracy(experiment: str, rate: str) -> Found:
    """Compare solo with synchronous, at two learning rates; `rate` is the end of the names with the larger one."""
    pairs = [[accuracies(experiment, name + end) for name in ("synchronous", "solo")] for end in ("", f", rate {rate}")]
    text = "; ".join(f"synchronous {spread(one)}, solo {spread(other)}" for one, other in pairs)
    return f"{text} at rate {rate} (`{experiment}`)", all(is_less(solo, synchronous) for synchronous, solo in pairs)


def majority_accuracy(experiment: str) -> Found:
    synchronous, majority = (accuracies(experiment, name) for name in ("synchronous", "majority"))
    text = f"synchronous {spread(synchronous)}, majority {spread(majority)} (`{experiment}`)"
    return text, abs(fmean(majority) - fmean(synchronous)) < 1


def never_equal() -> Found:
    equal, apart = (accuracies("digits-latest", name) for name in ("solo", "solo, never equal"))
    text = f"{spread(apart)}, {spread(equal)} if equal every 4 epochs (`digits-latest`)"
    return text, is_less(apart, equal)


def severe_speed(experiment: str, name: str, paper: float) -> Found:
    (speed,) = speedups(experiment, name)
    return f"{speed:.2f}x (`{experiment}`)", speed > 0.9 * paper


def solo_is_fastest() -> Found:
    solo, majority = speedups("digits-latest", "solo", "majority")
    return f"solo {solo:.2f}x, majority {majority:.2f}x (`digits-latest`)", solo > majority > 1


def weak_scaling() -> Found:
    """Of 8 ranks, over one that takes 16 examples in each 100 ms."""
    majority, synchronous = (job("lstm", name).rate / 160 for name in ("majority", "synchronous"))
    text = f"{majority:.2f}x and {synchronous:.2f}x of one rank without communication (`lstm`)"
    return text, majority > max(synchronous, 0.9 * 4.71)


# --- Hop ------------------------------------------------------------------------------------------------------------


def sparser_suffers_less() -> Found:
    names = ("ring", "ring-based", "double-ring")
    found = [
        speedups(name, *(f"{graph}, random slow-down" for graph in names)) for name in ("hop-graphs", "hop-linear")
    ]
    text = f"{'; '.join(map(times, found))} of the speed of each without (`hop-graphs`, `hop-linear`)"
    return text, all(of == sorted(of, reverse=True) for of in found)


def server_is_slower() -> Found:
    found = speedups("hop-graphs", "parameter server") + speedups("hop-linear", "parameter server")
    return f"{times(found)} the speed of the ring-based graph (`hop-graphs`, `hop-linear`)", max(found) < 0.9


def backup_is_faster() -> Found:
    graphs = {"hop": ("backup 1", "backup 1, double ring"), "hop-linear": ("backup 1", "backup 1, double-ring")}
    names = [(name, f"{job}, random slow-down") for name, jobs in graphs.items() for job in jobs]
    names.append(("hop-cnn", "backup 1"))
    found = [speed for name, of in names for speed in speedups(name, of)]
    steps = [relative_epochs(name, of) for name, of in names]
    text = f"{times(found)} in time, {times(steps)} the steps (`hop`, `hop-linear`, `hop-cnn`)"
    return text, min(found) > 1.1 and max(steps) < 1.1


def backup_rate() -> Found:
    found = cell("hop-16", mode="backup:1")
    return f"{found['speedup']:.2f}x; our load allows {found['ideal_speedup']:.2f}x (`hop-16`)", found["speedup"] > 1.6


def staleness_is_like_backup() -> Found:
    names = ("backup 1, random slow-down", "staleness 5, random slow-down")
    found = {experiment: speedups(experiment, *names) for experiment in ("hop", "hop-linear")}
    texts = [f"backup {one:.2f}x, staleness {other:.2f}x (`{name}`)" for name, (one, other) in found.items()]
    return "; ".join(texts), all(abs(stale / backup - 1) < 0.2 for backup, stale in found.values())


def skip_iteration() -> Found:
    standard, skip = (cell("hop-16-slow", mode=mode) for mode in ("standard", "skip:10"))
    free = 1e3 / standard["compute_ms"]
    slower = [free / found["iterations_per_s"] for found in (standard, skip)]
    return f"{slower[0]:.2f} to {slower[1]:.2f} (`hop-16-slow`)", slower[0] > 3 and slower[1] < 1.2


def skip_training() -> Found:
    two, ten = speedups("hop-graphs", "skip 2, one 4x slower", "skip 10, one 4x slower")
    (linear,) = speedups("hop-linear", "skip 10, one 4x slower")
    text = f"skip 2 {two:.2f}x, skip 10 {ten:.2f}x (`hop-graphs`); skip 10 {linear:.2f}x (`hop-linear`)"
    return text, min(ten, linear) > 2 and ten > two


def gap_bounds() -> Found:
    return "all bounds hold in each simulated run, and are attained (`tests/plan/test_hop.py`)", True


def aware_graphs() -> Found:
    rates = [cell(f"hosts-hop-{name}", mode="standard")["iterations_per_s"] for name in ("ring-based", "two-level")]
    return f"{rates[1] / rates[0]:.2f}x the iterations/s (`hosts-hop`)", rates[1] > rates[0]


def gaps() -> Found:
    names = ("ring-based", "two-level:4+2+2", "two-level:4+2+2:2")
    found = [gap_between_others(topology.by_name(name, 8)) for name in names]
    return ", ".join(f"{gap:.4f}" for gap in found), bool(np.allclose(found, (0.6667, 0.2682, 0.2688), atol=1e-4))


# --- Ripples --------------------------------------------------------------------------------------------------------


def groups_homogeneous() -> Found:
    found = speedups("groups", "static", "smart")
    return f"{times(found)} (`groups`)", min(found) > 1.1


def groups_by_links() -> Found:
    found = [cell("hosts-groups-100mbit", generator=name)["speedup"] for name in ("static", "smart")]
    return f"{times(found)} in iterations/s (`hosts-groups-100mbit`)", min(found) > 1.1


def groups_server() -> Found:
    (found,) = speedups("groups", "parameter server")
    return f"{found:.2f}x (`groups`)", found < 0.5


def groups_random() -> Found:
    (found,) = speedups("groups", "random")
    return f"{found:.2f}x (`groups`)", found < 1


def groups_ad_psgd() -> Found:
    (found,) = speedups("groups", "ad-psgd")
    return f"{found:.2f}x (`groups`)", found < 0.5


def ad_psgd_waits() -> Found:
    found = 100 * cell("gossip-16", method="ad-psgd", slowdown="none")["waiting_fraction"]
    return f"{found:.1f} % (`gossip-16`)", found > 90


def order_of_iterations() -> Found:
    names = ("ad-psgd", "random", "smart", "static")
    found = [job("groups", name).epochs for name in names]
    text = ", ".join(f"{name} {epochs:.1f}" for name, epochs in zip(names, found, strict=True))
    return f"{text} epochs (`groups`)", found == sorted(found)


def groups_slow(name: str, paper: float, by: int = 2) -> Found:
    (speed,) = speedups("groups", f"{name}, one slower by {by}")
    return f"{speed:.2f}x (`groups`)", speed > 0.8 * paper


def ad_psgd_is_slower() -> Found:
    (speed,) = speedups("groups", "ad-psgd, one slower by 2")
    return f"{speed:.2f}x (`groups`)", speed < 1


def smart_beats_ad_psgd() -> Found:
    found = [*speedups("groups", *(f"{name}, one slower by 2" for name in ("smart", "ad-psgd")))]
    return f"smart {found[0]:.2f}x, AD-PSGD {found[1]:.2f}x (`groups`)", found[0] > found[1]


def section_length() -> Found:
    names = ("every step", "every 4 steps", "every 16 steps", "every 64 steps")
    found = [job("frequency", name).epochs for name in names]
    return ", ".join(f"{epochs:.1f}" for epochs in found) + " epochs (`frequency`)", found[-1] > 1.05 * found[0]


# --- AD-PSGD --------------------------------------------------------------------------------------------------------

WITHIN = 0.03
DECENTRALIZED = ("d-psgd", "sgp", "ad-psgd")


def same_loss() -> Found:
    base = job("methods", "synchronous, equal").loss
    found = {name: job("methods", f"{name}, equal") for name in DECENTRALIZED}
    text = ", ".join(f"{name} {of.loss / base:.3f}" for name, of in found.items())
    seeds = found["ad-psgd"].seeds
    is_near = max(of.loss for of in found.values()) < (1 + WITHIN) * base
    return f"{text} of all-reduce's loss, {seeds} seeds (`methods`)", is_near


def epochs_of_mean(name: str) -> float:
    """Return the epochs until the mean model has the loss. Results of earlier versions lack it, and raise KeyError."""
    runs = [run for run in experiments()["neighbors"] if run["job"] == name and run["mean_curve"]]
    return fmean(run["epochs_to_target"] for run in runs)


def same_epochs() -> Found:
    base, *found = (epochs_of_mean(name) for name in ("all-reduce", *DECENTRALIZED))
    text = ", ".join(f"{name} {epochs:.1f}" for name, epochs in zip(DECENTRALIZED, found, strict=True))
    return f"{text}; all-reduce {base:.1f} epochs to the loss 0.3 (`neighbors`)", max(found) < (1 + WITHIN) * base


def eamsgd_is_worse() -> Found:
    base, *with_tau = (epochs_of_mean(name) for name in ("all-reduce", "eamsgd", "eamsgd, tau 1", "eamsgd, tau 16"))
    eamsgd = min(with_tau)
    return f"{eamsgd:.1f}, all-reduce {base:.1f} epochs to the loss 0.3 (`neighbors`)", eamsgd > (1 + WITHIN) * base


def same_accuracy() -> Found:
    base, ours = (job("neighbors", name).accuracy for name in ("all-reduce", "ad-psgd"))
    return f"{ours:.1f} %, all-reduce {base:.1f} % (`neighbors`)", ours > base - 0.5


def slow_worker(slowdown: str, name: str, paper: float) -> Found:
    speeds = [cell("gossip-16", method="ad-psgd", slowdown=slowdown)["speedup"]]
    text = f"{speeds[0]:.2f}x the iterations/s (`gossip-16`)"
    if name:
        speeds += speedups("neighbors", name)
        text += f", {speeds[1]:.2f}x to a loss (`neighbors`)"
    return text, min(speeds) > max(1, 0.8 * paper)


def idle_time() -> Found:
    names = ("allreduce", "d-psgd", "ad-psgd")
    found = [100 * cell("gossip-16", method=name, slowdown="0:2")["waiting_fraction"] for name in names]
    text = ", ".join(f"{name} {waiting:.1f} %" for name, waiting in zip(names, found, strict=True))
    return f"{text} (`gossip-16`)", found[2] < 5 < min(found[:2])


def scaling() -> Found:
    found = cell("gossip-16", method="ad-psgd", slowdown="none")
    speedup = 16 * found["iterations_per_s"] / found["ideal_iterations_per_s"]
    return f"{speedup:.2f} (`gossip-16`)", speedup > 14.78


def slow_network() -> Found:
    names = {"hosts-gossip": "without a limit", "hosts-gossip-1gbit": "1 Gbit/s", "hosts-gossip-100mbit": "100 Mbit/s"}
    texts, holds = [], True
    for name, link in names.items():
        rates = {one["method"]: one["iterations_per_s"] for one in cells(name)}
        ours = rates["ad-psgd"]
        others = {method: rate for method, rate in rates.items() if method not in ("ad-psgd", "a2cid2")}
        second = max(others, key=lambda method: others[method])
        texts.append(f"{ours / others[second]:.2f}x {second}, {link}")
        holds = holds and ours > 0.99 * others[second]
    return f"{'; '.join(texts)} (`hosts-gossip`)", holds


def shared_links() -> Found:
    found = cell("hosts-gossip-slow-host", method="ad-psgd")["speedup"]
    return f"{found:.1f}x over all-reduce, one host at 10 Mbit/s (`hosts-gossip-slow-host`)", found > 3.8


# --- ElasticBSP -----------------------------------------------------------------------------------------------------


def random_barrier() -> Found:
    """Waiting of ten workers: of BSP, at the first points; at random points, each with the latest others before it."""
    waits = []
    for seed in range(10):
        rows = zipline.generate(10, 15, seed)
        ends = np.random.default_rng(seed).choice(rows[rows >= rows[:, 0].max()], 100)
        apart = [np.ptp([row[row <= end].max() for row in rows]) for end in ends]
        waits.append([zipline.zipline_linear(rows).d, np.ptp(rows[:, 0]), fmean(map(float, apart))])
    ours, bsp, random = np.mean(waits, axis=0)
    return f"ZipLine {ours:.0f} ms, BSP {bsp:.0f} ms, random {random:.0f} ms", ours < min(bsp, random)


def elastic_accuracy_one_rate() -> Found:
    names = ("bsp, rate of asp", "asp", "ssp:3", "elastic:15")
    found = {}
    for name in names:
        runs = [run for run in experiments()["elastic"] if run["job"] == name]
        found[name] = 100 * fmean(_accuracy_after(8, run) for run in runs)
    text = ", ".join(f"{name} {accuracy:.1f} %" for name, accuracy in found.items())
    return f"{text} after 8 epochs (`elastic`)", found["elastic:15"] == max(found.values())


def _accuracy_after(epochs: float, run: dict[str, Any]) -> float:
    points = [point for point in run.get("mean_curve") or run["curve"] if point["epoch"] <= epochs]
    return float(points[-1]["accuracy"])


def windows() -> Found:
    return "equal to exhaustive search on small sets (`tests/unit/zipline`)", True


def full_grid_scan() -> Found:
    return "it may miss the optimum, as a counterexample shows (`tests/unit/zipline`)", False


def search_cost() -> Found:
    found = [each["times_linear"] for each in cells("zipline", algorithm="full_grid_scan") if each["workers"] >= 100]
    return f"{min(found):.0f} to {max(found):.0f} times the fastest (`zipline`)", min(found) > 10


def crossover() -> Found:
    def ratio(workers: int, lookahead: int) -> float:
        of = {"workers": workers, "lookahead": lookahead}
        slow, fast = (
            cell("zipline", algorithm=name, **of)["time_us"]["p50"] for name in ("zipline_opt", "zipline_opt_bs")
        )
        return float(slow / fast)

    found = {lookahead: [ratio(workers, lookahead) for workers in (100, 1000)] for lookahead in (15, 150)}
    text = "; ".join(f"R = {r}: {a:.2f} with 100, {b:.2f} with 1000 workers" for r, (a, b) in found.items())
    return f"time of ZipLineOpt over ZipLineOptBS, {text} (`zipline`)", all(b > 1 > a for a, b in found.values())


def elastic_speed() -> Found:
    found = speedups("elastic", "elastic:15", "asp", "ssp:3")
    return f"over BSP: elastic {found[0]:.2f}x, ASP {found[1]:.2f}x, SSP {found[2]:.2f}x (`elastic`)", found[0] == max(
        found
    )


def elastic_over_bsp() -> Found:
    found = speedups("elastic", "elastic:15", "elastic:15, one 3x slower")
    return f"{found[0]:.2f}x, {found[1]:.2f}x where one is 3x slower (`elastic`)", min(found) > 1.1


def larger_lookahead() -> Found:
    names = [f"elastic:{lookahead}" for lookahead in (15, 60, 240)]
    found = speedups("elastic-lookahead", *names, *(f"{name}, one 3x slower" for name in names))
    text = f"R = 15, 60, 240: {times(found[:3])} over BSP; {times(found[3:])} where one is 3x slower"
    return f"{text} (`elastic-lookahead`)", all(of[2] < 0.95 * of[0] for of in (found[:3], found[3:]))


def elastic_accuracy() -> Found:
    names = ("bsp", "asp", "ssp:3", "elastic:15")
    found = [job("elastic", name).accuracy for name in names]
    text = ", ".join(f"{name} {accuracy:.1f} %" for name, accuracy in zip(names, found, strict=True))
    return f"{text} (`elastic`)", found[-1] == max(found)


# --- The tables -----------------------------------------------------------------------------------------------------

KINDS = ("reproduced", "**not reproduced**", "not tried", "not measured")


def verdict(claim: dict[str, Any]) -> tuple[str, str]:
    """Return our numbers, and one of `KINDS`."""
    if "ours" not in claim:
        return "", "not tried"
    name, *arguments = claim["ours"]
    try:
        text, holds = globals()[name](*arguments)
    except KeyError as missing:
        if missing.args[0] == name:
            raise
        return "", "not measured"
    return text, KINDS[0] if holds else KINDS[1]


def claims_table(paper: str) -> str:
    """Return the table of a paper's claims."""
    head = ["place", "claim", "paper", "here", "verdict", "conditions, or why not"]
    rows = [
        [of["place"], of["claim"], of.get("paper", "only drawn"), *verdict(of), of.get("why", "")]
        for of in CLAIMS[paper]
    ]
    return markdown(head, rows)


def verdicts() -> str:
    """Return the number of claims with each verdict, by paper."""
    rows = []
    for paper, claims in CLAIMS.items():
        found = [verdict(claim)[1] for claim in claims]
        rows.append([f"[{paper}](#{paper})", *(str(found.count(kind)) for kind in KINDS)])
    return markdown(["paper", *(kind.strip("*") for kind in KINDS)], rows)
