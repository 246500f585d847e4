"""`Communicator.abort` closes all that is open, also if a collective cannot be closed."""

import numpy as np
import pytest

from pycollectives.testing import loopback


def test_one_that_raises_leaves_none_open():
    (comm,) = loopback(1)
    before, failing, after = (comm.partial_allreduce(np.zeros(1), name=name) for name in "abc")

    class Error(Exception):
        pass

    def abort():
        raise Error

    failing.abort = abort
    with pytest.raises(Error):
        comm.abort()
    assert before.closed
    assert after.closed
    assert comm.closed
