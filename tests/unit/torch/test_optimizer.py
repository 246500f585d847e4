"""What all optimizers that work with those of other ranks have in common, shown by one that averages weights."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from eager import LIMIT, backward, eager, ranks, sgd, values, weights  # noqa: E402

import pycollectives as pc  # noqa: E402
from pycollectives.torch.deadlock_guard import Waits  # noqa: E402
from pycollectives.torch.optimizer import CollectiveOptimizer  # noqa: E402
from pycollectives.torch.parameters import FlatTensors  # noqa: E402


class Synchronous(CollectiveOptimizer):
    """Steps with this rank's own gradients, and then takes the mean of all ranks' weights."""

    def __init__(self, optimizer, comm, *, rate=1.0, model=None, name="Synchronous"):
        super().__init__(optimizer, comm, model=model, broadcast=True, broadcast_state=None, timeout=LIMIT, name=name)
        with self._creation():
            parameters = self._begin(lambda: ({"rate": str(rate)}, Waits.DATA))
            self._flat = FlatTensors(parameters, torch.float64)

    def step(self):
        self._check_open()
        self.optimizer.step()
        self._mean()

    def _mean(self):
        self._flat.gather()
        self._comm.preduce(self._flat.array, range(self._comm.size), op=pc.AVG)
        self._flat.scatter()

    def _check_no_step_under_way(self, call):
        pass

    _flushing = False

    def _start_flush(self):
        pass

    def _wait_for_flush(self, deadline):
        pass

    def _end_flush(self):
        pass

    def _means_of_parameters(self):
        return [lambda _: self._mean()]

    def _end_step(self):
        pass

    def _leave(self):
        pass

    def _leave_at_once(self):
        return 0

    def _collectives(self):
        return []


def test_an_optimizer_that_averages_weights():
    def program(comm):
        parameters = weights(2, 3, dtype=torch.float32)
        inner = sgd(parameters, lr=1.0 + comm.rank)
        with Synchronous(inner, comm) as optimizer:
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
            for step in range(2):
                optimizer.zero_grad()
                backward(parameters, float(comm.rank))
                optimizer.step()
                scheduler.step()
                optimizer.flush()
                assert optimizer.average(float(comm.rank)) == 1.0
                assert optimizer.param_groups[0]["lr"] == 0.5 ** (1 + step)  # rank 0's, as a scheduler changed it
            optimizer.finish()
        return values(parameters), optimizer.closed

    assert ranks(3, program) == [([{-1.5}, {-1.5}], True)] * 3


def test_it_is_created_by_all_or_none():
    def program(comm):
        with pytest.raises(
            pc.MismatchError, match=r"Synchronous: arguments differ: rate: 1\.0 on rank 0, 2\.0 on rank 1"
        ):
            Synchronous(sgd(weights(2)), comm, rate=1.0 + comm.rank)
        with Synchronous(sgd(weights(2)), comm):
            return True

    assert ranks(2, program) == [True] * 2


def test_optimizers_of_two_kinds_in_one_thread():
    """One that waits for arrivals has none beside it that waits for data; a parameter is in one of them."""

    def program(comm):
        parameters = weights(2)
        refused = pytest.raises(ValueError, match="some in this optimizer and some in 'eager'")
        with eager(sgd(parameters), comm, "quorum:2", name="eager"), refused:
            Synchronous(sgd(weights(2)), comm)
        with eager(sgd(parameters), comm, "full", name="eager") as optimizer:
            with pytest.raises(ValueError, match="parameter 0 of group 0 is also in 'eager'"):
                Synchronous(sgd(parameters), comm)
            with Synchronous(sgd(weights(2)), comm) as other:
                backward(parameters, 1.0)
                with pytest.raises(RuntimeError, match="flush: gradients of eager are in flight"):
                    other.flush()
                optimizer.step()
                other.flush()
        return values(parameters)

    assert ranks(3, program) == [[{-1.0}]] * 3
