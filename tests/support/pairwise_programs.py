"""A pairwise averaging whose averages have a known order: models have the same bits on the host and on a device."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
from device_programs import OnDevice
from devices import bits

if TYPE_CHECKING:
    from collections.abc import Callable

    from devices import Host

    import pycollectives as pc

SECONDS = 30
COUNT = 150


def check_bits(machine: Host, comm: pc.Communicator, dtype: str, acceleration: str | None) -> None:
    """Run the same program on the host and on the device, and compare the bits."""
    rng = np.random.default_rng(comm.rank)
    like = values_of_any_size(rng, dtype)
    deltas = [values_of_any_size(rng, dtype) for _ in range(3 * comm.size)]
    graph = "star" if comm.size == 3 else "ring"  # a ring of three is complete, where A2CiD2 changes nothing
    options = {"topology": graph, "pace": "per_step", "order": "round-robin", "acceleration": acceleration}
    arrays = [OnDevice(machine, like)]

    def put(values: np.ndarray) -> OnDevice:
        arrays.append(OnDevice(machine, values, arrays[0].handle))
        return arrays[-1]

    with comm.pairwise_averaging(like, **options) as on_host:
        expected = np.zeros_like(like)
        play_in_turns(comm, on_host, deltas, np.copy, expected)
    with comm.pairwise_averaging(arrays[0], **options) as on_device:
        found = put(np.zeros_like(like))
        play_in_turns(comm, on_device, deltas, put, found)
    np.testing.assert_array_equal(bits(found.get()), bits(expected))
    for array in arrays:
        array.free()


def values_of_any_size(rng: np.random.Generator, dtype: str) -> np.ndarray:
    """Return elements of different magnitudes, the same in all arrays: a third are nearly subnormal; sums finite."""
    limits = np.finfo(dtype)
    smallest, largest = int(limits.minexp), int(limits.maxexp) - 6
    exponents = np.where(np.arange(COUNT) % 3, np.linspace(smallest, largest, COUNT), smallest - np.arange(COUNT) % 20)
    signed = rng.choice([-1.0, 1.0], COUNT) * (1 + rng.random(COUNT))
    return np.ldexp(signed, exponents.astype(int)).astype(dtype)


def play_in_turns(
    comm: pc.Communicator,
    model: pc.PairwiseAveraging,
    deltas: list[np.ndarray],
    put: Callable[[np.ndarray], Any],
    out: Any,
) -> None:
    """Apply and average once with the next neighbor, one rank after another; `out` is the final model."""
    graph = model.topology
    sides = graph.sides() if graph.is_bipartite else None
    has_one_on_node = any(comm.nodes[other] == comm.nodes[comm.rank] for other in graph.in_neighbors(comm.rank))
    begins = graph.size > 1 and (sides is None or comm.rank in sides[0] or has_one_on_node)
    for number, delta in enumerate(deltas):
        if number % comm.size == comm.rank:
            before = model.statistics().begun
            model.apply(put(delta))
            until = time.monotonic() + SECONDS
            while begins and model.statistics().begun == before:
                assert time.monotonic() < until, f"no average in {SECONDS} s"
                time.sleep(0.0005)
        comm.mpi_comm.Barrier()
    model.read(out)
