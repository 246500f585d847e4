"""Measure one exchange of models between two ranks: our average in the background, or MPI_Sendrecv and an average."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

import pycollectives as pc

from .errors import require_none
from .gossip import ExchangeCell, Final, audit_models, pattern, step_of
from .summary import Summary
from .timing import BLOCKS, SleepingBarrier
from .workers import ITEM

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mpi4py import MPI

    from .gossip import Setting

NEIGHBORS = ("awake", "asleep")
NAP = 1e-3  # seconds; sleep of an application that is awake and idle
ASLEEP = 1.0  # seconds for which an application sleeps
LEAST = 0.25  # minimum seconds of a block
FEWEST = 16  # minimum exchanges of a rank in a block
LONGEST = 120.0  # maximum seconds for them
ALWAYS, NEVER = 1e9, 1e-9  # maximum averages per second that a rank begins


class Exchanger:
    """Ranks 0 and 1, 2 and 3, ... exchange models; a last rank without a partner only watches."""

    def __init__(self, comm: MPI.Comm, setting: Setting) -> None:
        self._comm = comm
        self._setting = setting
        self._barrier = SleepingBarrier(comm)
        even = comm.rank % 2 == 0
        partner = comm.rank + 1 if even else comm.rank - 1
        self._partner = partner if partner < comm.size else None
        self._begins = even and self._partner is not None
        self._initial = pattern(setting.bytes // ITEM)
        self._initial *= np.float32(step_of(comm.rank))
        self._model = self._initial.copy()
        self._incoming = np.empty_like(self._initial)

    def sendrecv(self, calls: int, asleep: float) -> list[float]:
        """Return the seconds of each of this rank's calls; collective. The rank that begins none sleeps before each."""
        np.copyto(self._model, self._initial)
        self._barrier.wait()
        if self._partner is None:
            self._barrier.wait()
            return []
        clock = time.perf_counter
        seconds = []
        for _ in range(calls):
            if not self._begins and asleep:
                time.sleep(asleep)
            begin = clock()
            self._comm.Sendrecv(self._model, self._partner, recvbuf=self._incoming, source=self._partner)
            np.add(self._model, self._incoming, out=self._model)
            np.multiply(self._model, np.float32(0.5), out=self._model)
            seconds.append(clock() - begin)
        self._barrier.wait()
        return seconds if self._begins else []

    def averages(self, least: float, asleep: float) -> Averages:
        """Return this rank's consecutive averages in the background; collective. An odd rank begins none.

        The application watches for at least `least` seconds. On an odd rank it sleeps for `asleep` seconds, if not 0.
        """
        with pc.Communicator(self._comm, ranks_per_node=self._setting.domain.ranks_per_node) as communicator:
            averaging = communicator.pairwise_averaging(
                self._initial,
                topology=pc.topology.by_name(self._setting.topology, self._comm.size),
                order="round-robin",
                rate=ALWAYS if self._begins else NEVER,
                seed=self._setting.seed,
            )
            self._barrier.wait()
            begin = time.perf_counter()
            before = averaging.statistics()  # may take as long as an average, which counts against us
            if asleep and not self._begins:
                time.sleep(asleep)
            after, spent = before, 0.0
            while self._looks_on(after.begun - before.begun, spent, max(asleep, least)):
                time.sleep(NAP)
                if time.perf_counter() - begin >= max(asleep, least):  # asking disturbs the averages
                    after = averaging.statistics()
                spent = time.perf_counter() - begin
            self._barrier.wait()
            averaging.equalize()
            averaging.read(self._model)
            averaging.leave()
        return Averages(spent, after.begun - before.begun, after.skipped - before.skipped)

    def _looks_on(self, begun: int, spent: float, least: float) -> bool:
        if spent >= LONGEST:
            raise TimeoutError(f"expected {FEWEST} exchanges in {spent:.0f} s, got {begun}")  # only on this rank
        return spent < least or (self._begins and begun < FEWEST)

    def verify(self) -> None:
        """After `averages`, raise RunError on every rank if models are not the mean of the initial ones; collective."""
        finals = self._comm.gather(Final.of(self._model, 1))
        require_none(self._comm, "exchange", finals and audit_models(finals, equal=True))


@dataclass(frozen=True)
class Averages:
    """One rank's averages in one block."""

    seconds: float
    begun: int
    skipped: int  # parts that averages left out


def seconds_of_exchange(block: Sequence[Averages], parts: int) -> tuple[list[float], float]:
    """Return the seconds of an exchange for each even rank with a partner, and the share of omitted parts.

    `block`: the averages of all ranks; a model has `parts` parts. A part that was omitted, because another average
    held it, counts as not exchanged. ValueError if nothing was exchanged.
    """
    begin = block[: len(block) // 2 * 2 : 2]
    whole = parts * sum(averages.begun for averages in begin)
    skipped = sum(averages.skipped for averages in block)
    if skipped >= whole or not all(averages.begun for averages in begin):
        raise ValueError(f"expected exchanges of {parts} parts, got {block}")
    share = skipped / whole
    return [averages.seconds / averages.begun / (1 - share) for averages in begin], share


def parts_of(setting: Setting) -> int:
    """Return the number of parts that an average may omit: of 64 KiB on a node, otherwise 256 KiB, or more if long."""
    segments = -(-setting.bytes // (64 << 10))
    if setting.domain.ranks_per_node % 2 == 0:  # both ranks of each pair are on one node
        return segments
    return -(-segments // max(4, -(-segments // 64)))


def measure_exchanges(comm: MPI.Comm, setting: Setting, neighbor: str) -> ExchangeCell | None:
    """Collective; None on all ranks but 0. Ours and MPI's take turns, in blocks; a sample per block and rank."""
    exchanger = Exchanger(comm, setting)
    asleep = ASLEEP if neighbor == "asleep" else 0.0
    calls = 1 if asleep else max(1, setting.iterations // BLOCKS)
    ours: list[float] = []
    theirs: list[float] = []
    shares: list[float] = []
    exchanger.sendrecv(1, 0.0)  # opens connections
    for _ in range(BLOCKS):
        seconds = exchanger.sendrecv(calls, asleep)
        least = comm.bcast(max(LEAST, sum(seconds)))
        block = comm.allgather(exchanger.averages(least, asleep))
        if setting.verify:
            exchanger.verify()
        of_ranks, share = seconds_of_exchange(block, parts_of(setting))
        ours += of_ranks
        shares.append(share)
        theirs += [float(np.mean(of_rank)) for of_rank in comm.allgather(seconds) if of_rank]
    if comm.rank != 0:
        return None
    return ExchangeCell(
        bytes=setting.bytes,
        neighbor=neighbor,
        latency=Summary.of(np.array(ours) * 1e6),
        baseline=Summary.of(np.array(theirs) * 1e6),
        skipped=float(np.mean(shares)),
    )
