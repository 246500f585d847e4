"""What is shown of an experiment's results: a table, and a figure."""

from __future__ import annotations

from statistics import mean
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["HEAD", "plot", "rows"]

HEAD = ("method", "steps/s", "speedup", "ideal", "paper", "validation loss", "accuracy", "active", "time to target")

SPEEDUPS = {"speedup": "ours", "ideal_speedup": "zero cost", "paper_speedup": "paper"}


def rows(results: dict[str, Any]) -> list[list[str]]:
    """Return a row per job, under `HEAD`: means over seeds, with the range of the accuracy."""
    table = []
    for name in dict.fromkeys(result["job"] for result in results["results"]):
        runs = [result for result in results["results"] if result["job"] == name]
        last = [run["curve"][-1] for run in runs]
        table.append(
            [
                name,
                _mean([run["steps_per_s"] for run in runs], "{:.2f}"),
                _mean([run["speedup"] for run in runs], "{:.2f}x"),
                _mean([run["ideal_speedup"] for run in runs], "{:.2f}x"),
                _mean([run["paper_speedup"] for run in runs], "{:.2f}x"),
                _mean([point["loss"] for point in last], "{:.4g}"),
                _accuracy([point["accuracy"] for point in last]),
                _mean([run["active"] for run in runs], "{:.1f}"),
                _mean([run.get("time_to_target_s") for run in runs], "{:.1f} s"),
            ]
        )
    return table


def _mean(values: list[float | None], form: str) -> str:
    known = [value for value in values if value is not None]
    return form.format(mean(known)) if len(known) == len(values) else "-"


def _accuracy(values: list[float | None]) -> str:
    known = [100 * value for value in values if value is not None]
    if len(known) != len(values):
        return "-"
    spread = f" ({min(known):.1f} to {max(known):.1f})" if len(known) > 1 else ""
    return f"{mean(known):.1f} %{spread}"


def plot(results: dict[str, Any], path: Path) -> None:
    """Draw speed beside the ideal and the paper's, and what the replica of rank 0 had learnt when."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

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
