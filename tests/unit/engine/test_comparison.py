"""Comparisons of all ranks: of what they say, and of how many collectives they have made."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from pycollectives import _testing


@pytest.mark.parametrize("size", [2, 3, 4, 7, 8])
def test_a_rank_that_returns_keeps_nobody_waiting(size):
    """A program that drives its own engine computes afterwards: what it has to pass on must have left."""
    engines = _testing.busy_loopback(size)

    def compare(engine, text):
        return engine.compare(text, what="a comparison", timeout=5.0)

    with ThreadPoolExecutor(size) as threads:
        assert list(threads.map(compare, engines, [b"the same"] * size)) == [None] * size
    texts = [str(rank).encode() * 3000 for rank in range(size)]
    with ThreadPoolExecutor(size) as threads:
        assert list(threads.map(compare, engines, texts)) == [texts] * size
