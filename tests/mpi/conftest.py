"""Tests of several processes: `make test`, or by hand `mpirun -n 4 python -m pytest --with-mpi tests/mpi`.

A rank that fails prints its report and ends the job. Otherwise the other ranks would wait for it in the next collective
call until their time limit, or meet it there in a different test.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Iterator

# How many ranks were asked for, by tests/run.sh or by a launcher; None: not started by a launcher.
RANKS = next(
    (os.environ[name] for name in ("PYC_TEST_RANKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE") if name in os.environ), None
)

if RANKS is None:
    collect_ignore_glob = ["test_*.py"]
else:
    from mpi4py import MPI
    from pytest_mpi import MPIPlugin

    import pycollectives as pc

    # Every rank must draw the same examples.
    settings.register_profile("mpi", derandomize=True, database=None, deadline=None)
    settings.load_profile("mpi")

    @pytest.hookimpl(trylast=True)
    def pytest_configure(config: pytest.Config) -> None:
        # A launcher of another MPI starts singletons, and every test would pass.
        if MPI.COMM_WORLD.size != int(RANKS):
            raise pytest.UsageError(
                f"{RANKS} ranks were launched but MPI.COMM_WORLD has {MPI.COMM_WORLD.size}: "
                f"this mpirun does not belong to {MPI.Get_library_version().splitlines()[0]}"
            )
        # Open MPI's version ends with a NUL: the summary of pytest-mpi would make the output a binary file for grep.
        for plugin in config.pluginmanager.get_plugins():
            if isinstance(plugin, MPIPlugin) and "\0" in MPI.Get_library_version():
                plugin._is_testing_mpi = False  # silences the summary, and nothing else

    def pytest_collectreport(report: pytest.CollectReport) -> None:
        if report.failed:
            end_job(f"cannot be collected\n{report.longrepr}", report.nodeid)

    def pytest_runtest_logreport(report: pytest.TestReport) -> None:
        if report.failed:
            sections = "".join(f"\n--- {title}\n{text}" for title, text in report.sections)
            end_job(f"failed in {report.when}\n{report.longreprtext}{sections}", report.nodeid)

    def pytest_internalerror(excrepr: object) -> None:
        end_job(str(excrepr), "pytest")

    def end_job(text: str, where: str) -> None:
        world = MPI.COMM_WORLD
        if world.size == 1:
            return  # nobody waits: pytest goes on and sums up
        print(f"\n### rank {world.rank} of {world.size}: {where} {text}", file=sys.stderr, flush=True)
        time.sleep(1.0)  # for the reports of other ranks that fail in the same test
        world.Abort(1)

    @pytest.fixture(scope="module")
    def communicator_of_file(request: pytest.FixtureRequest) -> Iterator[pc.Communicator]:
        """For files marked `one_communicator`; the marker's arguments are the communicator's."""
        marker = request.node.get_closest_marker("one_communicator")
        with pc.Communicator(MPI.COMM_WORLD, **marker.kwargs) as made:
            yield made

    @pytest.fixture
    def comm(request: pytest.FixtureRequest) -> Iterator[pc.Communicator]:
        """A communicator for one test, or the one that all tests of a file share."""
        if request.node.get_closest_marker("one_communicator"):
            yield request.getfixturevalue("communicator_of_file")
        else:
            with pc.Communicator(MPI.COMM_WORLD) as made:
                yield made

    @pytest.fixture
    def output(tmp_path: Path) -> Iterator[Path]:
        """One folder for all ranks."""
        yield Path(MPI.COMM_WORLD.bcast(str(tmp_path)))
        MPI.COMM_WORLD.Barrier()
