"""Neighbor averaging, on ranks that are threads of this process: what each rank has after each step."""

import threading
import time

import numpy as np
import pytest
from neighbor_oracle import SHAPES, d_psgd, random_graph

import pycollectives as pc
from pycollectives import topology
from pycollectives.neighbor_averaging.neighborhood import StepInfo
from pycollectives.testing import run_ranks

LIMIT = 30.0
FAMILIES = [
    topology.ring,
    topology.ring_based,
    topology.exponential,
    topology.bipartite_exponential,
    topology.torus,
    topology.star,
    topology.complete,
    topology.one_peer_exponential,
]


def models_of(size, count=5, dtype=np.float64, seed=0):
    rng = np.random.default_rng([seed, size])
    return [rng.standard_normal(count).astype(dtype) for _ in range(size)]


def run(models, graph, *, weights="uniform", steps=5, naps=None, **options):
    """The model of each rank after each of its steps; rank r closes after `steps[r]`."""
    size = len(models)
    steps_of = [steps] * size if isinstance(steps, int) else steps

    def program(comm):
        w = models[comm.rank].copy()
        history = []
        with comm.neighbor_averaging(w, topology=graph, weights=weights) as na:
            for step in range(steps_of[comm.rank]):
                if naps is not None:
                    time.sleep(naps[comm.rank][step])
                request = na.start(w)
                w[...] = -1  # it has been copied
                request.wait(out=w, timeout=LIMIT)
                history.append(w.copy())
        return history

    return run_ranks(size, program, **options)


def check_same(results, expected):
    for rank, (result, wanted) in enumerate(zip(results, expected, strict=True)):
        assert len(result) == len(wanted)
        for step, (got, want) in enumerate(zip(result, wanted, strict=True)):
            np.testing.assert_array_equal(got, want, err_msg=f"rank {rank} after step {step}")


# --- The formula


@pytest.mark.parametrize("ranks_per_node", SHAPES)
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_a_step_is_a_product_with_the_matrix_of_weights(family, ranks_per_node):
    for size in range(1, 9):
        models, graph = models_of(size), family(size)
        results = run(models, graph, ranks_per_node=ranks_per_node)
        check_same(results, d_psgd(models, graph, "uniform", [5] * size))
        now = np.array(models)
        for step in range(5):
            now = graph.at(step).matrix("uniform") @ now
            np.testing.assert_allclose([result[step] for result in results], now, atol=1e-12)


@pytest.mark.parametrize("ranks_per_node", SHAPES)
@pytest.mark.parametrize("size", [2, 5, 8])
def test_metropolis_weights_keep_the_sum(size, ranks_per_node):
    models = models_of(size)
    results = run(models, topology.star(size), weights="metropolis", steps=60, ranks_per_node=ranks_per_node)
    sums = [sum(result[step] for result in results) for step in range(60)]
    np.testing.assert_allclose(sums, [sum(models)] * 60, atol=1e-12)
    np.testing.assert_allclose([result[-1] for result in results], [sum(models) / size] * size, atol=0.01)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("count", [0, 1, 2049, 70_001])
def test_every_float_type_and_length(dtype, count):
    """Long models go part by part; 16-bit ones are added up in float32 and rounded once."""
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    models, graph = models_of(5, count, dtype), topology.exponential(5)
    expected = d_psgd(models, graph, "uniform", [3] * 5)
    for ranks_per_node in SHAPES:
        check_same(run(models, graph, steps=3, ranks_per_node=ranks_per_node), expected)


def test_a_graph_with_weights_of_its_own_uses_them():
    """By default, in both collectives; W x for x = (0, 1)."""
    graph = topology.from_matrix([[0.75, 0.25], [0.25, 0.75]])

    def program(comm):
        w, x = np.array([float(comm.rank)]), np.array([float(comm.rank)])
        with comm.neighbor_averaging(w, topology=graph) as average:
            average.average(w)
        with comm.push_sum(x, topology=graph) as push_sum:
            request = push_sum.start(x)
            request.wait(out=x)
        return float(w[0]), float(x[0]), average.weights, push_sum.weights

    assert run_ranks(2, program) == [(0.25, 0.25, "given", "given"), (0.75, 0.75, "given", "given")]


def test_weights_of_a_matrix():
    matrix = [[0.75, 0.25, 0.0], [0.0, 0.5, 0.5], [0.125, 0.25, 0.625]]
    models, graph = models_of(3), topology.from_matrix(matrix)
    check_same(run(models, graph, weights="given"), d_psgd(models, graph, "given", [5] * 3))


@pytest.mark.parametrize("case", range(12))
def test_random_graphs_with_ranks_that_are_late_and_ranks_that_leave(case):
    """The same bits whatever the timing and the shape."""
    rng = np.random.default_rng([case, 7])
    size = int(rng.integers(2, 9))
    graph = random_graph(rng, size)
    steps_of = [int(steps) for steps in rng.integers(0, 9, size)]
    models = models_of(size, 3000, np.float32, seed=case)
    print("case", case, "size", size, "steps", steps_of)
    expected = d_psgd(models, graph, "uniform", steps_of)
    for ranks_per_node in SHAPES:
        naps = rng.choice([0.0, 0.0, 0.003], (size, 9))
        options = {"ranks_per_node": ranks_per_node, "delay": float(rng.choice([0.0, 0.002])), "seed": case}
        check_same(run(models, graph, steps=steps_of, naps=naps, **options), expected)


@pytest.mark.parametrize("ranks_per_node", SHAPES)
def test_ranks_that_leave_do_not_change_the_mean_of_the_others(ranks_per_node):
    """Under symmetric weights. Rank 0 leaves first, then ranks 1 and 2 together; rank 4 ends alone."""
    models, steps_of = models_of(5), [1, 3, 3, 6, 8]
    results = run(models, topology.complete(5), weights="metropolis", steps=steps_of, ranks_per_node=ranks_per_node)
    for step in range(1, 8):
        active = [rank for rank in range(5) if steps_of[rank] > step]
        np.testing.assert_allclose(
            sum(results[rank][step] for rank in active), sum(results[rank][step - 1] for rank in active), atol=1e-12
        )
    np.testing.assert_array_equal(results[4][7], results[4][6])  # alone: exactly what it was


# --- Calls


def test_start_does_not_wait_and_wait_waits_for_neighbors_alone():
    """Rank 3 of a ring of five is asleep: rank 1, which is not its neighbor, makes its first step without it."""
    first_is_done = threading.Event()

    def program(comm):
        w = np.array([float(comm.rank)])
        na = comm.neighbor_averaging(w, topology=topology.ring(5))
        if comm.rank == 3:
            assert first_is_done.wait(LIMIT)
        request = na.start(w)
        request.wait(out=w, timeout=LIMIT)
        if comm.rank == 1:
            first_is_done.set()
        return float(w[0])

    results = run_ranks(5, program, ranks_per_node=2)
    assert results == pytest.approx([5 / 3, 1.0, 2.0, 3.0, 7 / 3])


@pytest.mark.parametrize("ranks_per_node", SHAPES)
def test_a_step_is_done_while_the_application_computes(ranks_per_node):
    """After a while `wait` has nothing left to wait for: it may even be asked for within no time."""

    def program(comm):
        w = np.full(20_000, float(comm.rank))
        na = comm.neighbor_averaging(w, topology=topology.complete(3))
        request = na.start(w)
        time.sleep(3.0)
        request.wait(out=w, timeout=0.0)
        return w[[0, -1]].tolist()

    assert run_ranks(3, program, ranks_per_node=ranks_per_node) == [pytest.approx([1.0, 1.0])] * 3


def test_average_in_place_and_final():
    def program(comm):
        w = np.array([[float(comm.rank), 1.0]])
        na = comm.neighbor_averaging(w, topology=topology.ring(2))
        assert na.average(w) == StepInfo(step=0, weight=1.0)
        returned = na.final()
        assert returned.shape == w.shape
        na.start(np.zeros(2))  # any shape of as many elements
        return w.tolist(), returned.tolist(), na.final(timeout=LIMIT).tolist(), na.steps

    assert run_ranks(2, program) == [([[0.5, 1.0]], [[0.5, 1.0]], [[0.0, 0.0]], 2)] * 2


def test_calls_in_the_wrong_order():
    with pc.testing.loopback(1)[0] as comm:
        na = comm.neighbor_averaging(np.zeros(2), topology=topology.ring(1), name="graph")
        with pytest.raises(RuntimeError, match=r"'graph': .*no step was started; call start first"):
            na.final()
        with pytest.raises(RuntimeError, match="'graph': no step has a result yet"):
            _ = na.result
        request = na.start(np.zeros(2))
        with pytest.raises(
            RuntimeError, match="'graph': start: step 0 has not been waited for: wait on `request` first"
        ):
            na.start(np.zeros(2))
        assert request.wait() == request.wait() == StepInfo(step=0, weight=1.0)
        with pytest.raises(RuntimeError, match="step 0 is done already: read `result`"):
            request.wait(out=np.zeros(2))
        open_step = na.start(np.zeros(2))
        na.leave()
        na.leave()
        assert na.closed
        for call in (open_step.wait, lambda: na.start(np.zeros(2)), lambda: na.average(np.zeros(2))):
            with pytest.raises(pc.ClosedError, match="'graph' is closed"):
                call()


@pytest.mark.parametrize(
    ("w", "error", "text"),
    [
        (np.zeros(3), ValueError, r"expected shape \(2,\) \(2 elements\), got \(3,\)"),
        (np.zeros(2, np.float32), TypeError, "expected elements of float64, got float32"),
        (np.zeros(4)[::2], BufferError, "expected a C-contiguous buffer"),
        ([0.0, 0.0], TypeError, "expected a buffer"),
    ],
)
def test_refused_models(w, error, text):
    with pc.testing.loopback(1)[0] as comm:
        na = comm.neighbor_averaging(np.zeros(2), topology=topology.ring(1), name="graph")
        for call in (na.start, na.average):
            with pytest.raises(error, match="graph: " + text):
                call(w)
        request = na.start(np.zeros(2))
        for call in (request.wait, na.final):
            with pytest.raises(error, match="graph: " + text):
                call(out=w)
        request.wait()


def test_read_only_results_are_refused():
    with pc.testing.loopback(1)[0] as comm:
        na = comm.neighbor_averaging(np.zeros(2), topology=topology.ring(1))
        fixed = np.zeros(2)
        fixed.flags.writeable = False
        request = na.start(fixed)
        with pytest.raises(BufferError, match="expected a writable buffer"):
            request.wait(out=fixed)


# --- Creation


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"topology": topology.ring(3)}, ValueError, "topology: .* as many ranks as the communicator, 1, got"),
        ({"topology": "circle"}, ValueError, "topology: expected"),
        ({"topology": 3}, TypeError, "topology: expected a graph such as"),
        ({"weights": "best"}, ValueError, "weights: expected 'uniform' or 'metropolis'"),
        ({"like": np.zeros(2, np.int64)}, TypeError, "like: expected elements of float16, .*, got int64"),
    ],
)
def test_refused_arguments(arguments, error, text):
    with pc.testing.loopback(1)[0] as comm, pytest.raises(error, match=text):
        comm.neighbor_averaging(**{"like": np.zeros(2), "topology": topology.ring(1), **arguments})


def test_metropolis_weights_need_a_symmetric_graph():
    def program(comm):
        with pytest.raises(ValueError, match="expected a symmetric graph"):
            comm.neighbor_averaging(np.zeros(1), topology=topology.exponential(5))

    run_ranks(5, program)


@pytest.mark.parametrize(
    "other",
    [
        {"topology": topology.complete(4)},
        {"topology": topology.one_peer_exponential(4)},
        {"weights": "uniform"},
        {"like": np.zeros(5)},
        {"like": np.zeros(4, np.float32)},
        {"name": "another"},
    ],
    ids=["edges", "period", "weights", "count", "dtype", "name"],
)
def test_arguments_that_differ_are_an_error_on_all_ranks(other):
    def program(comm):
        arguments = {"like": np.zeros(4), "topology": topology.ring(4), "weights": "metropolis"}
        if comm.rank == 2:
            arguments |= {**other, "weights": other.get("weights", "uniform")} if "topology" in other else other
        with pytest.raises(pc.MismatchError, match="rank"):
            comm.neighbor_averaging(**arguments)

    run_ranks(4, program)


def test_graphs_that_differ_are_named():
    graphs = [topology.ring(2), topology.one_peer_exponential(2)]

    def program(comm):
        text = r"topology: ring of 2 ranks, 1 edge, digest \w+ on rank 0, one-peer-exponential of 2 ranks, period 1"
        with pytest.raises(pc.MismatchError, match=text):
            comm.push_sum(np.zeros(1), topology=graphs[comm.rank])

    run_ranks(2, program)


def test_several_at_once_do_not_mix():
    """Each with a graph of its own, and started in another order on each rank."""

    def program(comm):
        graphs = [topology.ring(4), topology.complete(4), topology.one_peer_exponential(4)]
        averages = [comm.neighbor_averaging(np.zeros(1), topology=graph, weights="uniform") for graph in graphs]
        order = [(i + comm.rank) % 3 for i in range(3)]
        steps, results = {}, {}
        for i in order:
            steps[i] = averages[i].start(np.array([float(comm.rank * 10**i)]))
        for i in reversed(order):
            steps[i].wait(timeout=LIMIT)
            results[i] = float(averages[i].result[0])
        return [results[i] for i in range(3)]

    results = run_ranks(4, program, ranks_per_node=2)
    ranks = np.arange(4.0)
    graphs = [topology.ring(4), topology.complete(4), topology.one_peer_exponential(4)]
    expected = [graph.at(0).matrix("uniform") @ ranks * 10**i for i, graph in enumerate(graphs)]
    np.testing.assert_allclose(results, np.transpose(expected))
