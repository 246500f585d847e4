"""What would mix is refused on all ranks: different data, two jobs in one folder. Times of two runs do not mix."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from mpi4py import MPI
from train_jobs import WORLD, Counting, P, blobs, count_examples, refused_everywhere, train

import pycollectives as pc
from pycollectives.train.datasets import DATASETS
from pycollectives.train.datasets.base import Dataset
from pycollectives.train.models import MODELS
from pycollectives.train.output import locked
from pycollectives.train.replica import Step
from pycollectives.train.summary import Totals


def relabelled():
    """On the last rank."""
    inputs, labels = blobs().train
    return Dataset((inputs, np.roll(labels, WORLD.rank == P - 1)), (inputs, labels))


def cut_short():
    """On the last rank, which then has fewer steps to take."""
    arrays = tuple(array[: len(array) - 8 * P * (WORLD.rank == P - 1)] for array in blobs().train)
    return Dataset(arrays, arrays)


class Unseeded(Counting):
    def __init__(self, dataset):
        super().__init__(dataset)
        self.weights += WORLD.rank


DATASETS.add("relabelled", f"{__name__}:relabelled")
DATASETS.add("cut-short", f"{__name__}:cut_short")
MODELS.add("unseeded", f"{__name__}:Unseeded")


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("data", ["relabelled", "cut-short"])
def test_ranks_with_different_examples_are_refused(comm, data):
    """One that has fewer steps to take would wait in a meeting, the others in MPI_Allreduce, for ever."""
    with pytest.raises(pc.MismatchError, match=rf"train examples: \(.*, labels \w+ on rank.* on rank {P - 1}"):
        train(comm, "synchronous", data=data, epochs=1)


def test_the_first_weights_are_those_of_rank_0(comm):
    summary = count_examples(comm, "synchronous", model="unseeded", epochs=1)
    assert summary.is_same_on_all_ranks
    assert [point.loss for point in summary.curve] == [1, 1], "each example was counted once, from 0 on"


def test_a_second_training_in_a_folder_is_refused(comm, output):
    with contextlib.ExitStack() as stack:
        if WORLD.rank == 0:
            stack.enter_context(locked(output, MPI.COMM_SELF))
        refused_everywhere("rank 0: another training job is writing to", train, comm, "synchronous", output)
    assert train(comm, "synchronous", output, epochs=1).finished


def test_a_resumed_run_begins_after_all_times_of_the_one_before():
    """The clocks of ranks are not started at once: in the metrics of one, time would go backwards."""
    totals = Totals(lambda: 10.0 + WORLD.rank)
    totals(Step(0, loss=1.0, compute_s=1.0, wait_s=0.0, active=1, late=False, missed=0))
    totals.settle(WORLD)
    assert totals.elapsed_s == 10 + P - 1
