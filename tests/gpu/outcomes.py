"""A pytest plugin: each rank writes when a test begins and ends, so that a run that is stopped has kept what it did."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

STARTED = "started"


class Writer:
    """Appends a line of JSON to a file that all ranks share."""

    def __init__(self, path: str):
        self._path = path
        self._rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", "0"))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._write(nodeid, STARTED)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            self._write(report.nodeid, report.outcome if report.when == "call" or report.skipped else "error")

    def _write(self, test: str, outcome: str) -> None:
        with open(self._path, "a") as records:
            records.write(json.dumps({"test": test, "rank": self._rank, "outcome": outcome}) + "\n")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--outcomes", metavar="FILE", required=True)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Writer(config.getoption("--outcomes")))
