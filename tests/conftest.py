"""Lets tests in any folder import the helpers of tests/support, such as `oracle`."""

import gc
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "support"))

# Open MPI finds no use for it on one machine, and sleeps for a second when it gives it up.
os.environ.setdefault("OMPI_MCA_btl", "^ofi")


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: takes long; sanitizers leave it out")
    config.addinivalue_line(
        "markers", "large: moves megabytes; sanitizers, to which amounts do not matter, leave it out"
    )
    config.addinivalue_line("markers", "one_thread: threads do not meet in it; ThreadSanitizer leaves it out")
    config.addinivalue_line("markers", "alone: measures times, or looks at the whole machine: run one at a time")
    config.addinivalue_line("markers", "nightly: left out unless NIGHTLY is set, as `make nightly` does")
    config.addinivalue_line("markers", "gpu: needs a GPU; skipped without one, or fails if PYC_REQUIRE_CUDA=1")
    config.addinivalue_line("markers", "one_communicator(**options): the tests of this file share a communicator")


def pytest_collection_modifyitems(config, items):
    if os.environ.get("NIGHTLY"):
        return
    left_out = [item for item in items if item.get_closest_marker("nightly")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def pytest_collection_finish(session):
    """Leave imported objects out of garbage collections and out of searches of all objects: they are most of them."""
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    simulated = os.environ.get("PYC_SIMULATED_GPU") == "1" and "machine" in item.fixturenames
    if item.get_closest_marker("gpu") and not simulated:
        from devices import why_no_gpu

        if reason := why_no_gpu():
            pytest.skip(f"no GPU: CUDA is off: {reason}")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    """Where a GPU is required, a test that needs one is not skipped for any reason."""
    report = (yield).get_result()
    if report.skipped and item.get_closest_marker("gpu") and os.environ.get("PYC_REQUIRE_CUDA") == "1":
        report.outcome = "failed"
        report.longrepr = f"PYC_REQUIRE_CUDA=1, but this was skipped: {report.longrepr[2]}"
