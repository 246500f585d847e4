"""Tests of plans and of the protocol in virtual time: one process, no launcher."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for the helpers that stand here: `plans`


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes a minute rather than a second; deselect with -m 'not slow'")
