"""P-Reduce and partial reduce on ranks that are threads of this process."""

import numpy as np
import pytest

import pycollectives as pc
from pycollectives.testing import loopback, run_ranks

SIZES = [1, 2, 3, 4, 5, 7, 8]
LIMIT = 30.0
FLOATS = ["float16", "bfloat16", "float32", "float64"]
INTEGERS = ["int8", "int16", "int32", "int64", "uint8"]

EXPECTED = {
    "SUM": lambda values: sum(values),
    "PROD": lambda values: int(np.prod(values)),
    "MIN": min,
    "MAX": max,
    "AVG": lambda values: sum(values) / len(values),
}


@pytest.fixture(autouse=True, params=[1, 2, "all"], ids=["flat", "mixed", "node"])
def ranks_per_node(request, monkeypatch):
    """Everything here holds whether ranks share memory or not."""
    monkeypatch.setitem(loopback.__kwdefaults__, "ranks_per_node", request.param)
    return request.param


def filled(value, dtype, count=3):
    """As the library names element types."""
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    return np.full(count, value, dtype)


# --- P-Reduce in given groups


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("op", EXPECTED)
def test_preduce(size, op):
    """Among all subsets that begin at rank 0, given in any order; the others keep what they have."""

    def program(comm):
        results = []
        for members in range(1, size + 1):
            x = np.full(3, float(comm.rank + 1))
            if comm.rank < members:
                comm.preduce(x, np.roll(range(members), comm.rank), op=op, timeout=LIMIT)
            results.append(x.tolist())
        return results

    expected = [
        [[EXPECTED[op](range(1, members + 1)) if rank < members else rank + 1.0] * 3 for members in range(1, size + 1)]
        for rank in range(size)
    ]
    assert run_ranks(size, program) == expected


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
@pytest.mark.parametrize("op", EXPECTED)
def test_preduce_of_every_type(dtype, op):
    values = [4, 1, 3, 2]

    def program(comm):
        x = filled(values[comm.rank], dtype)
        comm.preduce(x, range(4), op=op, timeout=LIMIT)
        return x.astype(float).tolist()

    expected = EXPECTED[op](values)
    assert run_ranks(4, program) == [[expected if dtype in FLOATS else int(expected)] * 3] * 4


@pytest.mark.parametrize("generator", [pc.RandomGroups(2), pc.SmartGroups(2), pc.PunctualGroups(2), pc.StaticGroups(2)])
@pytest.mark.parametrize("size", [2, 3, 5, 8])
def test_sync_with_different_numbers_of_calls(size, generator):
    def program(comm):
        weights = np.full(4, 2.0**20 * comm.rank)
        with comm.partial_reduce(like=weights, groups=generator) as pr:
            infos = [pr.sync(weights, timeout=LIMIT) for _ in range(3 + 2 * comm.rank)]
        assert all(comm.rank in info.group for info in infos)
        assert 0 <= weights.min() <= weights.max() <= 2.0**20 * (size - 1)
        return [(info.sequence, info.group) for info in infos]

    told = {}
    for of_rank in run_ranks(size, program):
        for sequence, group in of_rank:
            if not isinstance(generator, pc.StaticGroups):
                assert told.setdefault(sequence, group) == group
