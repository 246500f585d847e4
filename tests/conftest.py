"""Lets tests in any folder import the helpers of tests/support, such as `oracle`."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "support"))

# Open MPI finds no use for it on one machine, and sleeps for a second when it gives it up.
os.environ.setdefault("OMPI_MCA_btl", "^ofi")


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: takes long; sanitizers leave it out")
    config.addinivalue_line(
        "markers", "large: moves megabytes; sanitizers, to which amounts do not matter, leave it out"
    )
    config.addinivalue_line("markers", "one_thread: threads do not meet in it; ThreadSanitizer leaves it out")
    config.addinivalue_line("markers", "alone: measures times: run one at a time")
    config.addinivalue_line("markers", "one_communicator(**options): the tests of this file share a communicator")
