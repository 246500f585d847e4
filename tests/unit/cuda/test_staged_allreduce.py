"""The partial allreduce of arrays on devices of several nodes. Ranks are threads; simulated driver, slow messages."""

import numpy as np
import pytest
from device_programs import OnDevice, call_until_it_fails, simulated_device
from devices import Simulated, needs_cuda

import pycollectives as pc
from pycollectives.testing import run_ranks

pytestmark = needs_cuda

COUNT = 60
RANKS = 3
FAILED = 719


@pytest.mark.parametrize("schedule", ["recursive_doubling", "ring", "tree"])
def test_results_are_right(schedule):
    def program(comm, machine):
        x = OnDevice(machine, np.full(COUNT, comm.rank + 1.0))
        with comm.partial_allreduce(x, policy=pc.Full(), missed="latest", algorithm=schedule) as ar:
            for number in range(10):
                x.write(np.full(COUNT, comm.rank + number))
                result, _ = ar.allreduce(x)
                assert (result.to_host() == sum(rank + number for rank in range(RANKS))).all()

        x.free()

    with simulated_device(1) as machine:  # at whose end all is freed
        run_ranks(RANKS, lambda comm: program(comm, machine), ranks_per_node=1, delay=1e-3)


@pytest.mark.parametrize("seed", range(8))
def test_nobody_is_given_what_another_node_has_lost(seed):
    """Whose message on that comes after the data: the root of the tree reduces what its child has lost."""
    machine = Simulated(seed)
    machine.driver.use()

    def program(comm):
        x = OnDevice(machine, np.full(COUNT, comm.rank + 1.0))
        ar = comm.partial_allreduce(x, policy=pc.Full(), missed="latest", algorithm="tree")
        if comm.rank == 0:
            machine.driver.fail("cuMemcpyAsync to the host", 2, FAILED)  # the first is the root's
        text = call_until_it_fails(ar, x)
        ar.leave()
        return text.partition("CUDA: cuMemcpyAsync: ")[1]

    assert all(run_ranks(2, program, ranks_per_node=1, delay=0.1, seed=seed))
    machine.driver.use_no_more()
