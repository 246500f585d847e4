"""The cluster, once for all tests of this folder, and jobs on it."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for the helpers that stand here: `controller`

from controller import PACKAGES, Cluster, missing
from jobs import Jobs


@pytest.fixture(scope="session")
def cluster():
    if lacking := missing():
        how = f"missing: {' '.join(lacking)}; `apt-get install --no-install-recommends {PACKAGES}` has them"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(how)
    folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))  # short: the path of a socket has 107 characters
    folder.chmod(0o755)
    virtual = Cluster(folder)
    try:
        virtual.start()
        yield virtual
    finally:
        virtual.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def begun(request, cluster, tmp_path_factory):
    """All tests that submit jobs, each in a thread, from the first one on: most of their time they wait for SLURM."""
    tests = [item for item in request.session.items if "jobs" in item.fixturenames]
    with ThreadPoolExecutor(len(tests)) as pool:
        of = {}
        for test in tests:
            jobs = Jobs(cluster, tmp_path_factory.mktemp("jobs"))
            values = test.callspec.params if hasattr(test, "callspec") else {}
            of[test.nodeid] = jobs, pool.submit(test.obj, jobs=jobs, **values)
        yield of
        cluster.cancel_all()  # of tests that are not waited for any more


@pytest.fixture
def jobs(request, begun):
    """Jobs in a folder of their own; a test that fails shows their logs."""
    jobs, _ = begun[request.node.nodeid]
    yield jobs
    print(jobs.logs())


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Wait for a test that has begun."""
    if "jobs" not in pyfuncitem.fixturenames:
        return None
    _, test = pyfuncitem.funcargs["begun"][pyfuncitem.nodeid]
    test.result()
    return True
