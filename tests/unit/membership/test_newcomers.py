"""Calls in which new ranks cannot take part."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pycollectives.membership.members import NOT_FOR_NEWCOMERS, Membership


@pytest.mark.parametrize("call", NOT_FOR_NEWCOMERS)
def test_calls_without_numbers_are_refused_with_spares(call):
    Membership.check_newcomers(SimpleNamespace(replaces=False), call)
    with pytest.raises(ValueError, match=f"{call}: expected neither spares nor respawn"):
        Membership.check_newcomers(SimpleNamespace(replaces=True), call)


def test_numbered_steps_are_not():
    Membership.check_newcomers(SimpleNamespace(replaces=True), "hop")
