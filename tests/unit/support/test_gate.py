"""The gate of other tests stays shut while it is in use."""

import ctypes
import gc
import threading

import numpy as np
from gate import Gate

copy = ctypes.CDLL(None).memcpy  # without Python's lock
copy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]


def test_a_former_gate_that_is_deleted_does_not_open_it():
    """The handler of SIGSEGV is the same for both: without it, the process would end."""
    former, gate = Gate(np.zeros(4096)), Gate(np.ones(4096))
    copied = np.zeros(4096)
    with former:
        pass
    with gate:
        del former
        gc.collect()
        reader = threading.Thread(target=copy, args=(copied.ctypes.data, gate.array.ctypes.data, copied.nbytes))
        reader.start()
        gate.wait_until_reached(reader)
        gate.open()
        reader.join()
    assert (copied == 1).all()
