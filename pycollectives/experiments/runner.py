"""Runs an experiment, all its jobs one after the other in one program, so that they share a machine and its moods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..communicator import Communicator
from ..machine import Machine
from ..provenance import commit
from ..train import job as training
from .ideal import ideal_speedup

if TYPE_CHECKING:
    from collections.abc import Callable

    from mpi4py import MPI

    from .experiment import Experiment, Job

__all__ = ["run"]


def run(experiment: Experiment, world: MPI.Comm, say: Callable[[str], None]) -> dict[str, Any]:
    """Return the results, as they are kept in JSON; collective.

    Keys of a result: job, seed, beside, settings, paper_speedup, ideal_speedup and `training.Summary`'s; if there is a
    target, `time_to_target_s` of rank 0's replica; `speedup` over `beside` with the same seed, in the time to it
    or in steps per second.
    """
    if world.size != experiment.ranks:
        raise ValueError(f"experiment {experiment.name}: expected {experiment.ranks} ranks, got {world.size}")
    results: list[dict[str, Any]] = []
    for seed in experiment.seeds:
        for job in experiment.jobs:
            result = _run_job(experiment, job, seed, world)
            for other in results:
                if (other["job"], other["seed"]) == (job.beside, seed):
                    result["speedup"] = _speedup(result, other)
            results.append(result)
            say(_line(result))
    about = {key: getattr(experiment, key) for key in ("name", "title", "figure", "scale", "ranks", "target_loss")}
    return {**about, "commit": commit(), "machine": str(Machine.here()), "results": results}


def _run_job(experiment: Experiment, job: Job, seed: int, world: MPI.Comm) -> dict[str, Any]:
    settings = job.with_seed(seed)
    with Communicator(world, ranks_per_node=experiment.ranks_per_node) as comm:
        summary = training.run(settings, comm)
    seconds = training.Plan.of(settings, rank=world.rank, ranks=world.size).seconds
    result = {
        "job": job.name,
        "seed": seed,
        "beside": job.beside,
        "paper_speedup": job.paper,
        "ideal_speedup": ideal_speedup(settings.method, seconds, seed),
        "speedup": 1.0 if job.beside is None else None,
        "settings": settings.as_json(),
        **summary.as_json(),
    }
    if experiment.target_loss is not None:
        result["time_to_target_s"] = _time_to(experiment.target_loss, summary)
    return result


def _time_to(loss: float, summary: training.Summary) -> float | None:
    """Seconds until the validation loss is as low, between two points by a straight line; None: never."""
    before = None
    for point in summary.curve:
        if point.loss <= loss:
            if before is None:
                return point.elapsed_s
            share = (before.loss - loss) / (before.loss - point.loss)
            return before.elapsed_s + share * (point.elapsed_s - before.elapsed_s)
        before = point
    return None


def _speedup(result: dict[str, Any], other: dict[str, Any]) -> float | None:
    if "time_to_target_s" not in result:
        return float(result["steps_per_s"] / other["steps_per_s"])
    times = other["time_to_target_s"], result["time_to_target_s"]
    return None if None in times else float(times[0] / times[1])


def _line(result: dict[str, Any]) -> str:
    last = result["curve"][-1]
    accuracy = "" if last["accuracy"] is None else f", accuracy {100 * last['accuracy']:.1f} %"
    speedup = "" if result["speedup"] is None else f", {result['speedup']:.2f}x"
    return (
        f"{result['job']} (seed {result['seed']}): {result['steps_per_s']:.3f} steps/s{speedup}, "
        f"loss {last['loss']:.4g}{accuracy}, {result['active']:.1f} active"
    )
