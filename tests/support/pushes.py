"""Waits of tests for the pushes of other ranks to a parameter server."""

from __future__ import annotations

import time

__all__ = ["wait_for_pushes"]

LIMIT = 30.0


def wait_for_pushes(ps, rank, pushes):
    """Wait until this number of a rank's pushes have their place in the order."""
    end = time.monotonic() + LIMIT
    while ps.server_statistics(timeout=LIMIT).workers[ps.workers.index(rank)].pushes < pushes:
        assert time.monotonic() < end
        time.sleep(0.001)
