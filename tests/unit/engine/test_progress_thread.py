"""The thread that drives engines in the background. What can hang or needs a library of its own runs in a process."""

import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from pycollectives.testing import loopback

LIMIT = 60  # seconds

ONE_FAILING_THREAD = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
int fail_next = 0;
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*), void* argument) {
  if (fail_next) { fail_next = 0; return EAGAIN; }
  int (*real)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*) = dlsym(RTLD_NEXT, "pthread_create");
  return real(thread, attributes, run, argument);
}
"""


def run(program, **environment):
    """Run a program in a process of its own; what it prints."""
    text = textwrap.dedent(program)
    job = subprocess.run(
        [
            "timeout",
            "-k",
            "5",
            str(LIMIT),
            "env",
            *(f"{k}={v}" for k, v in environment.items()),
            sys.executable,
            "-c",
            text,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert job.returncode == 0, job.stderr
    return job.stdout


def progress_threads():
    tasks = Path("/proc/self/task").iterdir()
    return [task for task in tasks if (task / "comm").read_text().strip() == "pyc-progress"]


@pytest.mark.one_thread  # its preloaded library takes the place of the sanitizer's
def test_a_thread_that_cannot_be_started_is_started_for_the_next_engine(tmp_path):
    source = tmp_path / "failing.c"
    source.write_text(ONE_FAILING_THREAD)
    shim = tmp_path / "failing.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", shim, source, "-ldl"], check=True, timeout=LIMIT)
    program = """
        import ctypes
        from pathlib import Path
        from pycollectives.testing import loopback

        def threads():
            return [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]

        loopback(1)[0].close()  # what else starts threads has done so
        ctypes.c_int.in_dll(ctypes.CDLL(None), "fail_next").value = 1
        try:
            loopback(1)
        except RuntimeError:
            print("refused")
        comms = loopback(1)
        print(threads().count("pyc-progress"))
    """
    assert run(program, LD_PRELOAD=shim).split() == ["refused", "1"]


def blocked_signals(thread):
    (mask,) = (line for line in (thread / "status").read_text().splitlines() if line.startswith("SigBlk:"))
    return {one for one in signal.Signals if int(mask.split()[1], 16) >> (one - 1) & 1}


def test_signals_are_for_the_threads_of_the_application():
    (comm,) = loopback(1)
    (thread,) = progress_threads()
    faults = {signal.SIGSEGV, signal.SIGBUS}
    end = time.monotonic() + LIMIT
    while faults & blocked_signals(thread) and time.monotonic() < end:
        time.sleep(0.001)  # the C library blocks all signals until a new thread first runs
    assert not faults & blocked_signals(thread)
    assert {signal.SIGPROF, signal.SIGINT, signal.SIGUSR1} <= blocked_signals(thread)
    comm.close()


@pytest.mark.parametrize("closes", [False, True])
def test_a_function_of_the_application_ends_on_the_main_thread(closes):
    """The last reference goes in a pass of the progress thread, which holds the engine's locks."""
    program = f"""
        import threading, time
        import numpy as np
        from pycollectives.testing import loopback

        class Update:
            def __init__(self):
                self.own = loopback(1)[0]

            def __call__(self, weights, gradient):
                weights -= gradient

            def __del__(self):
                print(threading.current_thread() is threading.main_thread())
                if {closes}:
                    self.own.close()

        comms, servers = loopback(2), [None, None]

        def make(rank):
            servers[rank] = comms[rank].parameter_server(np.zeros(1), servers="node", update=Update())

        threads = [threading.Thread(target=make, args=(rank,)) for rank in (0, 1)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        servers[0].leave()
        servers[0] = None
        servers[1].leave()
        servers[1] = None
        end = time.monotonic() + 5
        while time.monotonic() < end:
            time.sleep(0.01)
        loopback(1)[0].close()
    """
    assert run(program).split() == ["True", "True"]
