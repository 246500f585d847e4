"""The tests of this folder need namespaces: where there are none, they are skipped, and the reason is printed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for the helper that stands here: `on_hosts`

from on_hosts import on_hosts


@pytest.fixture(scope="session", autouse=True)
def hosts():
    attempt = on_hosts("2x1", "true")
    if attempt.status != 0:
        lacks_a_tool = "; missing: " in attempt.err
        refuse = pytest.fail if lacks_a_tool and os.environ.get("CI") == "true" else pytest.skip
        refuse(f"tools/hosts: {attempt.err.strip()}; needs root, or user namespaces, and `apt-get install iproute2`")
