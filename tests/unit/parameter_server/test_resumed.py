"""What a shard includes after the engines have stopped, and the server that continues from there with fewer workers."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

import pycollectives as pc
from pycollectives.servers import EAMSGD, SGD, Adam
from pycollectives.servers.arguments import ParameterServerArguments
from pycollectives.support.native import core
from pycollectives.testing import run_ranks

LIMIT = 30.0
ALL = (0, 1, 2)
PLAIN = SGD(1.0)


def gradient(rank, ranks, elements):
    """Ones in the elements of a rank, the others 0: the weights then count its pushes."""
    return np.where(np.arange(ranks * elements) % ranks == rank, 1.0, 0.0)


def stopped(pushes, *, sync, servers, update=PLAIN, elements=1 << 14, ranks_per_node="all", pulls=True):
    """Let ranks make `pushes`, and stop their engines. Return the state and weights of each shard, and the clock."""
    ranks, together = len(pushes), threading.Barrier(len(pushes))

    def program(comm):
        mine = gradient(comm.rank, ranks, elements)
        ps = comm.parameter_server(np.zeros_like(mine), sync=sync, servers=servers, update=update, workers=range(ranks))
        for number in range(pushes[comm.rank]):
            if pulls and number % 2 == 0 and number < min(pushes):
                ps.push_pull(mine, np.zeros_like(mine))
                continue
            ps.push(mine)
            if pulls and number < min(pushes):  # others push as often
                ps.pull(np.zeros_like(mine))
        together.wait(LIMIT)
        ps.flush()
        together.wait(LIMIT)
        comm._engine.stop([])
        together.wait(LIMIT)
        made = ps._collective
        assert made.settle([], timeout=LIMIT)
        together.wait(LIMIT)
        shards = made.included()
        arrays = [shard and np.frombuffer(made.arrays_of(s)) for s, shard in enumerate(shards)]
        comm.abort()
        return shards, arrays, made.bounds, made.clock

    return run_ranks(ranks, program, ranks_per_node=ranks_per_node)


@pytest.mark.parametrize("sync", ["asp", "ssp:9", "dssp:9:12", "elastic:3", "rescaled"])
@pytest.mark.parametrize("servers", ["node", 1, 3])
def test_the_weights_have_the_pushes_that_are_included(sync, servers):
    results = stopped((4, 2, 3), sync=sync, servers=servers)
    for shards, arrays, bounds, _ in results:
        for place, (shard, weights) in enumerate(zip(shards, arrays, strict=True)):
            of_element = np.arange(bounds[place], bounds[place + 1]) % 3
            for rank in ALL:
                assert shard["used"][rank] == results[rank][3] == (4, 2, 3)[rank]
                if sync != "rescaled":
                    assert (weights[of_element == rank] == -shard["used"][rank]).all()
            assert shard["version"] == 9


@pytest.mark.parametrize("servers", ["node", 1, 2])
def test_a_gradient_that_waits_for_others_is_not_included(servers):
    """Under BSP; rank 0 has pushed once more."""
    for shards, arrays, _, _ in stopped((3, 2, 2), sync="bsp", servers=servers):
        for shard, weights in zip(shards, arrays, strict=True):
            assert shard["used"] == [2, 2, 2]
            assert shard["version"] == 2
            assert np.abs(weights + 2 / 3).max() < 1e-9


@pytest.mark.parametrize("servers", ["node", 1])
@pytest.mark.parametrize(("sync", "used"), [("rennala:3", 6), ("ringleader", 7), ("mindflayer:3:9", 6)])
def test_gathered_gradients_are_not_included_until_they_are_used(sync, used, servers):
    [(shards, _, _, clock)] = stopped((7,), sync=sync, servers=servers)
    assert clock == 7
    assert [shard["used"] for shard in shards] == [[used]] * len(shards)


@pytest.mark.parametrize("servers", ["node", 1])
def test_a_discarded_gradient_counts_as_included(servers):
    """Under BSP the second and third are on old weights. They must not be repeated."""
    [(shards, _, _, clock)] = stopped((3,), sync="bsp", servers=servers, pulls=False)
    assert clock == 3
    assert [(shard["used"], shard["version"]) for shard in shards] == [([3], 1)] * len(shards)


def test_shards_of_other_nodes_cannot_be_read():
    for rank, (shards, *_) in enumerate(stopped((1, 1, 1), sync="asp", servers=2, ranks_per_node=1)):
        assert [shard is None for shard in shards] == [rank != 0, rank != 1]


# ------------------------------------------------------------------------------------------------ continuing


def continued(program, *, resumed, arrays, sync="asp", servers="node", update=PLAIN, ranks=2, count=6):
    """Run `program(server, comm)` with servers that continue."""

    def run(comm):
        arguments = comm._context.checked(
            "parameter_server",
            lambda: ParameterServerArguments(
                np.zeros(count), sync=sync, servers=servers, update=update, workers=range(ranks)
            ),
        )
        made = core.ParameterServer(
            comm._context.engine,
            weights=np.ascontiguousarray(arrays).view(np.uint8),
            nodes=comm._context.nodes,
            timeout=LIMIT,
            resumed=resumed,
            **arguments.for_engine(),
        )
        try:
            return program(made, comm)
        finally:
            made.leave()

    return run_ranks(ranks, run)


def pulled(server, count=6):
    out = np.zeros(count)
    server.pull(out, timeout=LIMIT)
    return out


@pytest.mark.parametrize("servers", ["node", 1, 2])
def test_numbers_and_weights_continue(servers):
    resumed = {"version": 7, "given": 6, "clocks": [5, 2], "parts": [(0, 6, [5, 2])]}

    def program(server, comm):
        assert (server.clock, server.version) == ([5, 2][comm.rank], 6)
        assert server.outcome[:2] == ([5, 2][comm.rank], 7)
        assert pulled(server).tolist() == [10.0] * 6
        assert server.version == 7
        comm.mean(0.0)
        server.push(np.full(6, 1.0 + comm.rank), timeout=LIMIT)
        server.wait(server.clock, timeout=LIMIT)
        comm.mean(0.0)
        assert server.clock == [6, 3][comm.rank]
        weights = pulled(server)
        assert server.version == 9
        return weights.tolist()

    for weights in continued(program, resumed=resumed, arrays=np.full(6, 10.0), servers=servers):
        assert weights == [7.0] * 6


@pytest.mark.parametrize("ahead", [5, 105])
@pytest.mark.parametrize("sync", ["ssp:1", "elastic:2", "dssp:1:2", "bsp", "mindflayer:1:9"])
def test_policies_continue_from_the_clocks(sync, ahead):
    """Under ssp:1 worker 0 waits until worker 1 has made two pushes: before, it can only have been absent longer."""
    resumed = {"version": 3, "given": 3, "clocks": [ahead, 2], "parts": [(0, 6, [ahead, 2])]}
    together = sync in ("bsp", "mindflayer:1:9")

    def program(server, comm):
        first = server.push(np.ones(6), timeout=LIMIT) if comm.rank == 0 else None
        comm.mean(0.0)
        was_free = first is not None and server.test(first)
        comm.mean(0.0)
        for _ in range(0 if comm.rank == 0 else 4):
            server.push(np.ones(6), timeout=LIMIT) if not together else None
        if together and comm.rank == 1:
            server.push(np.ones(6), timeout=LIMIT)
        if first is not None:
            server.wait(first, timeout=LIMIT)
            counted = server.server_statistics(timeout=LIMIT)["workers"]
            assert all(presence == 0 for *_, presence in counted)  # not left out as missing
        comm.mean(0.0)  # worker 1 has not left
        return was_free

    was_free, _ = continued(program, resumed=resumed, arrays=np.zeros(6), sync=sync)
    assert was_free == (sync == "elastic:2")


def test_the_state_of_the_update_rule_continues():
    resumed = {"version": 2, "given": 2, "clocks": [2], "parts": [(0, 6, [2])]}
    arrays = np.stack([np.zeros(6), np.full(6, 4.0)])  # weights and momentum

    def program(server, _):
        server.push(np.ones(6), timeout=LIMIT)
        return pulled(server)

    (weights,) = continued(program, resumed=resumed, arrays=arrays, update=SGD(1.0, momentum=0.5), ranks=1)
    assert weights.tolist() == [-3.0] * 6  # 0.5 * 4 + 1


def test_adam_continues_its_count_of_updates():
    def program(server, comm):
        for _ in range(3):
            server.push(np.arange(6.0), timeout=LIMIT)
        shards, arrays = server.included(), server.arrays_of(0)
        weights = pulled(server)
        return weights, arrays, shards

    begun = {"version": 0, "given": 0, "clocks": [0], "parts": [(0, 6, [0])]}
    ((_, arrays, (shard,)),) = continued(program, resumed=begun, arrays=np.zeros(18), update=Adam(0.1), ranks=1)
    resumed = {"version": shard["version"], "given": 3, "clocks": shard["used"], "parts": [(0, 6, shard["used"])]}
    ((weights, *_),) = continued(program, resumed=resumed, arrays=np.frombuffer(arrays), update=Adam(0.1), ranks=1)

    def whole(server, comm):
        program(server, comm)
        return program(server, comm)[0]

    (expected,) = continued(whole, resumed=begun, arrays=np.zeros(18), update=Adam(0.1), ranks=1)
    assert (weights == expected).all()


@pytest.mark.parametrize("at", [3, 2, 4])
@pytest.mark.parametrize("sync", ["asp", "bsp", "rennala:2"])
def test_a_part_passes_over_pushes_that_it_includes(sync, at):
    """It had worked on the next push of worker 0 and 1, the other part had not. Each of two servers has three."""
    resumed = {"version": 4, "given": 4, "clocks": [3, 3], "parts": [(0, at, [4, 4]), (at, 6, [3, 3])]}

    def program(server, comm):
        results = []
        for _ in range(2):
            comm.mean(0.0)
            server.push_pull(np.ones(6), np.zeros(6), timeout=LIMIT)
            comm.mean(0.0)
            results.append(pulled(server).tolist())
        assert server.clock == 5
        return results, server.version

    each = 2.0 if sync == "asp" else 1.0
    for (first, second), version in continued(program, resumed=resumed, arrays=np.zeros(6), sync=sync, servers=2):
        assert first == [0.0] * at + [-each] * (6 - at)
        assert second == [-each] * at + [-2 * each] * (6 - at)
        assert version == (8 if sync == "asp" else 6)


def test_a_push_that_one_part_includes_is_not_discarded_for_the_other():
    """Under Ringmaster, although the repeated push of the other worker is an update before it."""
    resumed = {"version": 4, "given": 4, "clocks": [3, 3], "parts": [(0, 3, [4, 4]), (3, 6, [3, 3])]}

    def program(server, comm):
        server.push(np.ones(6), timeout=LIMIT)
        server.wait(4, timeout=LIMIT)
        comm.mean(0.0)
        return pulled(server).tolist()

    for weights in continued(program, resumed=resumed, arrays=np.zeros(6), sync="ringmaster:1", servers=2):
        assert weights == [0.0] * 3 + [-2.0] * 3


@pytest.mark.parametrize("at", [3, 2, 4])
def test_elastic_averages_pass_over_a_push_too(at):
    resumed = {"version": 1, "given": 1, "clocks": [0], "parts": [(0, at, [1]), (at, 6, [0])]}

    def program(server, _):
        server.push(np.full(6, 4.0), timeout=LIMIT)
        server.wait(1, timeout=LIMIT)
        end = time.monotonic() + LIMIT
        while any(shard["used"] != [1] or shard["version"] != 2 for shard in server.included()):
            assert time.monotonic() < end
        assert server.settle([], timeout=LIMIT)
        return np.concatenate([np.frombuffer(server.arrays_of(s)) for s in range(2)]).tolist()

    sync = EAMSGD(1, alpha=0.25)
    (center, _) = continued_with_reader(program, resumed, sync)
    assert center == [0.0] * at + [1.0] * (6 - at)


def continued_with_reader(program, resumed, sync):
    """The same with two servers. Only the first pushes."""

    def run(comm):
        arguments = comm._context.checked(
            "parameter_server",
            lambda: ParameterServerArguments(np.zeros(6), sync=sync, servers=2, workers=[0]),
        )
        made = core.ParameterServer(
            comm._context.engine,
            weights=np.zeros(6).view(np.uint8),
            nodes=comm._context.nodes,
            timeout=LIMIT,
            resumed=resumed,
            **arguments.for_engine(),
        )
        result = program(made, comm) if comm.rank == 0 else None
        comm.mean(0.0)
        made.leave()
        return result

    return run_ranks(2, run)


def test_a_policy_of_each_worker_keeps_those_of_the_living():
    def program(comm):
        sync = pc.servers.MindFlayer(trials=[1, 2, 3], seconds=[0.1, 0.2, 0.3])
        arguments = comm._context.checked(
            "parameter_server",
            lambda: ParameterServerArguments(np.zeros(6), sync=sync, servers="node", update=SGD(1.0)),
        )
        return arguments.for_engine((0, 2))["sync"]

    sync = run_ranks(3, program)[0]
    assert (sync["trials"], sync["allotted"]) == ([1, 3], [0.1, 0.3])
