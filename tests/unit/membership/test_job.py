"""Which spare takes which number."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pycollectives.membership.job import Job


def job(members, spares):
    numbers = (*range(members), *[None] * spares)
    return Job(SimpleNamespace(rank=0), numbers, tuple(range(members + spares)), members)


@pytest.mark.parametrize(
    ("survivors", "numbers", "joined"),
    [
        ((0, 2, 3, 4, 5), (0, 2, 3, 1, None), (1,)),
        ((2, 3, 4, 5), (2, 3, 0, 1), (0, 1)),
        ((0, 1, 2, 3, 5), (0, 1, 2, 3, None), ()),  # a spare has died
        ((0, 2, 3, 5), (0, 2, 3, 1), (1,)),  # and a member
        ((3, 5), (3, 0), (0,)),  # too few spares
        ((4, 5), (None, None), ()),  # no survivor
    ],
)
def test_spares_take_vacant_numbers_in_ascending_order(survivors, numbers, joined):
    after = job(4, 2).after(SimpleNamespace(rank=0), survivors)
    assert after.numbers == numbers
    assert after.joined == joined
    assert after.originals == survivors
    assert after.members == tuple(sorted(number for number in numbers if number is not None))
    assert after.epoch == 1


def test_a_number_that_stayed_vacant_is_taken_by_nobody_later():
    """All spares have gone, so the members shrink."""
    once = job(3, 1).after(SimpleNamespace(rank=0), (0, 2, 3))  # the spare is 1 now
    assert once.numbers == (0, 2, 1)
    twice = once.after(SimpleNamespace(rank=0), (1, 2))
    assert twice.numbers == (2, 1)
    assert twice.joined == ()
    assert twice.epoch == 2


def test_a_spare_that_has_replaced_a_rank_is_replaced_itself():
    once = job(2, 2).after(SimpleNamespace(rank=0), (0, 2, 3))
    assert once.numbers == (0, 1, None)
    twice = once.after(SimpleNamespace(rank=0), (0, 2))
    assert twice.numbers == (0, 1)
    assert twice.originals == (0, 3)
