"""Lets all workers compute and synchronise for the same time, and brings together what they wrote down."""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from . import group_books
from .barrier import SleepingBarrier
from .generators import meets_after, reports_every_group
from .group_books import Entry, Page
from .launch import RunError
from .timeline import Timeline, Window

if TYPE_CHECKING:
    from mpi4py import MPI

    from .averaging import Averaging


@dataclass(frozen=True)
class Run:
    """Of all workers, by rank."""

    timelines: list[Timeline]
    pages: list[Page]


def run_workers(comm: MPI.Comm, averaging: Averaging, *, compute: float, window: Window) -> Run | None:
    """Collective; None on all ranks but 0. `compute`: what this worker sleeps in an iteration, in seconds."""
    barrier = SleepingBarrier(comm)
    everybody = tuple(range(comm.size))
    begins: list[float] = []
    ends: list[float] = []
    page = Page()
    clock, sleep, model = time.perf_counter, time.sleep, averaging.model
    averaging.open()
    gc.collect()
    gc.disable()
    try:
        before = model.sampled_value()
        barrier.wait()
        start = clock()
        while True:
            sleep(compute)
            begin = clock() - start
            answer = averaging.synchronise(len(begins), begin >= window.end)
            end = clock() - start
            begins.append(begin)
            ends.append(end)
            after = model.sampled_value()
            if answer is None:
                page.entries.append(Entry(len(page.entries), everybody, before, after))
            else:
                page.entries.append(
                    Entry(answer.sequence, answer.group, before, after, answer.conflicts, answer.waited)
                )
            before = after
            if not averaging.goes_on(end >= window.end):
                break
    finally:
        gc.enable()
    averaging.close()
    page.final = model.value()
    barrier.wait()
    everything = comm.gather((Timeline(np.array(begins), np.array(ends)), page))
    if everything is None:
        return None
    return Run([timeline for timeline, _ in everything], [page for _, page in everything])


def verify(comm: MPI.Comm, name: str, run: Run | None, *, anybody_slow: bool) -> None:
    """Collective. RunError on every rank if a synchronisation was wrong."""
    findings: list[str] = []
    if run is not None:
        met = meets_after(name, ranks=comm.size, anybody_slow=anybody_slow)
        findings = group_books.audit(run.pages, every_group=reports_every_group(name), meets_after=met)
    findings = comm.bcast(findings)
    if findings:
        shown = "\n  ".join(findings[:5])
        raise RunError(f"{name}: {len(findings)} findings\n  {shown}")
