"""The board of groups: members that come, copy and go in every order, one step at a time."""

import random
import threading
import time

import pytest
from group_boards import Node, check, drawn_plan

from pycollectives import _testing


@pytest.mark.one_thread
@pytest.mark.parametrize("seed", range(150))
def test_every_order_of_steps_gives_the_same(seed):
    rng = random.Random(seed)
    ranks = rng.choice([2, 3, 4, 5, 8])
    dtype = rng.choice(["float32", "float64", "float16", "int8", "int32", "int64"])
    op = rng.choice(["AVG", "MAX", "MIN"])  # sums would overflow after many groups
    count = rng.choice([0, 1, 63, 64, 65, 1000, 5000])
    node = Node(ranks, count, dtype, op, pieces=rng.choice([1, 1, 2, 3, 7]))
    plan = drawn_plan(rng, ranks, groups=40)
    for group in plan:
        node.plan(*group)
    node.run(rng)
    check(node, plan)


@pytest.mark.one_thread
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("seed", range(20))
def test_weights(seed, dtype):
    rng = random.Random(seed)
    node = Node(4, rng.choice([0, 1, 200]), dtype, weighted=True, pieces=rng.choice([1, 3]))
    plan = drawn_plan(rng, ranks=4, groups=20)
    for group in plan:
        node.plan(*group)
    node.run(rng)
    check(node, plan)


def test_a_slot_is_not_written_before_all_have_copied_from_it():
    """Rank 0, whose slot has the result, is in its next group long before rank 1 looks at the result of the first."""
    node = Node(3, 100, "float64", "SUM")
    node.plan(1, [0, 1, 2])
    node.plan(2, [0, 2])
    for rank in (0, 1, 2, 0, 1, 2, 1):  # all begin and deposit; ranks 1 and 2 reduce
        node.step(rank)
    for _ in range(10):  # rank 0 reduces; 0 and 2 take the result and go on
        node.step(2)
        node.step(0)
    assert node.running[0] is not None
    assert (2, 0) not in node.taken  # waits for rank 1
    for _ in range(10):
        for rank in range(3):
            node.step(rank)
    check(node, [(1, [0, 1, 2], []), (2, [0, 2], [])])


def test_disjoint_groups_do_not_wait_for_each_other():
    node = Node(4, 10, "float32")
    node.plan(1, [0, 1])
    node.plan(2, [2, 3])
    node.step(0)  # its mate never comes
    for _ in range(10):
        node.step(2)
        node.step(3)
    check(node, [(2, [2, 3], [])])
    assert (1, 0) not in node.taken


def test_tickets_must_grow():
    node = Node(2, 1, "float32")
    node.plan(3, [0, 1])
    node.plan(3, [0, 1])
    with pytest.raises(RuntimeError, match="must grow"):
        node.run(random.Random(0))


def asleep(node, rank):
    """A thread that sleeps until `rank` can go on, which it cannot yet; says how long that was."""
    rings = node.boards.rings(rank)
    assert rings is not None
    slept = []

    def sleep():
        begin = time.monotonic()
        node.boards.sleep(rank, rings, 0.9)
        slept.append(time.monotonic() - begin)

    thread = threading.Thread(target=sleep)
    thread.start()
    time.sleep(0.05)
    return thread, slept


@pytest.mark.parametrize("stage", ["deposited", "reduced", "copied"])
def test_the_last_to_come_wakes_those_who_wait_for_it(stage):
    node = Node(3, 10, "float32", "SUM")
    node.plan(1, [0, 1, 2])
    node.plan(2, [0, 1, 2])
    for rank in (0, 1, 2, 0, 1):  # all begin, 0 and 1 deposit
        node.step(rank)
    waiting = [0, 1]
    if stage != "deposited":
        node.step(2)  # deposits and reduces its part
        node.step(0)  # so does 0
        waiting = [0, 2]
    if stage == "copied":
        node.step(1)  # reduces, and has the result
        for _ in range(3):  # 0 has it too, begins its next group, and needs its slot
            node.step(0)
        waiting = [0]
    sleepers = [asleep(node, rank) for rank in waiting]
    node.step({"deposited": 2, "reduced": 1, "copied": 2}[stage])
    for thread, slept in sleepers:
        thread.join()
        assert slept[0] < 0.9
    assert [node.boards.rings(rank) for rank in waiting] == [None] * len(waiting)  # there is something to do


@pytest.mark.parametrize(("ticket", "count"), [(1 << 40, 1), ((1 << 40) - 1, (1 << 22) + 1)])
def test_what_a_word_cannot_hold_is_refused(ticket, count):
    boards = _testing.GroupBoards(ranks=2, slot_bytes=4)
    with pytest.raises(RuntimeError, match="cannot hold"):
        boards.start(0, [0, 1], ticket, None, count=count, dtype="float32", op="SUM")
    boards.start(0, [0, 1], (1 << 40) - 1, None, count=1 << 22, dtype="float32", op="SUM")
