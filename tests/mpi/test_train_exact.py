"""What is exact in training on several ranks: which gradients are applied, how often, and divided by what."""

from __future__ import annotations

import numpy as np
import pytest
from train_jobs import (
    BATCH,
    ONE_FAST,
    ONE_LATE,
    ONE_SLOW,
    STEPS_PER_EPOCH,
    SUMMING,
    WAITING,
    Counting,
    P,
    blobs,
    count_examples,
    numbers,
    train,
    weights_in,
)

from pycollectives.train.batches import Batches
from pycollectives.train.models.mlp import MLP
from pycollectives.train.optimizers import SGD
from pycollectives.train.synchronizers.eager import Eager


def sgd_of_one_process(steps, *, momentum=0.0, rate=0.2, seed=1):
    """The same training, by a loop over whole batches."""
    dataset = blobs(seed=seed)
    model = MLP(dataset, hidden=8, seed=seed)
    optimizer = SGD(model.weights, lambda number: 1.0, rate=rate, momentum=momentum)
    shares = [Batches(dataset, P * BATCH, rank=rank, ranks=P, seed=seed) for rank in range(P)]
    for number in range(steps):
        model.forward(*(np.concatenate(parts) for parts in zip(*(share(number) for share in shares), strict=True)))
        model.backward()
        optimizer.update(model.weights, model.gradient, number)
    return model.weights


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("method", WAITING)
def test_methods_that_wait_for_all_are_sgd_on_the_whole_batch(comm, method, momentum, output):
    train(comm, method, output, epochs=2, optimizer=f"sgd,rate=0.2,momentum={momentum}")
    reference = sgd_of_one_process(2 * STEPS_PER_EPOCH, momentum=momentum)
    np.testing.assert_allclose(weights_in(output), reference, rtol=1e-4, atol=1e-5)


def test_the_default_batch_is_that_of_one_process(comm, output):
    """Whatever the number of ranks: counts are whole numbers, exactly, and each example is in one rank's share."""
    summary = count_examples(comm, "synchronous", output, batch=None, epochs=1)
    assert (summary.batch % P, summary.batch // 64) == (0, 1)
    taken = summary.steps * summary.batch
    assert sorted(weights_in(output)) == [0.0] * (P * BATCH * STEPS_PER_EPOCH - taken) + [1.0] * taken


@pytest.mark.parametrize("load", ["lognormal,work_ms=0.5,skew_ms=1", ONE_SLOW, ONE_FAST])
@pytest.mark.parametrize("method", SUMMING)
def test_every_gradient_is_applied_once(comm, method, load, monkeypatch):
    """To every replica, before models are averaged, which could hide that one has lost what another has twice."""
    equal = []
    equalize = Eager.equalize

    def spied(synchronizer, weights):
        equal.append(comm.is_same_on_all_ranks(weights))
        equalize(synchronizer, weights)

    monkeypatch.setattr(Eager, "equalize", spied)
    (*_, last) = count_examples(comm, method, epochs=3, settle_epochs=1.25, load=load).curve
    assert (last.accuracy, last.loss) == (3, 3), "the least and the most that any example was applied"
    assert equal == [True] * 3


@pytest.mark.parametrize("load", [ONE_SLOW, ONE_FAST])
@pytest.mark.parametrize("servers", ["node", "1"])
@pytest.mark.parametrize("sync", ["asp", "ssp:1", "elastic:3"])
def test_a_parameter_server_applies_every_gradient_once(comm, sync, servers, load):
    """Each by itself: what is divided by the number of ranks elsewhere counts as often here."""
    method = f"parameter-server,sync={sync},servers={servers}"
    (*_, last) = count_examples(comm, method, epochs=3, settle_epochs=1.25, load=load).curve
    assert (last.accuracy, last.loss) == (3 * P, 3 * P), "the least and the most that any example was applied"


@pytest.mark.mpi(min_size=2)
def test_every_gradient_is_applied_once_if_models_are_not_linear_in_what_is_missed(comm):
    """`missed="latest"`: rounds are lost to a rank, on purpose. That this is seen shows that counting sees it."""
    (*_, last) = count_examples(comm, "eager,policy=solo,missed=latest", epochs=3, load=ONE_LATE).curve
    assert last.accuracy < 3


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize(("method", "dropped"), [("m-synchronous,m=1", True), (SUMMING[2], False)])
def test_m_synchronous_drops_what_comes_late(comm, method, dropped):
    """What the slow rank computes while the others take all their steps; alone, its gradients are not divided by P."""
    (*_, last) = count_examples(comm, method, epochs=1, load=ONE_LATE).curve
    assert (last.accuracy == 0, last.loss > 1) == (dropped, dropped)


def results_of(monkeypatch):
    """What `combine` will have returned to this rank, step by step; copies."""
    results = []
    combine = Eager.combine

    def spied(synchronizer, gradient):
        mean = combine(synchronizer, gradient)
        results.append(mean.copy())
        return mean

    monkeypatch.setattr(Eager, "combine", spied)
    return results


@pytest.mark.parametrize("load", [ONE_SLOW, ONE_FAST])
@pytest.mark.parametrize("policy", ["solo", "majority", "quorum:1"])
def test_only_gradients_count_as_contributors(comm, policy, load, monkeypatch):
    """Each is the same here, and so is their mean: a rank that is absent would make it less, if it counted as zeros."""
    results = results_of(monkeypatch)
    monkeypatch.setattr(Counting, "backward", lambda model: model.gradient.fill(P))
    count_examples(
        comm, f"eager,policy={policy},missed=latest,divide_by=contributors,late=replace", epochs=2, load=load
    )
    assert len(results) == 2 * STEPS_PER_EPOCH
    assert {float(value) for mean in results for value in np.unique(mean)} == {float(P)}


REPLACING = "eager,policy=quorum:1,missed=sum,divide_by=contributors,late=replace"
"""`m-synchronous,m=1`, but that the newest late gradient waits for the next round."""


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize(("method", "dropped"), [("m-synchronous,m=1", True), (REPLACING, False)])
def test_m_synchronous_keeps_nothing_that_comes_late(comm, method, dropped, output):
    """Not for the flush either, by which the slow rank's only gradient would be applied."""
    count_examples(comm, method, output, epochs=1 / STEPS_PER_EPOCH, load="one-slow,work_ms=1,factor=1000")
    share = Batches(numbers(), P * BATCH, rank=P - 1, ranks=P, seed=1)
    (examples,) = share(0)
    assert (not weights_in(output)[examples].any()) == dropped
