"""What methods do on one rank, and what they say of themselves."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

import pycollectives as pc
from pycollectives import policies
from pycollectives.groups import StaticGroups
from pycollectives.simulation import allreduce, parameter_server
from pycollectives.testing import loopback, run_ranks
from pycollectives.train.registry import Choice
from pycollectives.train.synchronizers import METHODS, Outcome


def make(method, comm):
    """A method that averages two numbers."""
    model = SimpleNamespace(weights=np.zeros(2, np.float32), gradient=np.ones(2, np.float32))
    return METHODS.make(Choice.parse(method), comm, model, seed=7)


def options_of(method):
    """The options of the collective that a method creates, among 4 ranks on nodes of 2."""
    seen = []

    def create(_like, **options):
        seen.append(options)
        return SimpleNamespace()

    comm = SimpleNamespace(comm=None, size=4, ranks_per_node=2, on_failure="raise")
    comm.partial_allreduce = comm.partial_reduce = create
    make(method, comm)
    (options,) = seen
    return options


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("synchronous", {"policy": policies.Full()}),
        ("ddp", {"policy": policies.Full()}),
        ("eager", {"policy": policies.Quorum()}),
        ("eager,policy=majority", {"policy": policies.Majority(7)}),
        ("eager,policy=solo,late=drop,missed=sum", {"policy": policies.Solo(), "late": "drop"}),
        ("eager,policy=any-of:2,seed=3,max_staleness=4", {"policy": policies.AnyOf(2, 3), "max_staleness": 4}),
        ("m-synchronous,m=3", {"policy": policies.Quorum(3), "late": "drop"}),
        ("ripples", None),
        ("d-psgd", None),
    ],
)
def test_the_simulator_has_the_rounds_of_methods_that_have_rounds(said, expected):
    found = simulated(said)
    assert found == (expected and ("allreduce", expected))
    if found is not None:
        allreduce.simulate(np.ones((4, 2)), nbytes=4, algorithm="recursive_doubling", **found.arguments)


def simulated(said):
    choice = Choice.parse(said)
    return METHODS.find(choice).simulated(**{"seed": 7, **choice.options})


@pytest.mark.parametrize(
    ("said", "sync"),
    [
        ("parameter-server", pc.servers.BSP(patience=math.inf)),
        ("parameter-server,sync=elastic:15,servers=2", pc.servers.ElasticBSP(15, patience=math.inf)),
        ("parameter-server,sync=ringmaster:8", pc.servers.Ringmaster(8)),
        (
            "parameter-server,sync=mindflayer:1:0.5",
            pc.servers.MindFlayer(1, 0.5, patience=math.inf),
        ),  # computes all the same
        ("eamsgd", pc.servers.EAMSGD(4, 0.5)),
        ("eamsgd,period=10,alpha=0.1", pc.servers.EAMSGD(10, 0.1)),
    ],
)
def test_the_simulator_has_the_rules_of_servers(said, sync):
    found = simulated(said)
    assert found.simulator == "parameter_server"
    assert found.arguments["sync"] == sync
    assert parameter_server.seconds_for_all(np.ones((4, 20)), **found.arguments) == pytest.approx(20)


def test_eager_hands_its_options_to_the_partial_allreduce():
    options = options_of("eager,policy=majority,late=replace,missed=sum,max_staleness=3")
    assert options["policy"] == policies.Majority(7)
    assert (options["late"], options["missed"], options["max_staleness"]) == ("replace", "sum", 3)


def test_a_policy_that_is_a_number_is_none():
    with pytest.raises(ValueError, match=r"policy .4.: expected solo"):
        options_of("eager,policy=4")


@pytest.mark.parametrize(("said", "per_node"), [("", 2), (",ranks_per_node=3", 3)])
def test_static_groups_are_those_of_the_nodes(said, per_node):
    """The communicator's, or others by choice."""
    assert options_of(f"ripples,groups=static{said}")["groups"] == StaticGroups(per_node)


def test_ripples_meets_every_so_many_steps():
    """What a rank was given in a step between them is its own."""

    def program(comm):
        method = make("ripples,groups=static,every=3", comm)
        outcomes = []
        for number in range(6):
            weights = np.full(2, comm.rank, np.float32)
            method.average(weights, number)
            outcomes.append((method.outcome, float(weights[0])))
        method.close()
        return outcomes

    alone = [(Outcome(active=1), 0.0)] * 2
    first, _ = run_ranks(loopback(2, ranks_per_node=1), program)
    met = [index for index, one in enumerate(first) if one == (Outcome(active=2), 0.5)]
    assert met, first
    assert set(met) <= {2, 5}
    assert [one for index, one in enumerate(first) if index % 3 < 2] == alone * 2


@pytest.mark.parametrize("computation", ["parallel", "serial"])
def test_hop_adds_what_an_update_changes_to_the_average_with_the_neighbors(computation):
    """On a ring of three all ranks are neighbors. A rank that ends early leaves the others alone."""

    class Halving:
        def update(self, weights, gradient, number):
            weights *= 0.5

    def program(comm):
        model = SimpleNamespace(weights=np.full(2, 3.0 * comm.rank, np.float32), gradient=np.ones(2, np.float32))
        method = f"hop,topology=ring,computation={computation}"
        synchronizer = METHODS.make(Choice.parse(method), comm, model, seed=7)
        values = []
        for number in range(5, 7):
            assert synchronizer.begin(model.weights, number) == number
            synchronizer.update(model, Halving(), number)
            values.append(float(model.weights[0]))
            assert synchronizer.outcome.active == 3
        synchronizer.leave()
        synchronizer.rejoin()
        if comm.rank > 0:
            assert synchronizer.begin(model.weights, 7) == 7
        synchronizer.leave()
        synchronizer.close()
        return values

    results = run_ranks(3, program)
    if computation == "serial":
        assert results == [[1.5, 0.75]] * 3
    else:
        first = [3 - 1.5 * rank for rank in range(3)]
        assert results == [[first[rank], 1.5 - first[rank] / 2] for rank in range(3)]


class Plain:
    """SGD of rate 1."""

    def update(self, weights, gradient, number):
        weights -= gradient


@pytest.mark.parametrize("servers", ["node", "1", "2"])
@pytest.mark.parametrize(("sync", "weight"), [("bsp", 1 / 4), ("asp", 1), ("ssp:1", 1), ("elastic:4", 1)])
def test_a_parameter_server_subtracts_what_an_update_changes(sync, weight, servers):
    """A mean of it, or each by itself; also of a rank that leaves early, and anew after all have settled."""

    def program(comm):
        gradient = np.full(2, 1.0 + comm.rank, np.float32)
        model = SimpleNamespace(weights=np.full(2, 64, np.float32), gradient=gradient)
        synchronizer = METHODS.make(Choice.parse(f"parameter-server,sync={sync},servers={servers}"), comm, model)
        settled = []
        for steps in (3, 5):
            for number in range(steps):
                assert synchronizer.begin(model.weights, number) == number
                before = model.weights.max()
                synchronizer.update(model, Plain(), number)
                assert model.weights.max() < before
                assert not synchronizer.outcome.late
                if sync == "bsp":
                    assert synchronizer.outcome == Outcome(active=4)
            synchronizer.leave()
            comm.preduce(np.zeros(1), range(comm.size))
            synchronizer._join().pull(model.weights)
            settled.append(model.weights.tolist())
            comm.preduce(np.zeros(1), range(comm.size))
            synchronizer.rejoin()
        return settled

    changed = weight * (1 + 2 + 3 + 4)
    assert run_ranks(4, program) == [[[64 - 3 * changed] * 2, [64 - 8 * changed] * 2]] * 4


def test_a_gradient_that_a_parameter_server_discards_is_late():
    """Of weights that the other rank has changed meanwhile: Ringmaster(1) takes none of those."""

    def program(comm):
        model = SimpleNamespace(weights=np.zeros(1, np.float32), gradient=np.ones(1, np.float32))
        synchronizer = METHODS.make(Choice.parse("parameter-server,sync=ringmaster:1"), comm, model)
        synchronizer.begin(model.weights, 0)
        for turn in (0, 1):
            if comm.rank == turn:
                synchronizer.update(model, Plain(), 0)
            comm.preduce(np.zeros(1), range(comm.size))
        synchronizer.close()
        return synchronizer.outcome.late, synchronizer.outcome.missed, float(model.weights[0])

    assert run_ranks(2, program) == [(False, 0, -1.0), (True, 1, -1.0)]


@pytest.mark.parametrize("servers", ["node", "1"])
def test_a_gradient_that_has_taken_too_long_is_given_up(servers):
    """Rank 1's computing seems to have taken 1000 s: the update is rank 0's gradient, and both get its weights."""

    def program(comm):
        model = SimpleNamespace(weights=np.zeros(1, np.float32), gradient=np.full(1, 1.0 + comm.rank, np.float32))
        method = f"parameter-server,sync=mindflayer:1:500,servers={servers}"
        synchronizer = METHODS.make(Choice.parse(method), comm, model)
        steps = []
        for number in range(3):
            synchronizer.begin(model.weights, number)
            if comm.rank == 1:
                synchronizer._join()._pulled -= 1000
            synchronizer.update(model, Plain(), number)
            steps.append((synchronizer.outcome.late, float(model.weights[0])))
        synchronizer.close()
        return steps

    assert run_ranks(2, program) == [[(rank == 1, -1.0 - step) for step in range(3)] for rank in range(2)]


def test_elastic_averaging_meets_the_center_every_so_many_steps():
    def program(comm):
        model = SimpleNamespace(weights=np.full(1, 8, np.float32), gradient=np.ones(1, np.float32))
        synchronizer = METHODS.make(Choice.parse("eamsgd,period=2,alpha=0.5"), comm, model)
        values = []
        for number in range(4):
            synchronizer.begin(model.weights, number)
            synchronizer.update(model, Plain(), number)
            values.append(float(model.weights[0]))
        synchronizer.leave()
        synchronizer._join().pull(model.weights)
        synchronizer.close()
        return values, float(model.weights[0])

    # The center begins at 8. 6 and 8 meet at 7 by half of their difference each, then 5 and 7 at 6.
    assert run_ranks(1, program) == [([7.0, 7.0, 6.0, 6.0], 6.0)]


@pytest.mark.parametrize("method", ["ad-psgd,pace=per_step", "a2cid2,pace=per_step,topology=ring"])
def test_ad_psgd_adds_what_an_update_changes_to_what_the_weights_have_become(method):
    """Whatever the rule: here one that decays weights and takes no gradient. Ranks take different numbers of steps."""

    class Halving:
        def update(self, weights, gradient, number):
            weights *= 0.5

    def program(comm):
        start = 4.0 + 4 * comm.rank
        model = SimpleNamespace(weights=np.full(2, start, np.float32), gradient=np.ones(2, np.float32))
        synchronizer = METHODS.make(Choice.parse(method), comm, model, seed=7)
        model.weights[:] = start + 1  # as a checkpoint does
        given, changed = 0.0, 0.0
        for number in range(2 + comm.rank):
            if number > 0:
                model.weights[:] = np.nan  # they are read
            assert synchronizer.begin(model.weights, number) == number
            given = float(model.weights[0])
            synchronizer.update(model, Halving(), number)
            changed -= given / 2
            assert synchronizer.outcome.active == 1 + bool(synchronizer.outcome.missed)
        synchronizer.leave()
        comm.preduce(np.zeros(1), range(comm.size))
        synchronizer.equalize(model.weights)
        comm.preduce(np.zeros(1), range(comm.size))
        synchronizer.close()
        return start + 1 + changed, model.weights.tolist()

    results = run_ranks(3, program)
    mean = sum(total for total, _ in results) / 3
    assert [weights for _, weights in results] == [results[0][1]] * 3
    assert results[0][1] == pytest.approx([mean, mean], rel=1e-5)


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ("m-synchronous,m=5", "^m: expected 1 <= m <= 1, the number of ranks; got 5$"),
        ("m-synchronous,m=0", "^m: expected 1 <= m <= 1, the number of ranks; got 0$"),
        ("ripples,every=0", "every: expected at least 1 step, got 0"),
        ("ripples,groups=odd", "groups: expected one of random, smart, punctual, static; got 'odd'"),
        ("hop,mode=odd", "expected standard, notify-ack, backup:N"),
        ("hop,max_ig=0", "max_ig: expected"),
        ("parameter-server,sync=odd", "expected a synchronization, bsp, asp, ssp:S, .*got 'odd'"),
        ("parameter-server,sync=eamsgd:4:0.5", "got 'eamsgd:4:0.5': use the method eamsgd"),
        ("eamsgd,period=0", "period: expected at least 1, got 0"),
        ("eamsgd,alpha=1.5", "expected 0 < alpha < 1, got 1.5"),
        ("ad-psgd,pace=odd", "pace: expected .*continuous.*, got 'odd'"),
        ("ad-psgd,acceleration=odd", "acceleration: expected .*a2cid2.*, got 'odd'"),
        ("a2cid2,topology=odd", "topology: expected .*ring.*, got 'odd'"),
        ("eager,divide_by=odd", "divide_by: expected 'world' or 'contributors', got 'odd'"),
    ],
)
def test_options_that_cannot_be_met(said, text):
    (comm,) = loopback(1)
    with comm, pytest.raises(ValueError, match=text):
        make(said, comm)
