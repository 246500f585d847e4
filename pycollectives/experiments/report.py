"""Show an experiment's results as a table and as a figure."""

from __future__ import annotations

from statistics import mean
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["plot", "table"]

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
    """Return a row by the titles of columns; `runs` belong to one job, with different seeds."""
    last = [run["curve"][-1] for run in runs]

    def of(key: str, form: str) -> str:
        return _mean([run.get(key) for run in runs], form)

    def reached(key: str, form: str) -> str:
        return "not reached" if any(run.get(key, 0) is None for run in runs) else of(key, form)

    return {
        "steps/s": of("steps_per_s", "{:.2f}"),
        "of the ideal": _mean([_percent(run["steps_per_s"], run["ideal_steps_per_s"]) for run in runs], "{:.0f} %"),
        "speedup": of("speedup", "{:.2f}x"),
        "ideal": of("ideal_speedup", "{:.2f}x"),
        "paper": of("paper_speedup", "{:.2f}x"),
        "validation loss": _mean([point["loss"] for point in last], "{:.4g}"),
        "accuracy": _accuracy([point["accuracy"] for point in last]),
        "active": of("active", "{:.1f}"),
        "epochs to target": reached("epochs_to_target", "{:.1f}"),
        "time to target": reached("time_to_target_s", "{:.1f} s"),
    }


def _percent(value: float, ideal: float | None) -> float | None:
    return None if ideal is None else 100 * value / ideal


def _mean(values: list[float | None], form: str) -> str:
    known = [value for value in values if value is not None]
    return form.format(mean(known)) if len(known) == len(values) else UNKNOWN


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
    """Draw the speedups next to the ideal and the paper's, and the learning curve of rank 0's replica.

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

    def of_job(name: str, key: str) -> list[Any]:
        return [result[key] for result in results["results"] if result["job"] == name]

    for place, (key, label) in enumerate(SPEEDUPS.items()):
        known = [(row, mean(values)) for row, name in enumerate(names) if None not in (values := of_job(name, key))]
        speed.barh([row + 0.27 * (place - 1) for row, _ in known], [value for _, value in known], 0.25, label=label)
    speed.set_yticks(range(len(names)), names)
    speed.invert_yaxis()
    speed.set_xlabel("times the speed of the baseline")
    speed.legend()
    for number, name in enumerate(names):
        for curve in of_job(name, "curve"):
            key = "loss" if curve[-1]["accuracy"] is None else "accuracy"
            line = ([point["elapsed_s"] for point in curve], [point[key] for point in curve])
            learning.plot(*line, color=f"C{number}", label=name if curve is of_job(name, "curve")[0] else None)
            learning.set_ylabel(f"validation {key}")
            learning.set_yscale("log" if key == "loss" else "linear")
    learning.set_xlabel("seconds of training")
    learning.legend()
    figure.suptitle(f"{results['title']} ({results['figure']})")
    figure.savefig(path, dpi=120)
