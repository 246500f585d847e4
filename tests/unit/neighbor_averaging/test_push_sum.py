"""Push-sum, on ranks that are threads of this process: models, weights, and that no mass is lost or made."""

import threading
import time

import numpy as np
import pytest
from neighbor_oracle import SHAPES, push_sum, random_graph

import pycollectives as pc
from pycollectives import topology
from pycollectives.testing import run_ranks

LIMIT = 30.0


def uneven(size):
    """A directed ring with a shortcut from rank 0, so that out-degrees differ and weights are not 1."""
    edges = [(rank, (rank + 1) % size) for rank in range(size) if size > 1]
    return pc.topology.Topology(size, [*edges, *([(0, size - 1)] if size > 2 else [])])


def models_of(size, count=4, dtype=np.float64, seed=0):
    rng = np.random.default_rng([seed, size])
    return [rng.standard_normal(count).astype(dtype) for _ in range(size)]


def run(models, graph, *, overlap=0, steps=6, changes=None, naps=None, **options):
    """Of each rank: models and weights after each step, and at the end (model, weight) with what is in flight."""
    size = len(models)
    steps_of = [steps] * size if isinstance(steps, int) else steps

    def program(comm):
        w = models[comm.rank].copy()
        history, final = [], None
        with comm.push_sum(w, topology=graph, overlap=overlap) as ps:
            assert ps.weight == 1.0
            for step in range(steps_of[comm.rank]):
                if naps is not None:
                    time.sleep(naps[comm.rank][step])
                if changes is not None:
                    w += changes[comm.rank][step].astype(w.dtype)
                request = ps.start(w)
                w[...] = -1  # it has been copied
                request.wait(out=w, timeout=LIMIT)
                history.append((w.copy(), ps.weight))
            if steps_of[comm.rank]:
                final = ps.final(timeout=LIMIT), ps.weight
        return history, final

    return run_ranks(size, program, **options)


def check(results, models, graph, steps_of, *, overlap, changes=None, tolerance=1e-12):
    history, finals = push_sum(models, graph, steps_of, overlap=overlap, changes=changes)
    mass = np.zeros(len(models[0]) + 1)
    for rank, (steps, final) in enumerate(results):
        for step, (model, weight) in enumerate(steps):
            *sums, expected = history[rank][step]
            assert weight == pytest.approx(expected, abs=1e-12), f"weight of rank {rank} after step {step}"
            np.testing.assert_allclose(
                model.astype(np.float64),
                np.array(sums) / expected,
                atol=tolerance,
                err_msg=f"rank {rank} after step {step}",
            )
        model, weight = (models[rank], 1.0) if final is None else final
        np.testing.assert_allclose(model.astype(np.float64) * weight, finals[rank][:-1], atol=tolerance)
        mass += np.append(model.astype(np.float64) * weight, weight)
    whole = sum(np.append(model.astype(np.float64), 1.0) for model in models)
    if changes is not None:
        for rank, steps in enumerate(steps_of):
            whole = whole + np.append(sum(changes[rank][:steps], np.zeros(len(models[0]))), 0.0)
    np.testing.assert_allclose(mass, whole, atol=tolerance * 10)


# --- The formula


@pytest.mark.parametrize("ranks_per_node", SHAPES)
@pytest.mark.parametrize("overlap", [0, 1])
@pytest.mark.parametrize("family", [uneven, topology.exponential, topology.one_peer_exponential, topology.star])
def test_models_weights_and_sums(family, overlap, ranks_per_node):
    for size in range(1, 9):
        models, graph = models_of(size), family(size)
        results = run(models, graph, overlap=overlap, ranks_per_node=ranks_per_node)
        check(results, models, graph, [6] * size, overlap=overlap)
        if overlap == 0:
            for step in range(6):
                assert sum(steps[step][1] for steps, _ in results) == pytest.approx(size, abs=1e-12)


@pytest.mark.parametrize("overlap", [0, 1])
@pytest.mark.parametrize("size", [2, 3, 5, 8])
def test_models_converge_to_the_mean_on_a_directed_graph(size, overlap):
    models = models_of(size)
    results = run(models, uneven(size), overlap=overlap, steps=150, ranks_per_node=2)
    for steps, final in results:
        np.testing.assert_allclose(steps[-1][0], sum(models) / size, atol=1e-3 if overlap else 1e-6)
        np.testing.assert_allclose(final[0], sum(models) / size, atol=1e-3 if overlap else 1e-6)
    if size > 2:
        assert max(abs(steps[-1][1] - 1) for steps, _ in results) > 0.1  # without weights it would be another mean


@pytest.mark.parametrize("overlap", [0, 1])
def test_what_the_caller_changes_is_added_to_the_sum_as_it_is(overlap):
    """SGP, Algorithm 1, line 4: not multiplied by the weight."""
    rng = np.random.default_rng(3)
    models, changes = models_of(5), rng.standard_normal((5, 8, 4))
    results = run(models, uneven(5), overlap=overlap, steps=8, changes=changes, ranks_per_node=2)
    check(results, models, uneven(5), [8] * 5, overlap=overlap, changes=changes)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 5e-3), ("bfloat16", 4e-2), ("float32", 1e-5)])
@pytest.mark.parametrize("count", [0, 1, 2049, 70_001])
def test_every_float_type_and_length(dtype, tolerance, count):
    """Sums of 16-bit models are kept and sent in float32."""
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    models = models_of(3, count, dtype)
    for overlap in (0, 1):
        results = [
            run(models, uneven(3), overlap=overlap, steps=3, ranks_per_node=ranks_per_node) for ranks_per_node in SHAPES
        ]
        check(results[0], models, uneven(3), [3] * 3, overlap=overlap, tolerance=tolerance)
        for other in results[1:]:
            check_same_bits(other, results[0])


def check_same_bits(results, expected):
    for (steps, final), (expected_steps, expected_final) in zip(results, expected, strict=True):
        for (model, weight), (other, other_weight) in zip(
            [*steps, final], [*expected_steps, expected_final], strict=True
        ):
            np.testing.assert_array_equal(model, other)
            assert weight == other_weight


def test_sums_of_16_bit_models_do_not_lose_what_rounding_drops():
    """The sum of all ranks is exact in float32, though the models of the ranks are rounded."""
    models = models_of(4, 100, np.float16)
    results = run(models, uneven(4), steps=400, ranks_per_node=2)
    for steps, _ in results:
        np.testing.assert_allclose(steps[-1][0], sum(model.astype(np.float64) for model in models) / 4, atol=1e-3)


@pytest.mark.parametrize("overlap", [0, 1])
@pytest.mark.parametrize("case", range(12))
def test_random_graphs_with_ranks_that_are_late_and_ranks_that_leave(case, overlap):
    """No mass is lost or made, and the bits are the same whatever the timing and the shape."""
    rng = np.random.default_rng([case, overlap])
    size = int(rng.integers(2, 9))
    graph = random_graph(rng, size)
    steps_of = [int(steps) for steps in rng.integers(0, 9, size)]
    models, changes = models_of(size, 3000, seed=case), rng.standard_normal((size, 9, 3000))
    print("case", case, "size", size, "steps", steps_of)
    runs = []
    for ranks_per_node in SHAPES:
        naps = rng.choice([0.0, 0.0, 0.003], (size, 9))
        options = {"ranks_per_node": ranks_per_node, "delay": float(rng.choice([0.0, 0.002])), "seed": case}
        runs.append(run(models, graph, overlap=overlap, steps=steps_of, changes=changes, naps=naps, **options))
        check(runs[-1], models, graph, steps_of, overlap=overlap, changes=changes, tolerance=1e-11)
    for other in runs[1:]:
        for (steps, final), (expected, expected_final) in zip(other, runs[0], strict=True):
            if final is not None:
                check_same_bits([(steps, final)], [(expected, expected_final)])


# --- Calls


@pytest.mark.parametrize("ranks_per_node", SHAPES)
def test_with_overlap_a_step_waits_for_the_step_before_alone(ranks_per_node):
    """All ranks but rank 0 begin their second step when rank 0 has both."""
    rank_0_has_both = threading.Event()

    def program(comm):
        w = np.full(1, float(comm.rank))
        ps = comm.push_sum(w, topology=topology.complete(3), overlap=1)
        for step in range(2):
            if step == 1 and comm.rank > 0:
                assert rank_0_has_both.wait(LIMIT)
            request = ps.start(w)
            request.wait(out=w, timeout=LIMIT)
        if comm.rank == 0:
            rank_0_has_both.set()
        return ps.final(timeout=LIMIT).tolist()

    results = run_ranks(3, program, ranks_per_node=ranks_per_node)
    _, expected = push_sum([np.full(1, float(rank)) for rank in range(3)], topology.complete(3), [2] * 3, overlap=1)
    assert results == [pytest.approx([sums / weight]) for sums, weight in expected]


def test_final_changes_nothing():
    def program(comm):
        w = np.full(1, float(comm.rank))
        ps = comm.push_sum(w, topology=uneven(3), overlap=1)
        weights = []
        for _ in range(20):
            request = ps.start(w)
            request.wait(out=w, timeout=LIMIT)
            before = ps.weight
            first, second = ps.final(timeout=LIMIT), ps.final(timeout=LIMIT)
            assert first.tobytes() == second.tobytes()
            weights.append((before, ps.weight, w.copy()))
        return weights

    with_final = run_ranks(3, program)
    plain = run([np.full(1, float(rank)) for rank in range(3)], uneven(3), overlap=1, steps=20)
    for (steps, _), seen in zip(plain, with_final, strict=True):
        for (model, weight), (before, final_weight, w) in zip(steps, seen, strict=True):
            assert (model, weight) == (w, before)
            assert final_weight > before  # what is on its way


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"overlap": 2}, ValueError, "overlap: expected"),
        ({"overlap": 0.5}, TypeError, "overlap: expected"),
        ({"weights": "metropolis", "topology": topology.exponential(1)}, None, ""),
    ],
)
def test_refused_arguments(arguments, error, text):
    with pc.testing.loopback(1)[0] as comm:
        arguments = {"like": np.zeros(2), "topology": topology.ring(1), **arguments}
        if error is None:
            comm.push_sum(**arguments)
            return
        with pytest.raises(error, match=text):
            comm.push_sum(**arguments)


def test_columns_that_do_not_sum_to_one_are_refused():
    def program(comm):
        with pytest.raises(ValueError, match="expected uniform weights whose columns sum to 1"):
            comm.push_sum(np.zeros(1), topology=topology.star(4), weights="uniform")

    run_ranks(4, program)


def test_a_rank_that_would_be_given_nothing_is_refused():
    """It would give half of its weight away in each step, until nothing is left."""

    def program(comm):
        with pytest.raises(ValueError, match="expected a connected graph, found no path from rank 0 to rank 2"):
            comm.push_sum(np.zeros(1), topology=pc.topology.Topology(3, [(2, 0), (0, 1)]))

    run_ranks(3, program)


def test_ranks_that_ask_for_another_overlap_are_told():
    def program(comm):
        with pytest.raises(pc.MismatchError, match="overlap"):
            comm.push_sum(np.zeros(1), topology=topology.ring(3), overlap=int(comm.rank == 1))

    run_ranks(3, program)
