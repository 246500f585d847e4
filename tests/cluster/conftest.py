"""The cluster, once for all tests of this folder, and jobs on it."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
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


@pytest.fixture
def jobs(cluster, tmp_path):
    """Jobs in a folder of their own; none is left behind, and a test that fails shows their logs."""
    submitter = Jobs(cluster, tmp_path)
    yield submitter
    cluster.cancel_all()
    print(submitter.logs())
