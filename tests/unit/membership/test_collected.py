"""The states of all collectives, which survivors exchange in texts of limited length."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from pycollectives.membership.members import Membership
from pycollectives.support.deadline import Deadline

LONGEST = 4096
"""Bytes that the engine compares, as csrc/engine has it."""


@pytest.mark.parametrize("length", [0, 1, 100, 5000])
def test_states_of_any_length_are_exchanged(length):
    """The second of two ranks has no states. A quote takes two characters of a text."""
    local = {7: {"left": False, "text": '"' * length}, 8: {"shards": [list(range(24))] * 24}} if length else {}
    other = json.dumps([])

    def gathered(part, what, deadline):
        assert len(json.dumps(part, separators=(",", ":"))) <= LONGEST
        if isinstance(part, int):
            return [part, len(other)]
        gathered.calls += 1
        return [part, other if gathered.calls == 1 else ""]

    gathered.calls = 0
    played = SimpleNamespace(members=(0, 1), gathered=gathered)
    assert Membership.collected(played, local, Deadline(None)) == [local, {}]
