"""`run_ranks`: its limits, and what it does when the program is interrupted."""

import signal
import subprocess
import sys
import time

from pycollectives.testing import run_ranks

PROGRAM = """if True:
    import time
    import numpy as np
    from pycollectives.testing import run_ranks

    def program(comm):
        with comm.partial_allreduce(np.ones(1), policy="full") as ar:
            ar.allreduce(np.ones(1))
            if comm.rank == 0:
                print("waiting", flush=True)
                time.sleep(60)
            ar.allreduce(np.ones(1))

    try:
        run_ranks(3, program)
    except KeyboardInterrupt:
        print("interrupted")
"""


def test_ctrl_c_ends_all_ranks():
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "waiting\n"
    time.sleep(0.2)
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "interrupted\n"), err
    assert "Fatal" not in err
    assert time.monotonic() - begin < 20


def test_the_limit_of_the_communicators():
    assert run_ranks(2, lambda comm: comm.timeout) == [60.0, 60.0]
    assert run_ranks(2, lambda comm: comm.timeout, communicator_timeout=5.0) == [5.0, 5.0]
    assert run_ranks(2, lambda comm: comm.timeout, communicator_timeout=None) == [None, None]
