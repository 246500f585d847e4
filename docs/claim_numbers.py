"""Numbers of the experiments and measurements in docs/results, for the papers' claims."""

from __future__ import annotations

import functools
from statistics import fmean
from typing import Any, NamedTuple

from experiment_tables import experiment_results
from tables import read_results

from pycollectives.experiments import report


class Job(NamedTuple):
    """Means over the seeds of a job."""

    speedup: float
    loss: float
    accuracy: float
    epochs: float
    rate: float
    seeds: int


@functools.cache
def experiments() -> dict[str, list[dict[str, Any]]]:
    return {found["name"]: found["results"] for found in experiment_results()}


def job(experiment: str, name: str) -> Job:
    runs = [run for run in experiments()[experiment] if run["job"] == name]
    if not runs:
        raise KeyError(name)
    end = [run["curve"][-1] for run in runs]
    epochs = [run.get("epochs_to_target") for run in runs]
    return Job(
        mean_if_known([run["speedup"] for run in runs]),
        fmean(point["loss"] for point in end),
        100 * fmean(point["accuracy"] or 0 for point in end),
        mean_if_known(epochs),
        fmean(report.examples_per_s(run) or 0 for run in runs),
        len(runs),
    )


def mean_if_known(values: list[float | None]) -> float:
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else float("nan")


def accuracies(experiment: str, name: str) -> list[float]:
    """Return the final accuracy in percent with each seed."""
    runs = [run for run in experiments()[experiment] if run["job"] == name]
    if not runs:
        raise KeyError(name)
    return [100 * run["curve"][-1]["accuracy"] for run in sorted(runs, key=lambda run: int(run["seed"]))]


def relative_epochs(experiment: str, name: str) -> float:
    """Return the epochs to the target over those of the job's baseline."""
    (baseline,) = {run["baseline"] for run in experiments()[experiment] if run["job"] == name}
    return job(experiment, name).epochs / job(experiment, baseline).epochs


def spread(values: list[float]) -> str:
    return f"{fmean(values):.1f} % ({min(values):.1f} to {max(values):.1f})"


def speedups(experiment: str, *names: str) -> list[float]:
    return [job(experiment, name).speedup for name in names]


def cells(name: str, **which: Any) -> list[dict[str, Any]]:
    found = [cell for cell in read_results(name) if all(cell[key] == value for key, value in which.items())]
    if not found:
        raise KeyError(name)
    return found


def cell(name: str, **which: Any) -> dict[str, Any]:
    (found,) = cells(name, **which)
    return found


def times(values: list[float]) -> str:
    return ", ".join(f"{value:.2f}x" for value in values)
