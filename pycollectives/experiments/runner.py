"""Run all jobs of an experiment in sequence in one program, so that they share the state of the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..communicator import Communicator
from ..diagnostics.provenance import commit
from ..support.machine import Machine
from ..train import job as training
from ..train.datasets import DATASETS
from ..train.models import MODELS
from ..train.optimizers import OPTIMIZERS
from ..train.schedules import SCHEDULES
from ..train.synchronizers import METHODS
from ..train.workload import require_known
from .ideal import ideal_steps_per_s

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mpi4py import MPI

    from .experiment import Experiment, Job

__all__ = ["compare", "require", "run"]


CHOSEN = {"method": METHODS, "model": MODELS, "data": DATASETS, "optimizer": OPTIMIZERS, "schedule": SCHEDULES}
"""The registries by the names of settings."""


def require(experiment: Experiment, ranks: int) -> None:
    """Check before the first job that no later job will fail.

    Raises
    ------
    ValueError
        The experiment needs another number of ranks, or a job contains an unknown name.
    ImportError
        A job needs a package that is not installed.
    """
    if ranks != experiment.ranks:
        raise ValueError(f"experiment {experiment.name}: expected {experiment.ranks} ranks, got {ranks}")
    for job in experiment.jobs:
        try:
            for key, registry in CHOSEN.items():
                registry.find(getattr(job.settings, key))
            require_known(job.settings.load)
        except ValueError as error:
            raise ValueError(f"experiment {experiment.name}: job {job.name!r}: {error}") from None


def run(experiment: Experiment, world: MPI.Comm, say: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """Yield the results so far after each job, in the form of the JSON file; collective.

    Keys of a result: job, seed, baseline, settings, paper_speedup, the keys of `training.Summary`, and

    - `time_to_target_s` and `epochs_to_target` of the mean model, and `replica_time_to_target_s` of rank 0's replica,
      if the experiment has a target;
    - `ideal_steps_per_s`, the speed if only the load takes time; None if unknown;
    - the keys that `compare` adds.
    """
    about = {key: getattr(experiment, key) for key in ("name", "title", "figure", "scale", "ranks", "target_loss")}
    results: list[dict[str, Any]] = []
    for seed in experiment.seeds:
        for job in experiment.jobs:
            result = _run_job(experiment, job, seed, world)
            results.append(result)
            compare(results)
            say(_line(result))
            yield {**about, "commit": commit(), "machine": str(Machine.here()), "results": results}


def _run_job(experiment: Experiment, job: Job, seed: int, world: MPI.Comm) -> dict[str, Any]:
    settings = job.with_seed(seed)
    with Communicator(world, ranks_per_node=experiment.ranks_per_node) as comm:
        summary = training.run(settings, comm)
    plan = training.Plan.of(settings, rank=world.rank, ranks=world.size)
    result = {
        "job": job.name,
        "seed": seed,
        "baseline": job.baseline,
        "paper_speedup": job.paper,
        "ideal_steps_per_s": ideal_steps_per_s(settings, plan),
        "settings": settings.as_json(),
        **summary.as_json(),
    }
    if experiment.target_loss is not None:
        loss = experiment.target_loss
        result["epochs_to_target"] = _until(loss, summary.mean_curve, "epoch")
        result["time_to_target_s"] = _until(loss, summary.mean_curve, "elapsed_s")
        result["replica_time_to_target_s"] = _until(loss, summary.curve, "elapsed_s")
    return result


def _until(loss: float, curve: Sequence[training.Point], what: str) -> float | None:
    """Return the epochs or seconds until the validation loss reaches `loss`, by linear interpolation; None if never."""
    before = None
    for point in curve:
        if point.loss <= loss:
            end: float = getattr(point, what)
            if before is None:
                return end
            share = (before.loss - loss) / (before.loss - point.loss)
            begin: float = getattr(before, what)
            return begin + share * (end - begin)
        before = point
    return None


def compare(results: list[dict[str, Any]]) -> None:
    """Add to each result its speed relative to the baseline with the same seed, in place.

    With a target, `speedup` compares the time to the target, and the ideal is unknown. Otherwise `speedup` and
    `ideal_speedup` compare steps per second.
    """
    of = {(result["job"], result["seed"]): result for result in results}
    for result in results:
        baseline = of[result["baseline"] or result["job"], result["seed"]]
        if "time_to_target_s" in result:
            result["speedup"] = _ratio(baseline["time_to_target_s"], result["time_to_target_s"])
            result["ideal_speedup"] = None
        else:
            result["speedup"] = _ratio(result["steps_per_s"], baseline["steps_per_s"])
            result["ideal_speedup"] = _ratio(result["ideal_steps_per_s"], baseline["ideal_steps_per_s"])


def _ratio(value: float | None, other: float | None) -> float | None:
    return None if value is None or other is None else value / other


def _line(result: dict[str, Any]) -> str:
    last = result["curve"][-1]
    accuracy = "" if last["accuracy"] is None else f", accuracy {100 * last['accuracy']:.1f} %"
    speedup = "" if result["speedup"] is None else f", {result['speedup']:.2f}x"
    return (
        f"{result['job']} (seed {result['seed']}): {result['steps_per_s'] * result['batch']:.4g} examples/s{speedup}, "
        f"loss {last['loss']:.4g}{accuracy}, {result['active']:.1f} active"
    )
