"""Hop on ranks that are threads of this process: the formulas of the paper, and calls."""

import threading
import time

import numpy as np
import pytest
from neighbor_oracle import SHAPES, d_psgd

import pycollectives as pc
from pycollectives import topology
from pycollectives.testing import loopback, run_ranks

LIMIT = 30.0
MODES = [
    pc.hop.Standard(),
    pc.hop.NotifyAck(),
    pc.hop.BackupWorkers(1),
    pc.hop.BoundedStaleness(2),
    pc.hop.Hybrid(1, 2),
]
FAMILIES = [topology.ring, topology.ring_based, topology.double_ring, topology.exponential, topology.complete]


def models_of(size, count=5, dtype=np.float64, seed=0):
    rng = np.random.default_rng([seed, size])
    return [rng.standard_normal(count).astype(dtype) for _ in range(size)]


def run(models, graph, *, steps=5, naps=None, delta=0.0, check=True, timeout=60.0, hop_options=None, **options):
    """The parameters of each rank after each of its steps, and what it had received."""
    size = len(models)
    steps_of = [steps] * size if isinstance(steps, int) else steps

    def program(comm):
        w = models[comm.rank].copy()
        history = []
        with comm.hop(w, topology=graph, **(hop_options or {})) as hop:
            for k in hop.iterations(steps_of[comm.rank], timeout=LIMIT):
                assert k == hop.iteration
                if naps is not None:
                    time.sleep(naps[comm.rank][k])
                hop.step(np.full(w.shape, delta, w.dtype), timeout=LIMIT)
                history.append((k, hop.parameters.copy(), hop.received))
                assert hop._collective.queued <= (hop.max_ig + 1) * len(graph.in_neighbors(comm.rank))
        return history

    return run_ranks(size, program, check=check, timeout=timeout, **options)


# --- The formulas


@pytest.mark.parametrize("ranks_per_node", SHAPES)
@pytest.mark.parametrize("mode", [pc.hop.Standard(), pc.hop.NotifyAck()], ids=repr)
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_a_standard_iteration_is_a_product_with_the_matrix_of_equation_1(family, mode, ranks_per_node):
    """That of D-PSGD with plain means."""
    for size in range(1, 9):
        if family is topology.double_ring and size % 2:
            continue
        models, graph = models_of(size), family(size)
        results = run(models, graph, ranks_per_node=ranks_per_node, hop_options={"mode": mode})
        expected = d_psgd(models, graph, "uniform", [5] * size)
        for result, wanted in zip(results, expected, strict=True):
            for (_, got, _), want in zip(result, wanted, strict=True):
                np.testing.assert_allclose(got, want, atol=1e-13)


@pytest.mark.parametrize("ranks_per_node", SHAPES)
@pytest.mark.parametrize("computation", ["parallel", "serial"])
def test_the_computation_graphs(computation, ranks_per_node):
    """Section 3.2: average, then add; or add, then average."""
    w = np.array([1.0, 3.0, 8.0])
    matrix = topology.ring(3).matrix("uniform")
    for _ in range(4):
        w = matrix @ w + 0.5 if computation == "parallel" else matrix @ (w + 0.5)
    models = [np.full(2, value) for value in (1.0, 3.0, 8.0)]
    results = run(
        models, topology.ring(3), steps=4, delta=0.5, ranks_per_node=ranks_per_node,
        hop_options={"computation": computation},
    )  # fmt: skip
    np.testing.assert_allclose([result[-1][1][0] for result in results], w, atol=1e-13)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("count", [0, 1, 2049, 70_001])
def test_every_float_type_and_length(dtype, count):
    """16-bit ones are added up in float32 and rounded once."""
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    models, graph = models_of(4, count, dtype), topology.ring(4)
    expected = d_psgd(models, graph, "uniform", [3] * 4)
    for ranks_per_node in SHAPES:
        for result, wanted in zip(run(models, graph, steps=3, ranks_per_node=ranks_per_node), expected, strict=True):
            for (_, got, _), want in zip(result, wanted, strict=True):
                np.testing.assert_allclose(
                    got.astype(float), want.astype(float), rtol=1e-12 if dtype == "float64" else 2e-2, atol=1e-2
                )


@pytest.mark.parametrize("ranks_per_node", SHAPES)
def test_equation_2(ranks_per_node):
    """Rank 1's update of iteration 0 comes when rank 0 is in iteration 1: weights 3 + 0 - 1 and 3, s = 2."""
    once, ended = threading.Event(), threading.Event()

    def program(comm):
        w = np.full(1, 5.0 * comm.rank)
        hop = comm.hop(w, topology=topology.ring(2), mode=pc.hop.BoundedStaleness(2))
        given = []
        if comm.rank == 1:
            assert once.wait(LIMIT)
            for _ in hop.iterations(1):  # sends the update of iteration 0
                assert ended.wait(LIMIT)
                hop.step(np.zeros(1))
            return given
        for k in hop.iterations(3, timeout=LIMIT):
            if k == 1:
                once.set()
                while hop._collective.queued == 0:
                    time.sleep(0.001)
            hop.step(np.zeros(1), timeout=LIMIT)
            given.append((hop.received, float(hop.parameters[0])))
        ended.set()
        return given

    assert run_ranks(2, program, ranks_per_node=ranks_per_node)[0] == [
        ((), 0.0),  # before iteration s none is needed
        (((1, 0),), pytest.approx(2.0)),
        ((), pytest.approx(2.0)),  # received once, reduced once
    ]


@pytest.mark.parametrize("case", range(10))
def test_late_ranks_and_ranks_that_leave(case):
    """Every mode and shape, with the gaps checked at run time; what is received is what may be."""
    rng = np.random.default_rng([case, 5])
    size = int(rng.integers(3, 9))
    graph = [topology.ring, topology.ring_based, topology.exponential][case % 3](size)
    models = models_of(size, 3000, np.float32, seed=case)
    for ranks_per_node in SHAPES:
        for mode in MODES:
            steps_of = [int(steps) for steps in rng.integers(0, 12, size)]
            skip = pc.hop.Skip(4) if mode.backup_of(0) or mode.staleness else None
            print("case", case, "size", size, "steps", steps_of, mode)
            naps = rng.choice([0.0, 0.0, 0.0, 0.01], (size, 12))
            results = run(
                models, graph, steps=steps_of, naps=naps, delay=float(rng.choice([0.0, 0.002])), seed=case,
                ranks_per_node=ranks_per_node,
                hop_options={"mode": mode, "max_ig": int(rng.integers(1, 4)), "skip": skip},
            )  # fmt: skip
            for rank, result in enumerate(results):
                assert not steps_of[rank] or result[-1][0] == steps_of[rank] - 1
                for k, _, received in result:
                    if mode.staleness is None:
                        assert all(iteration == k for _, iteration in received)
                        participants = [j for j in graph.in_neighbors(rank) if steps_of[j] > k]
                        assert len(received) >= len(participants) - mode.backup_of(rank)
                    else:
                        assert all(iteration >= k - mode.staleness for _, iteration in received)


# --- Calls


def test_parameters_are_one_read_only_array_of_the_shape_of_like():
    with loopback(1)[0] as comm:
        like = np.arange(6.0).reshape(2, 3)
        hop = comm.hop(like, topology="ring", name="own")
        parameters = hop.parameters
        assert (parameters == like).all()
        assert parameters.shape == (2, 3)
        with pytest.raises(ValueError, match="read-only"):
            parameters[0] = 1
        for _ in hop.iterations(2):
            hop.step(np.ones((2, 3)))
        assert hop.parameters is parameters
        assert (parameters == like + 2).all()
        assert like[0, 0] == 0
        assert repr(hop) == "<Hop 'own' of 6 float64 on <Topology ring of 1 rank, 0 edges>, Standard()>"


def test_iterations_go_on():
    def program(comm):
        hop = comm.hop(np.zeros(1), topology="ring")
        numbers = []
        for steps in (2, 0, 3):
            for k in hop.iterations(steps):
                numbers.append(k)
                hop.step(np.ones(1))
        return numbers, hop.statistics().iterations, float(hop.parameters[0])

    assert run_ranks(3, program) == [([0, 1, 2, 3, 4], 5, 5.0)] * 3


def test_calls_in_the_wrong_order():
    with loopback(1)[0] as comm:
        hop = comm.hop(np.zeros(2), topology="ring", name="own")
        with pytest.raises(RuntimeError, match="'own': step: no iteration has begun; call step once in"):
            hop.step(np.zeros(2))
        iterations = hop.iterations(3)
        next(iterations)
        with pytest.raises(RuntimeError, match="'own': iteration 0 has not ended; call step first"):
            next(iterations)
        with pytest.raises(ValueError, match=r"own: expected shape \(2,\)"):
            hop.step(np.zeros(3))
        with pytest.raises(TypeError, match="own: "):
            hop.step(np.zeros(2, np.float32))
        hop.step(np.zeros(2))
        hop.leave()
        hop.leave()
        assert hop.closed
        with pytest.raises(pc.ClosedError, match="'own' is closed"):
            next(hop.iterations(1))


@pytest.mark.parametrize("ranks_per_node", [1, "all"])
def test_an_update_to_a_rank_that_sleeps_waits_for_nobody(ranks_per_node):
    """Section 4.1, and tokens: rank 0 makes max_ig iterations while rank 1, whose update it has, is asleep."""
    done = threading.Event()

    def program(comm):
        hop = comm.hop(np.full(4, float(comm.rank)), topology="ring", mode=pc.hop.BackupWorkers(1), max_ig=3)
        if comm.rank == 1:
            for k in hop.iterations(4):
                if k == 0:
                    assert done.wait(LIMIT)
                hop.step(np.zeros(4))
            return None
        for _ in hop.iterations(4):
            hop.step(np.zeros(4), timeout=LIMIT)
        done.set()
        return hop.iteration

    assert run_ranks(2, program, ranks_per_node=ranks_per_node)[0] == 3


@pytest.mark.parametrize("ranks_per_node", SHAPES)
def test_a_straggler_skips(ranks_per_node):
    """It is told by its tokens; the others get through sooner."""

    def program(comm):
        hop = comm.hop(np.zeros(3), topology="complete", mode=pc.hop.BackupWorkers(1), skip=pc.hop.Skip(10), max_ig=4)
        for _ in hop.iterations(40, timeout=LIMIT):
            time.sleep(0.03 if comm.rank == 1 else 0.002)
            hop.step(np.ones(3), timeout=LIMIT)
        return hop.statistics(), hop.iteration

    results = run_ranks(4, program, ranks_per_node=ranks_per_node)
    assert [iteration for _, iteration in results] == [39] * 4
    slow = results[1][0]
    assert slow.jumps > 0
    assert slow.iterations + slow.skipped == 40


@pytest.mark.parametrize("ranks_per_node", SHAPES)
def test_many_short_iterations(ranks_per_node):
    def program(comm):
        hop = comm.hop(np.full(1, float(comm.rank)), topology="ring", mode=pc.hop.Standard(), max_ig=2)
        for _ in hop.iterations(2000, timeout=LIMIT):
            hop.step(np.zeros(1), timeout=LIMIT)
        return float(hop.parameters[0])

    assert run_ranks(4, program, ranks_per_node=ranks_per_node, check=True) == [pytest.approx(1.5)] * 4
