"""With PYC_HEARTBEAT_TIMEOUT a host that is cut off is lost for the others; without it they would wait for ever."""

from __future__ import annotations

import sys
from pathlib import Path

from launcher import launcher
from on_hosts import launched, on_hosts, ranks_of

PROGRAM = Path(__file__).parent / "programs" / "silent.py"
LIMITS = {"PYC_HEARTBEAT_TIMEOUT": "2", "PYC_EXIT_TIMEOUT": "5"}

CUT = """
until [ -e "$0/begun" ]; do sleep 0.1; done
ip link set node2 down
until [ -e "$0/told-0" ] && [ -e "$0/told-1" ]; do sleep 0.1; done
ip link set node2 up
"""
"""The link works again in the end, or the launcher would wait for the ranks there."""


def test_ranks_of_a_host_that_is_cut_off_are_named(tmp_path):
    """On either side, those of the other one."""
    command = [*launcher(), "-n", str(ranks_of("2x2")), sys.executable, str(PROGRAM), str(tmp_path), "100000", "0"]
    job = on_hosts("2x2", "sh", "-c", f'({CUT}) & shift 0; exec "$@"', tmp_path, *command, **LIMITS)
    for rank, others in enumerate(([2, 3], [2, 3], [0, 1], [0, 1])):
        said, *_, end = job.said(rank)
        assert said.startswith(f"{others} "), job
        assert "ranks {}, {}".format(*others) in said, job
        assert end == "end", job


def test_a_rank_that_is_stopped_or_computes_is_not_named(tmp_path):
    """Another rank of its host says that the host is there."""
    job = launched("2x2", PROGRAM, tmp_path, 20, 7, **LIMITS)
    assert job.status == 0, job
    for rank in range(4):
        assert job.said(rank) == ["right", "end"], job


def test_a_host_whose_only_rank_is_stopped_is_taken_for_lost(tmp_path):
    """As docs/faults.md says."""
    job = launched("3x1", PROGRAM, tmp_path, 100000, 7, **LIMITS)
    for rank in (0, 1):
        said, *_, end = job.said(rank)
        assert said.startswith("[2] "), job
        assert end == "end", job
