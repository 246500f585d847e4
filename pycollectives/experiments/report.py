"""Show an experiment's results as a table and as a figure."""

from __future__ import annotations

from statistics import mean
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["examples_per_s", "plot", "table"]

UNKNOWN = "-"

SPEEDUPS = {"speedup": "ours", "ideal_speedup": "zero cost", "paper_speedup": "paper"}


def table(results: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return the titles of columns, and a row per job with means over seeds. Columns without any value are omitted.

    If there are several baselines, a column names them.
    """
    baselines = {result["job"]: result.get("baseline") or UNKNOWN for result in results["results"]}
    names = list(baselines)
    columns: dict[str, list[str]] = {"method": names}
    if len({*baselines.values()} - {UNKNOWN}) > 1:
        columns["baseline"] = list(baselines.values())
    for name in names:
        for title, text in _figures([result for result in results["results"] if result["job"] == name]).items():
            columns.setdefault(title, []).append(text)
    known = {title: texts for title, texts in columns.items() if set(texts) != {UNKNOWN}}
    return list(known), [list(row) for row in zip(*known.values(), strict=True)]


def _figures(runs: list[dict[str, Any]]) -> dict[str, str]:
    """Return the cells of a row by column title; `runs` are of one job, with different seeds."""
    last = [run["curve"][-1] for run in runs]
    drift = [_before_settling(run["curve"]) for run in runs]

    def of(key: str, form: str) -> str:
        return _mean([run.get(key) for run in runs], form)

    def reached(key: str, form: str) -> str:
        return "not reached" if any(run.get(key, 0) is None for run in runs) else of(key, form)

    return {
        "examples/s": _mean([examples_per_s(run) for run in runs], "{:.0f}"),
        "of the ideal": _mean([_percent(run["steps_per_s"], run["ideal_steps_per_s"]) for run in runs], "{:.0f} %"),
        "speedup": of("speedup", "{:.2f}x"),
        "ideal": of("ideal_speedup", "{:.2f}x"),
        "paper": _paper(runs[0].get("paper_speedup")),
        "validation loss": _mean([point["loss"] for point in last], "{:.4g}"),
        "accuracy": _accuracy([point["accuracy"] for point in last]),
        "of the replica": _mean([_percent(point["accuracy"], 1) for point in drift], "{:.1f} %"),
        "active": of("active", "{:.1f}"),
        "epochs to target": reached("epochs_to_target", "{:.1f}"),
        "time to target": reached("time_to_target_s", "{:.1f} s"),
        "by the replica": reached("replica_time_to_target_s", "{:.1f} s"),
    }


def examples_per_s(run: dict[str, Any]) -> float | None:
    """Return the examples per second of all ranks."""
    batch = run.get("batch") or run["settings"]["batch"]  # results of earlier versions lack the former
    return None if batch is None else run["steps_per_s"] * batch


def _before_settling(curve: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the last point before replicas were made equal in the last epoch or, without one, the last point."""
    *before, last = curve
    return before[-1] if before and before[-1]["epoch"] == last["epoch"] else last


def _percent(value: float | None, ideal: float | None) -> float | None:
    return None if value is None or ideal is None else 100 * value / ideal


def _mean(values: Sequence[float | None], form: str) -> str:
    known = [value for value in values if value is not None]
    return form.format(mean(known)) if len(known) == len(values) else UNKNOWN


def _paper(value: float | str | None) -> str:
    return UNKNOWN if value is None else value if isinstance(value, str) else f"{value:.2f}x"


def _accuracy(values: list[float | None]) -> str:
    known = [100 * value for value in values if value is not None]
    if len(known) != len(values):
        return UNKNOWN
    spread = f" ({min(known):.1f} to {max(known):.1f})" if len(known) > 1 else ""
    return f"{mean(known):.1f} %{spread}"


MOST_CURVES = 60
"""Jobs whose curves fit into one figure."""


def _plot_by_load(results: dict[str, Any], path: Path) -> None:
    """Draw the times to the target: a panel for each load, a bar for each method, and the range of the seeds."""
    from matplotlib import pyplot

    times: dict[str, dict[str, list[float]]] = {}
    for result in results["results"]:
        method, _, load = result["job"].partition(", ")
        if result["time_to_target_s"] is not None:
            times.setdefault(load, {}).setdefault(method, []).append(result["time_to_target_s"])
    methods = list(dict.fromkeys(method for of_load in times.values() for method in of_load))
    size = (2.6 * len(times) + 1.5, 0.26 * len(methods) + 1.2)
    figure, panels = pyplot.subplots(1, len(times), figsize=size, sharey=True, squeeze=False, layout="constrained")
    for panel, (load, of_load) in zip(panels[0], times.items(), strict=True):
        for row, method in enumerate(methods):
            if seconds := of_load.get(method):
                around = mean(seconds)
                spread = [[around - min(seconds)], [max(seconds) - around]]
                panel.barh(row, around, 0.7, xerr=spread, color="C7" if row == 0 else "C0", ecolor="black")
        panel.set_title(load)
        panel.set_xlabel("seconds to the loss")
        panel.set_yticks(range(len(methods)), methods)
        panel.grid(axis="x", alpha=0.3)
    panels[0][0].invert_yaxis()
    figure.suptitle(f"{results['title']} ({results['figure']})")
    figure.savefig(path, dpi=120)


def plot(results: dict[str, Any], path: Path) -> None:
    """Draw the speedups next to the ideal speedups and the paper's, and the mean model's learning curve.

    If there are many jobs, draw the times to the target, by load.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    if results.get("target_loss") is not None and len({result["job"] for result in results["results"]}) > MOST_CURVES:
        _plot_by_load(results, path)
        return
    figure, (speed, learning) = pyplot.subplots(1, 2, figsize=(11, 4), layout="constrained")
    names = list(dict.fromkeys(result["job"] for result in results["results"]))

    def of_job(name: str, key: str, otherwise: str = "") -> list[Any]:
        return [result.get(key) or result.get(otherwise) for result in results["results"] if result["job"] == name]

    for place, (key, label) in enumerate(SPEEDUPS.items()):
        values = {row: of_job(name, key) for row, name in enumerate(names)}
        known = [(row, mean(each)) for row, each in values.items() if all(isinstance(one, int | float) for one in each)]
        speed.barh([row + 0.27 * (place - 1) for row, _ in known], [value for _, value in known], 0.25, label=label)
    speed.set_yticks(range(len(names)), names)
    speed.invert_yaxis()
    speed.set_xlabel("times the speed of the baseline")
    speed.legend()
    for number, name in enumerate(names):
        for place, curve in enumerate(of_job(name, "mean_curve", "curve")):
            key = "loss" if curve[-1]["accuracy"] is None else "accuracy"
            line = ([point["elapsed_s"] for point in curve], [point[key] for point in curve])
            learning.plot(*line, color=f"C{number}", label=None if place else name)
            learning.set_ylabel(f"validation {key}")
            learning.set_yscale("log" if key == "loss" else "linear")
    learning.set_xlabel("seconds of training")
    learning.legend()
    figure.suptitle(f"{results['title']} ({results['figure']})")
    figure.savefig(path, dpi=120)
