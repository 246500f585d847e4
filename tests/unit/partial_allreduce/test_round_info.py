"""What a call is told of its round is a value: it can be copied, pickled and compared."""

import copy
import pickle

import numpy as np
import pytest

import pycollectives as pc
from pycollectives.testing import loopback, run_ranks

COPIES = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda info: pickle.loads(pickle.dumps(info)),
}


@pytest.fixture(scope="module")
def infos():
    """Of two rounds of 70 ranks, whose contributors need more than one word of bits."""

    def program(comm):
        with comm.partial_allreduce(count=1, dtype="f8", policy=pc.Full()) as ar:
            return [ar.contribute(np.ones(1)).wait(timeout=60.0) for _ in range(2)]

    return run_ranks(70, program)[69]


@pytest.mark.parametrize("how", COPIES)
def test_a_copy_says_the_same(infos, how):
    for info in infos:
        made = COPIES[how](info)
        assert repr(made) == repr(info)
        assert made == info
        assert hash(made) == hash(info)
        assert made.contributors == tuple(range(70))


def test_different_rounds_differ(infos):
    first, second = infos
    assert first != second
    assert first != "a round"
    assert len({first, second, copy.copy(first)}) == 2


@pytest.mark.parametrize("check", [False, True])
def test_a_handle_names_its_round_and_collective(check):
    (comm,) = loopback(1, check=check)
    with comm.partial_allreduce(count=1, dtype="f8", policy="solo", name="sums") as ar:
        handles = [ar.contribute(np.ones(1)) for _ in range(2)]
        assert [repr(handle) for handle in handles] == ["<Round 0 of 'sums'>", "<Round 1 of 'sums'>"]
    comm.close()


def test_a_persistent_request_names_its_collective():
    (comm,) = loopback(1)
    request = pc.Allreduce_init(np.ones(1), np.zeros(1), comm=comm, name="sums")
    assert repr(request) == "<PartialRequest of 'sums', inactive>"
    request.Start()
    assert repr(request) == "<PartialRequest of 'sums', active>"
    request.Wait()
    comm.close()
