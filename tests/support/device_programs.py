"""Applications of a partial allreduce with arrays on a device: contributions and results are on its streams."""

from __future__ import annotations

import contextlib
import gc
import random
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from arrivals import play_actions, random_part, random_policy
from devices import Block, Simulated
from mpi4py import MPI
from oracle import LIMIT, Case, Recorder, check

import pycollectives as pc
from pycollectives.partial_allreduce.arguments import PartialAllreduceArguments
from pycollectives.partial_reduce.arguments import PartialReduceArguments

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest
    from devices import Host
    from oracle import Log

WORLD = MPI.COMM_WORLD


@contextlib.contextmanager
def simulated_device(seed: int, **options: Any) -> Iterator[Simulated]:
    """Yield a device for collectives; at the end, all their memory must be freed, without misuse."""
    machine = Simulated(seed, **options)
    machine.driver.use()
    try:
        yield machine
        machine.finish()
    finally:
        machine.driver.use_no_more()
    gc.collect()
    machine.end()


@contextlib.contextmanager
def device_and_ranks(
    seed: int, ranks_per_node: int | str | None = None, *, progress: str = "thread", **options: Any
) -> Iterator[tuple[Simulated, pc.Communicator]]:
    """Yield this rank's own device, made with `options`, and a communicator; at the end, the device must be empty."""
    with (
        simulated_device(seed * WORLD.size + WORLD.rank, **options) as machine,
        pc.Communicator(WORLD, ranks_per_node=ranks_per_node, timeout=LIMIT, progress=progress) as comm,
    ):
        yield machine, comm


def device_and_node(seed: int, **options: Any) -> contextlib.AbstractContextManager[tuple[Simulated, pc.Communicator]]:
    """The same with all ranks on one node."""
    return device_and_ranks(seed, "all", **options)


@contextlib.contextmanager
def failing_device(seed: int) -> Iterator[Simulated]:
    """Yield a device whose memory is lost at the end, like the memory of a device that fails."""
    machine = Simulated(seed * WORLD.size + WORLD.rank)
    machine.driver.use()
    yield machine
    machine.driver.use_no_more()


class OnDevice:
    """An array of the application on a device, with the stream on which the application works."""

    def __init__(self, machine: Host, values: np.ndarray, stream: int | None = None):
        self.machine = machine
        self.like = values
        self.handle = machine.stream_of_caller() if stream is None else stream
        self.stream = machine.executor.stream_of_caller(self.handle)
        self.block = Block(machine, values)
        self.writable = True
        self.names_stream = True

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.like.shape,
            "typestr": self.like.dtype.str,
            "data": (self.block.address, not self.writable),
            "version": 3,
            "stream": self.handle if self.names_stream else None,
        }

    def write(self, values: np.ndarray) -> None:
        """Queue a write, which is done late."""
        self.machine.write(self.handle, self.block.address, np.ascontiguousarray(values, self.like.dtype))

    def copy_from(self, array: Any, index: int = 0) -> None:
        """Queue a copy of another array to row `index` of this one, on this array's stream."""
        interface = array.__cuda_array_interface__
        nbytes = int(np.prod(interface["shape"])) * np.dtype(interface["typestr"]).itemsize
        self.stream.copy(self.block.address + index * nbytes, interface["data"][0], nbytes)

    def get(self) -> np.ndarray:
        """Return the values when all work is done."""
        self.machine.finish()
        return self.block.get()

    def free(self) -> None:
        self.block.free()
        self.stream = None


class DeviceRecorder(Recorder):
    """A Recorder of arrays on a device.

    Contributions are written late and overwritten at once, and results are copied by the application's stream, for
    which no thread waits.
    """

    def __init__(self, machine: Host, rank: int, ar: pc.PartialAllreduce, case, x: OnDevice):
        super().__init__(rank, ar, case)
        self._x = x
        self._seen = OnDevice(machine, np.zeros((case.calls + 8, case.count), x.like.dtype), x.handle)
        self._number = 0
        self._draw = random.Random(case.calls * rank + len(case.dtype))
        self.ar = self  # type: ignore[assignment]
        self._collective = ar

    # The calls that a Recorder makes:

    def contribute_values(self, values: np.ndarray) -> pc.Request:
        self._x.write(values)
        handle = self._collective.contribute(self._x)
        self._x.write(np.full_like(values, 77))
        return handle

    def contribute(self) -> pc.Request:
        self._write_down_if_late()  # this call hands over the previous contribution
        j = self.log.contributions
        self.log.contributions += 1
        handle = self.contribute_values(self.marks.contribution(self.log.rank, j))
        self._open.append((j, handle))
        if self._draw.random() < 0.5:  # otherwise the engine or a later call hands it over
            self._write_down_if_late()
        return handle

    def _write_down_if_late(self) -> None:
        """Record a late call, which receives its missed results at once. Lateness is known only at the handover."""
        if self._open and self._open[-1][1].late:
            self._write_down(*self._open.pop())

    def flush(self, timeout: float | None = None) -> Any:
        if timeout is not None:  # the recorder's own call
            return self._collective.flush(timeout=timeout)
        return super().flush()

    def close(self) -> None:
        self.wait()
        self._collective.leave()
        self.log.closed = True

    @property
    def result(self) -> np.ndarray:
        """A row that will receive the result."""
        self._seen.copy_from(self._collective.result, self._number)
        self._number += 1
        return np.array([self._number - 1])

    def finished(self) -> Log:
        """Return the record, with the results that the streams have copied."""
        seen = self._seen.get()
        self.log.replies = [replace(reply, result=seen[int(reply.result[0])]) for reply in self.log.replies]
        self._seen.free()
        self._collective = self.ar = None  # type: ignore[assignment]
        assert not self._open
        return self.log


def random_device_case(draw: random.Random, size: int) -> Case:
    op, dtype = draw.choice(
        [
            ("SUM", "int64"),
            ("SUM", "float32"),
            ("AVG", "int32"),
            ("AVG", "float16"),
            ("MAX", "float64"),
            ("PROD", "int32"),
        ]
    )
    return Case(
        size=size,
        calls=8,
        policy=random_policy(draw, size),
        op=op,
        dtype=dtype,
        late=draw.choice(["accumulate", "accumulate", "replace", "drop"]) if op != "PROD" else "replace",
        missed=draw.choice(["latest", "sum"]) if op in ("SUM", "AVG") else "latest",
        max_staleness=draw.choice([None, None, 0, 1]),
        history=draw.choice([1, 2, 8]),
        tiles=draw.choice([1, 3, 23]),
    )


def play_and_check(machine: Host, comm: pc.Communicator, seed: int, **changes: Any) -> None:
    """Let each rank play a random part on a collective, and check the records of all ranks with the oracle.

    `changes`: changes to the random `Case`.
    """
    draw = random.Random(seed)  # the same on all ranks
    case, flushes = replace(random_device_case(draw, comm.size), **changes), draw.randint(0, 2)
    actions = random_part(random.Random(seed * 1009 + comm.rank), case, flushes)
    print(f"seed {seed}: {case}; rank {comm.rank} does {actions}")
    x = OnDevice(machine, np.zeros(case.count, case.dtype))
    options = {name: value for name, value in case.arguments.items() if name not in ("count", "dtype")}
    with comm.partial_allreduce(x, **options) as ar:
        recorder = DeviceRecorder(machine, comm.rank, ar, case, x)
        play_actions(actions, recorder)
    logs = comm.mpi_comm.allgather(recorder.finished())
    x.free()
    rounds = check(case, logs)
    assert all(log.closed for log in logs) or rounds[max(rounds)].flush, "there is a round after the last flush"


PIECES = {"piece_bytes": 64}


def cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copy data of a few hundred bytes between nodes in pieces, as data of megabytes is copied."""
    whole = PartialAllreduceArguments.for_engine

    def cut(self, nodes):
        return whole(self, nodes) if self.like.device is None else {**whole(self, nodes), **PIECES}

    monkeypatch.setattr(PartialAllreduceArguments, "for_engine", cut)


def cut_groups_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do the same for partial reduces."""
    whole = PartialReduceArguments.for_engine

    def cut(self, nodes):
        return whole(self, nodes) if self.like.device is None else {**whole(self, nodes), **PIECES}

    monkeypatch.setattr(PartialReduceArguments, "for_engine", cut)


def call_until_it_fails(ar: pc.PartialAllreduce, x: OnDevice) -> str:
    """Return the error that ends the calls; all results before must be right. `x` has the rank's number, and 1."""
    until = time.monotonic() + LIMIT
    while time.monotonic() < until:
        try:
            result, info = ar.allreduce(x)
            values = result.to_host()
        except RuntimeError as error:
            return str(error)
        assert (values == sum(rank + 1 for rank in info.contributors)).all(), f"a wrong result: {values} {info}"
    raise AssertionError("a hang")
