"""The word of a slot of an update queue: sender and receiver, step by step, in every order."""

from itertools import product

import pytest

from pycollectives import _testing

OLD, NEW = 3, 9
ACTIONS = {  # of the receiver, each with what must hold before it
    "claim": (lambda slot: slot.is_full_of(OLD), lambda slot: slot.claim(OLD)),
    "release": (lambda slot: slot.is_claimed, lambda slot: slot.release(OLD)),
    "dequeue": (lambda slot: slot.is_claimed, lambda slot: slot.dequeue()),
    "discard": (lambda _: True, lambda slot: slot.discard_before(NEW)),
}


@pytest.mark.parametrize("begins_full", [True, False])
@pytest.mark.parametrize("actions", [way for n in range(4) for way in product(ACTIONS, repeat=n)], ids="-".join)
def test_the_sender_empties_a_slot_unless_the_receiver_reads_it(actions, begins_full):
    """The receiver acts after the sender has looked, and before it empties the slot."""
    slot = _testing.UpdateSlot()
    if begins_full:
        slot.fill(OLD)
    seen = slot.tag
    for action in actions:
        may, act = ACTIONS[action]
        if not may(slot):
            return
        act(slot)
    reads = slot.is_claimed
    assert slot.empty(seen) is not reads
    assert slot.is_empty is not reads
    assert slot.is_claimed is reads


def test_the_sender_that_sees_it_claimed_leaves_it():
    slot = _testing.UpdateSlot()
    slot.fill(OLD)
    assert slot.claim(OLD)
    assert not slot.empty(slot.tag)
    assert slot.is_claimed


def test_the_receiver_claims_and_discards_what_it_means():
    """Not what the sender has written in its place meanwhile."""
    slot = _testing.UpdateSlot()
    assert not slot.claim(0)
    assert not slot.discard_before(NEW)
    for iteration in (0, OLD, NEW):
        slot.fill(iteration)
        assert slot.is_full_of(iteration)
        assert not slot.claim(iteration + 1)
        assert not slot.discard_before(iteration)
        assert slot.claim(iteration)
        assert not slot.claim(iteration)
        assert not slot.is_full_of(iteration)
        assert not slot.discard_before(NEW + 1)
        slot.release(iteration)
        assert slot.discard_before(iteration + 1)
        assert slot.is_empty
