"""The builder infers the edges that data needs and no others; a plan that cannot be right is refused, by name."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans import edges, reachable

from pycollectives import ScheduleError, _testing
from pycollectives.support.native import core


@pytest.fixture
def s():
    return core.ScheduleBuilder(1, 4)


# ---------------------------------------------------------------------------------------------------- data edges


def test_read_after_write(s):
    a = s.buffer(4, "a")
    assert (s.recv(a, 0), s.send(a, 2)) == (0, 1)
    assert edges(s.build()) == {(0, 1)}


def test_write_after_read(s):
    a = s.buffer(4, "a")
    s.send(a, 2)
    s.recv(a, 0)
    assert edges(s.build()) == {(0, 1)}


def test_write_after_write(s):
    a = s.buffer(4, "a")
    s.recv(a, 0)
    s.recv(a, 2)
    assert edges(s.build()) == {(0, 1)}


def test_reads_are_not_ordered(s):
    a = s.buffer(4, "a")
    s.send(a, 0)
    s.send(a, 2)
    assert edges(s.build()) == set()


def test_only_overlap_counts(s):
    a = s.buffer(6, "a")
    s.recv(a.part(0, 3), 0)
    s.send(a.part(3, 3), 2)  # touches
    s.send(a.part(2, 2), 3)  # overlaps
    s.recv(s.buffer(6, "b"), 0)  # elsewhere
    assert edges(s.build()) == {(0, 2)}


def test_a_covering_write_stands_for_all_before(s):
    a = s.buffer(4, "a")
    s.recv(a.part(0, 2), 0)
    s.send(a.part(1, 2), 2)
    s.recv(a, 0)
    s.send(a, 3)
    assert edges(s.build()) == {(0, 1), (0, 2), (1, 2), (2, 3)}


def test_a_partial_write_does_not(s):
    a = s.buffer(4, "a")
    s.recv(a, 0)
    s.recv(a.part(0, 2), 2)
    s.send(a, 3)
    assert edges(s.build()) == {(0, 1), (0, 2), (1, 2)}


def test_two_conflicts_make_one_edge(s):
    a, b = s.buffer(4, "a"), s.buffer(4, "b")
    s.reduce(a, b)
    s.reduce(b, a)
    plan = s.build()
    assert plan.ops[0]["next"] == [1]
    assert plan.edges == plan.ops[1]["need"] == plan.ops[1]["predecessors"] == 1


def test_copying_a_slice_to_itself_is_nothing(s):
    a = s.buffer(4, "a")
    s.copy(a, a)
    s.copy(a.part(1, 2), a.part(1, 2))
    assert s.build().ops == []


@st.composite
def programs(draw):
    """Random straight-line code: (kind, slices as (buffer, first, count)) on three buffers of 6 elements."""
    slices = st.tuples(st.integers(0, 2), st.integers(0, 5), st.integers(1, 6)).map(
        lambda t: (t[0], t[1], min(t[2], 6 - t[1]))
    )
    ops = []
    for kind in draw(st.lists(st.sampled_from(["send", "recv", "reduce"]), max_size=12)):
        first = draw(slices)
        if kind != "reduce":
            ops.append((kind, first))
            continue
        buffer = (first[0] + draw(st.integers(1, 2))) % 3
        ops.append((kind, first, (buffer, draw(st.integers(0, 6 - first[2])), first[2])))
    return ops


@given(programs())
def test_ordered_if_and_only_if_data_needs_it(program):
    s = core.ScheduleBuilder(0, 2)
    buffers = [s.buffer(6) for _ in range(3)]
    reads, writes = [], []  # elements, per op
    for kind, *slices in program:
        parts = [buffers[b].part(first, count) for b, first, count in slices]
        elements = [{(b, e) for e in range(first, first + count)} for b, first, count in slices]
        if kind == "send":
            s.send(parts[0], 1)
            reads.append(elements[0])
            writes.append(set())
        elif kind == "recv":
            s.recv(parts[0], 1)
            reads.append(set())
            writes.append(elements[0])
        else:
            s.reduce(*parts)
            reads.append(elements[0] | elements[1])
            writes.append(elements[1])
    plan = s.build()

    needed = [set() for _ in program]  # later ops that must wait, directly or not
    for earlier in reversed(range(len(program))):
        for later in range(earlier + 1, len(program)):
            if writes[later] & (reads[earlier] | writes[earlier]) or reads[later] & writes[earlier]:
                needed[earlier] |= {later} | needed[later]
    assert reachable(plan) == needed


# ---------------------------------------------------------------------------------------------------- control


def test_a_gate_holds_data_ops_back(s):
    a, b = s.buffer(1, "a"), s.buffer(1, "b")
    s.send(a, 0)
    gate = s.trigger("go")
    s.gate(gate)
    s.recv(b, 0)  # waits for the gate
    s.send(b, 2)  # waits for what waits
    s.trigger("other")  # control is never gated
    s.ungate()
    s.send(a, 3)
    assert edges(s.build()) == {(gate, 2), (2, 3)}


def test_a_new_gate_replaces_the_old(s):
    a, b = s.buffer(1, "a"), s.buffer(1, "b")
    s.gate(s.trigger("one"))
    s.send(a, 0)
    s.gate(s.trigger("two"))
    s.send(b, 0)
    assert edges(s.build()) == {(0, 1), (2, 3)}


@pytest.mark.parametrize(("need", "number"), [("all", 3), ("one", 1), (2, 2), (3, 3)])
def test_joins(s, need, number):
    triggers = [s.trigger(name) for name in "abc"]
    op = s.join("go", triggers, need)
    s.signal("told", [op])
    plan = s.build()
    join = plan.ops[op]
    assert (join["kind"], join["name"], join["need"], join["predecessors"]) == ("join", "go", number, 3)
    assert edges(plan) == {(0, 3), (1, 3), (2, 3), (3, 4)}
    assert plan.ops[4]["kind"] == "signal"
    assert ("(2 of 3)" in plan.text()) == (number == 2)


def test_channels_count_per_peer(s):
    a = s.buffer(1, "a")
    for peer in (0, 2, 0):
        s.send(a, peer)
    assert [op["peer"] for op in s.build().ops] == [0, 2, 0]


# ---------------------------------------------------------------------------------------------------- refusals


def refuses(text):
    return pytest.raises(ScheduleError, match=re.escape(text))


def test_a_rank_that_is_none():
    for rank, size in ((4, 4), (-1, 4), (0, 0)):
        with refuses(f"rank {rank} of {size} ranks"):
            core.ScheduleBuilder(rank, size)


@pytest.mark.parametrize("peer", [-1, 4])
def test_a_peer_that_is_none(s, peer):
    s.send(s.buffer(3, "a"), peer)
    with refuses(f"op 0 send>{peer} a[0:3]: peer outside 0..3"):
        s.build()


def test_a_message_to_itself(s):
    s.recv(s.buffer(3, "a"), 1)
    with refuses("op 0 recv<1 a[0:3]: peer is the rank itself"):
        s.build()


def test_a_part_past_the_end(s):
    a = s.buffer(4, "a")
    for offset, count in ((3, 2), (5, 0), (0, 5), (2**63, 2**63)):
        with refuses(f"part of a slice: elements {offset} to"):
            a.part(offset, count)


def test_a_slice_past_the_end_of_its_buffer(s):
    s.buffer(3, "a")
    foreign = core.ScheduleBuilder(1, 4).buffer(5, "of another plan")
    s.send(foreign, 0)
    with refuses("op 0 send>0 a[0:5]: past the end of a buffer of 3"):
        s.build()


def test_a_slice_of_no_buffer(s):
    with refuses("send>0: no such buffer"):
        s.send(core.ScheduleBuilder(1, 4).buffer(5, "of another plan"), 0)


def test_an_empty_slice(s):
    s.send(s.buffer(3, "a").part(1, 0), 0)
    with refuses("op 0 send>0 a[1:1]: empty slice"):
        s.build()


def test_lengths_that_differ(s):
    s.reduce(s.buffer(3, "a"), s.buffer(4, "b"))
    with refuses("op 0 reduce a[0:3] -> b[0:4]: lengths 3 and 4 differ"):
        s.build()


def test_a_reduction_onto_itself(s):
    a = s.buffer(4, "a")
    s.reduce(a.part(0, 2), a.part(1, 2))
    with refuses("op 0 reduce a[0:2] -> a[1:3]: source and target overlap"):
        s.build()


@pytest.mark.parametrize("need", [0, 3])
def test_a_join_of_more_or_fewer_than_there_are(s, need):
    causes = [s.trigger("a"), s.trigger("b")]
    with refuses(f"go: need must be in 1..2, got {need}"):
        s.join("go", causes, need)


def test_a_join_of_nothing(s):
    s.join("go", [])
    with refuses("op 0 go: has no predecessors"):
        s.build()


def test_a_predecessor_named_twice(s):
    a = s.trigger("a")
    with refuses("go: a predecessor is named twice"):
        s.join("go", [a, a])


def test_a_predecessor_that_comes_later(s):
    with refuses("go: no earlier op 0"):
        s.join("go", [0])


def test_a_word_that_is_no_need(s):
    with pytest.raises(ValueError, match=r"need: expected \"all\", \"one\" or a number, got 'some'"):
        s.join("go", [s.trigger("a")], "some")


def test_a_gate_that_is_no_op(s):
    with refuses("gate: no op 0"):
        s.gate(0)


def test_an_op_that_can_never_fire(s):
    op = s.join("go", [s.trigger("a"), s.trigger("b")])
    plan = s.build()
    with refuses("op 2 go: unreachable, needs 3 of 2 predecessors"):
        _testing.with_need(plan, op, 3)
    with refuses("op 2 go: waits for none of its predecessors"):
        _testing.with_need(plan, op, 0)


def test_an_edge_that_is_not_there(s):
    plan = core.plan_allreduce("recursive_doubling", 0, 2, 1)
    with refuses("op 0 copy in[0:1] -> out[0:1]: no edge to op 0"):
        _testing.without_edge(plan, 0, 0)


# ---------------------------------------------------------------------------------------------------- drawings


def test_text():
    assert core.plan_allreduce("recursive_doubling", 0, 2, 5).text() == (
        "rank 0 of 2: 4 ops, 4 edges\n"
        "  op 0 copy in[0:5] -> out[0:5]  => 1 3\n"
        "  op 1 send>1 out[0:5]  => 3\n"
        "  op 2 recv<1 incoming[0:5]  => 3\n"
        "  op 3 reduce incoming[0:5] -> out[0:5]\n"
    )


def test_text_says_how_many_of_a_join():
    plan = core.plan_partial_allreduce("recursive_doubling", 0, 4, 5, "dissemination")
    line = next(line for line in plan.text().splitlines() if " active " in line)
    assert "(1 of 3)" in line


def test_dot_is_drawn_as_in_figure_6_of_eager_sgd():
    """Sends blue, receives green, computation orange, control white; an or-join has a dashed border."""
    plan = core.plan_partial_allreduce("recursive_doubling", 1, 4, 5, "dissemination")
    dot = plan.dot()
    colours = {"send": "lightblue", "recv": "palegreen", "reduce": "orange", "copy": "orange"}
    assert dot.startswith('digraph "rank 1 of 4" {')
    for op in plan.ops:
        line = next(line for line in dot.splitlines() if line.startswith(f"  op{op['id']} ["))
        assert f'label="{op["name"]}"' in line
        assert f"fillcolor={colours.get(op['kind'], 'white')}" in line
        assert ("dashed" in line) == (op["need"] < op["predecessors"])
        assert ("dashed" in line) == (op["name"] == "active")
    assert {(int(a), int(b)) for a, b in re.findall(r"op(\d+) -> op(\d+);", dot)} == edges(plan)
