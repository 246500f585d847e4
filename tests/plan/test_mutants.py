"""Plans that are wrong on purpose: the checker must reject each, and say why.

What they are mutants of stands in plans.py, or is a registered algorithm, and passes.
"""

from __future__ import annotations

import re

import pytest
from plans import (
    ALGORITHMS,
    doubling,
    edges,
    halving,
    partial,
    reachable,
    registered,
    ring,
    solo,
    star,
    written,
)

from pycollectives import _testing

MUTANTS = {}


def mutant(says, *, sizes):
    """Register a mutant: a function (size) of findings, of which one matches `says`, at each of `sizes`."""

    def register(findings):
        for size in sizes:
            MUTANTS[f"{findings.__name__}-{size}"] = (findings, size, says)
        return findings

    return register


# ---------------------------------------------------------------------------------------------------- originals


@pytest.mark.parametrize("size", range(1, 18))
def test_originals_pass(size):
    for build in (doubling, ring, star, *([halving] if size & (size - 1) == 0 else [])):
        plans = written(build, size, 2 * size)
        for seed in range(5):
            assert _testing.check_allreduce(plans, seed=seed) == [], build.__name__
    for starter in range(size):
        assert _testing.check_activation(solo(size, 2), [starter], seed=starter) == []
    assert _testing.check_activation(solo(size, 2), []) == []


# ---------------------------------------------------------------------------------------------------- partners


@mutant("at the end: out holds .* nothing of rank", sizes=[3, 5, 6, 7, 12])
def skipped_peer(size):
    """fflib2's recursive doubling: where the partner does not exist the step is left out."""

    def build(s, source, into):
        incoming = s.buffer(into.count, "incoming")
        s.copy(source, into)
        bit = 1
        while bit < s.size:
            peer = s.rank ^ bit
            if peer < s.size:
                s.send(into, peer)
                s.recv(incoming, peer)
                s.reduce(incoming, into)
            bit *= 2

    assert _testing.check_allreduce(written(build, 8, 3)) == []  # right at every power of two
    return _testing.check_allreduce(written(build, size, 3))


@mutant("at the end: out holds .* nothing of rank", sizes=[3, 6, 13])
def result_sent_to_the_extra_rank_too_early(size):
    return _testing.check_allreduce(written(doubling, size, 3, result_to_extra="first"))


@mutant("never fires|waits for ever", sizes=[2, 3, 8])
def everybody_waits_for_its_left_neighbour_first(size):
    def build(s, source, into):
        s.copy(source, into)
        incoming = s.buffer(into.count, "incoming")
        s.gate(s.recv(incoming, (s.rank - 1) % s.size))
        s.send(into, (s.rank + 1) % s.size)
        s.reduce(incoming, into)

    return _testing.check_allreduce(written(build, size, 3))


# ---------------------------------------------------------------------------------------------------- slices


@mutant("at the end: out holds", sizes=[3, 4, 9])
def ring_sends_one_piece_off(size):
    return _testing.check_allreduce(written(ring, size, 2 * size, gathers=0))


@mutant("reduces elements from", sizes=[2, 3, 8])
def ring_reduces_one_piece_off(size):
    return _testing.check_allreduce(written(ring, size, 2 * size, reduces=0))


@mutant("at the end: out holds from element .* what belongs from", sizes=[3, 4, 9])
def ring_puts_finished_pieces_one_off(size):
    """Every element of the result has every contribution once, but of another element."""
    return _testing.check_allreduce(written(ring, size, 2 * size, receives=1))


@mutant("reduces elements from", sizes=[2, 4, 16])
def halving_keeps_the_half_it_gave_away(size):
    return _testing.check_allreduce(written(halving, size, 2 * size, keeps="what it gave"))


@mutant("one header speaks for all", sizes=[2, 4, 16])
def doubling_shares_more_than_is_complete(size):
    """Contributors differ within one message, which has one header."""
    return _testing.check_allreduce(written(halving, size, 2 * size, shares="everything"))


@mutant("elements, but rank .* sends", sizes=[2, 5])
def a_message_of_another_length(size):
    def build(s, source, into):
        n = into.count if s.rank == 0 else into.count - 1
        star(s, source.part(0, n), into.part(0, n))

    return _testing.check_allreduce(written(build, size, 6))


@mutant("what belongs from", sizes=[2, 5])
def two_messages_in_the_other_order(size):
    return _testing.check_allreduce(written(star, size, 6, broadcast="other order"))


@mutant("elements, but rank .* sends", sizes=[2, 5])
def two_messages_of_unequal_length_in_the_other_order(size):
    return _testing.check_allreduce(written(star, size, 7, broadcast="other order"))


@mutant("left on the wire, rank 0 does not receive it", sizes=[2, 5])
def a_message_too_many(size):
    def build(s, source, into):
        star(s, source, into)
        if s.rank == 1:
            s.send(source, 0)

    return _testing.check_allreduce(written(build, size, 6))


@mutant("rank 0 sends no such message", sizes=[2, 5])
def a_message_too_few(size):
    def build(s, source, into):
        star(s, source, into)
        if s.rank == 1:
            s.recv(into, 0)

    return _testing.check_allreduce(written(build, size, 6))


# ---------------------------------------------------------------------------------------------------- reductions


@mutant("reduces the contribution of rank .* twice", sizes=[2, 3, 8])
def everything_reduced_twice(size):
    return _testing.check_allreduce(written(doubling, size, 3, reduces=2))


@mutant("at the end: out holds .* nothing of rank", sizes=[2, 5, 8])
def nothing_reduced(size):
    return _testing.check_allreduce(written(doubling, size, 3, reduces=0))


@mutant("reduces the contribution of rank .* twice", sizes=[3, 5, 6])
def dissemination_where_ranks_overlap(size):
    """Right for MAX at every size, but for SUM only at powers of two."""

    def build(s, source, into):
        s.copy(source, into)
        distance = 1
        while distance < s.size:
            incoming = s.buffer(into.count, "incoming")
            s.send(into, (s.rank + distance) % s.size)
            s.recv(incoming, (s.rank - distance) % s.size)
            s.reduce(incoming, into)
            distance *= 2

    assert _testing.check_allreduce(written(build, 4, 3)) == []
    return _testing.check_allreduce(written(build, size, 3))


@mutant("writes the input", sizes=[2, 5])
def the_input_is_overwritten(size):
    def build(s, source, into):
        star(s, source, into)
        if s.rank == 1:
            s.recv(source, 0)
        if s.rank == 0:
            s.send(into, 1)

    return _testing.check_allreduce(written(build, size, 6))


@mutant("at the end: out holds .* nothing of rank 0", sizes=[1, 2, 5])
def an_own_contribution_forgotten(size):
    return _testing.check_allreduce(written(star, size, 6, copies="never"))


# ---------------------------------------------------------------------------------------------------- edges


def removed(plans, rank, before, after):
    """The plans with one edge of one rank removed."""
    return [_testing.without_edge(plan, before, after) if plan.rank == rank else plan for plan in plans]


def find(plan, kind, nth=0):
    return [op["id"] for op in plan.ops if op["kind"] == kind][nth]


@mutant(r"rank 1, op 3 reduce .*: races with op 1 send>0", sizes=[2, 4, 8])
def missing_write_after_read(size):
    """The sum is written while it is being sent."""
    plans = registered("recursive_doubling", size, 3)
    return _testing.check_allreduce(removed(plans, 1, find(plans[1], "send"), find(plans[1], "reduce")))


@mutant(r"rank 1, op 5 recv<3 .*: races with op 3 reduce", sizes=[4, 8])
def missing_write_after_read_of_a_receive(size):
    """The next message lands before the one in its place was used."""
    plans = registered("recursive_doubling", size, 3)
    return _testing.check_allreduce(removed(plans, 1, find(plans[1], "reduce"), find(plans[1], "recv", 1)))


@mutant(r"rank 1, .*: races with op 0 copy in\[0:6\] -> out\[0:6\]", sizes=[2, 5])
def missing_write_after_write(size):
    """What is received may be overwritten with this rank's own."""
    plans = written(star, size, 6)
    return _testing.check_allreduce(removed(plans, 1, find(plans[1], "copy"), find(plans[1], "recv")))


@mutant(r"rank 0, .* reduce .*: races with op \d+ recv<1", sizes=[2, 5])
def missing_read_after_write(size):
    plans = written(star, size, 6)
    return _testing.check_allreduce(removed(plans, 0, find(plans[0], "recv"), find(plans[0], "reduce")))


@mutant(r"rank 2, .* reduce .*: races with", sizes=[4, 8])
def with_need_too_small(size):
    """A reduction that waits for one of its two predecessors."""
    plans = registered("recursive_doubling", size, 3)
    plans[2] = _testing.with_need(plans[2], find(plans[2], "reduce"), 1)
    return _testing.check_allreduce(plans)


@mutant(r"rank 0, .* reduce .*: races with op \d+ recv<2", sizes=[3, 5])
def an_or_join_taken_for_an_order(size):
    """The one path from a receive to the reduction of what it brings leads through a join of any receive."""

    def build(s, source, into):
        s.copy(source, into)
        if s.rank != 0:
            s.send(source, 0)
            s.recv(into, 0)
            return
        incoming = [s.buffer(into.count, "incoming") for _ in range(1, s.size)]
        received = [s.recv(buffer, rank) for rank, buffer in enumerate(incoming, start=1)]
        s.gate(s.join("any", received, "one"))
        for buffer in incoming:
            s.reduce(buffer, into)
        for rank in range(1, s.size):
            s.send(into, rank)

    plans = written(build, size, 6)
    assert _testing.check_allreduce(plans) == []
    receive, reduce = find(plans[0], "recv", 1), find(plans[0], "reduce", 1)
    flawed = removed(plans, 0, receive, reduce)
    assert reduce in reachable(flawed[0])[receive]
    return _testing.check_allreduce(flawed)


# ---------------------------------------------------------------------------------------------------- control


@mutant("active: fires twice", sizes=[2, 3, 8])
def an_or_join_that_fires_twice(size):
    """Not the plan is wrong but who executes it: an op fires at every predecessor past `need`."""
    return _testing.check_activation(partial("ring", size, size, "dissemination"), [0], refire=True)


@mutant("rank 0 sends no such message", sizes=[2, 5, 8])
def a_lost_activation_hop(size):
    return _testing.check_activation(solo(size, 2, hop_without=(0, 1)), [0])


@mutant("fires though nobody has started", sizes=[2, 5, 8])
def an_activation_by_nobody(size):
    return _testing.check_activation(solo(size, 2, starts_itself=1), [])


@mutant("waits for ever", sizes=[2, 5, 40])
def a_tree_whose_root_is_not_asked(size):
    return _testing.check_activation(partial("ring", size, size, "tree"), [size - 1])


@mutant("release: races with op .* data", sizes=[2, 5, 8])
def a_gate_that_does_not_hold_back_the_take(size):
    """Data moves as soon as the rank is active, before it has put its own in place."""
    return _testing.check_activation(solo(size, 2, held_by="active"), [0])


@mutant("release: races with op .* data", sizes=[2, 5, 8])
def a_hold_that_waits_for_activation_only(size):
    plans = partial("recursive_doubling", size, 2, "dissemination")
    taken = next(op["id"] for op in plans[1].ops if op["name"] == "taken")
    plans[1] = _testing.with_need(plans[1], taken, 1)
    return _testing.check_activation(plans, [0])


@mutant("result.*races with|races with op .* result", sizes=[3, 5, 8])
def a_result_announced_too_early(size):
    return _testing.check_activation(solo(size, 2, result_after="first"), [0])


# ---------------------------------------------------------------------------------------------------- they are rejected


@pytest.mark.parametrize(("findings", "size", "says"), MUTANTS.values(), ids=MUTANTS)
def test_rejected(findings, size, says):
    found = findings(size)
    assert any(re.search(says, finding) for finding in found), found


def test_there_are_enough():
    assert len({findings for findings, _, _ in MUTANTS.values()}) >= 12


@pytest.mark.parametrize("size", [2, 3, 5, 8, 12])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_no_inferred_edge_can_be_spared(algorithm, size):
    """Whichever edge of a plan is removed: the checker misses it, unless another path orders the two ops."""
    plans = registered(algorithm, size, 2 * size)
    for rank in {0, size // 2, size - 1}:
        for before, after in edges(plans[rank]):
            flawed = removed(plans, rank, before, after)
            redundant = after in reachable(flawed[rank])[before]
            assert bool(_testing.check_allreduce(flawed)) != redundant, f"op {before} -> op {after} of\n{plans[rank]}"
