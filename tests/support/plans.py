"""Plans of all ranks, examined and written in Python.

The algorithms here are correct, and take the flaw of a mutant as a keyword (tests/plan/test_mutants.py). They are not
copies of the engine's algorithms: the checker must pass them for its rejections to mean anything.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from pycollectives.support.native import core

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ALGORITHMS = [algorithm["name"] for algorithm in core.algorithms()]
ACTIVATIONS = ["dissemination", "tree"]


# ---------------------------------------------------------------------------------------------------- all ranks


def registered(algorithm: str, size: int, count: int) -> list[core.Schedule]:
    return [core.plan_allreduce(algorithm, rank, size, count) for rank in range(size)]


def partial(algorithm: str, size: int, count: int, activation: str) -> list[core.Schedule]:
    return [core.plan_partial_allreduce(algorithm, rank, size, count, activation) for rank in range(size)]


def staged(algorithm: str, size: int, count: int, piece: int) -> list[core.Schedule]:
    return [core.plan_staged_allreduce(algorithm, rank, size, count, piece) for rank in range(size)]


def asked_to_start(starters: Iterable[int], activation: str) -> list[int]:
    """Return the ranks that fire their trigger: in a tree, a rank that starts asks another one, up to the root."""
    asked = set(starters)
    if activation.startswith("tree"):
        for rank in set(asked):
            while rank > 0:
                rank = (rank - 1) // 16
                asked.add(rank)
    return sorted(asked)


def written(build: Callable[..., Any], size: int, count: int, **flaw: Any) -> list[core.Schedule]:
    """Return the plans of an allreduce build(s, source, into, **flaw)."""
    plans = []
    for rank in range(size):
        s = core.ScheduleBuilder(rank, size)
        build(s, s.buffer(count, "in"), s.buffer(count, "out"), **flaw)
        plans.append(s.build())
    return plans


def edges(plan: core.Schedule) -> set[tuple[int, int]]:
    return {(op["id"], later) for op in plan.ops for later in op["next"]}


def reachable(plan: core.Schedule) -> list[set[int]]:
    """Return, for every op, the ops that wait for it, directly or indirectly."""
    ops = plan.ops
    after: list[set[int]] = [set() for _ in ops]
    for op in reversed(ops):  # edges point forward
        for later in op["next"]:
            after[op["id"]] |= {later} | after[later]
    return after


def messages(plans: list[core.Schedule]) -> dict[tuple[int, int], tuple[int, int]]:
    """Return (sender, send op) -> (receiver, receive op): the n-th send to a peer matches its n-th receive."""
    sends = defaultdict(list)
    receives = defaultdict(list)
    for plan in plans:
        for op in plan.ops:
            if op["kind"] == "send":
                sends[plan.rank, op["peer"]].append((plan.rank, op["id"]))
            elif op["kind"] == "recv":
                receives[op["peer"], plan.rank].append((plan.rank, op["id"]))
    assert {pair: len(ops) for pair, ops in sends.items()} == {pair: len(ops) for pair, ops in receives.items()}
    return {send: receive for pair in sends for send, receive in zip(sends[pair], receives[pair], strict=True)}


def longest_chain(plans: list[core.Schedule]) -> int:
    """Return the most messages that must follow one another: the steps of the algorithm."""
    meets = messages(plans)
    ops = [plan.ops for plan in plans]
    waits = {(r, op["id"]): op["predecessors"] for r, mine in enumerate(ops) for op in mine}
    for receive in meets.values():
        waits[receive] += 1
    steps = dict.fromkeys(waits, 0)
    ready = [which for which, n in waits.items() if n == 0]
    done = 0
    while ready:
        rank, op = ready.pop()
        done += 1
        after = [((rank, later), 0) for later in ops[rank][op]["next"]]
        if (rank, op) in meets:
            after.append((meets[rank, op], 1))
        for later, step in after:
            steps[later] = max(steps[later], steps[rank, op] + step)
            waits[later] -= 1
            if waits[later] == 0:
                ready.append(later)
    assert done == len(waits), "ops that wait for each other"
    return max(steps.values())


def elements_sent(plan: core.Schedule) -> int:
    return sum(op["slices"][0].count for op in plan.ops if op["kind"] == "send")


# ---------------------------------------------------------------------------------------------------- written here


def doubling(s, source, into, *, result_to_extra="last", reduces=1):
    """Recursive doubling; ranks beyond a power of two give their data to rank - core and get the result back."""
    core_size = 1 << (s.size.bit_length() - 1)
    s.copy(source, into)
    if s.rank >= core_size:
        s.send(into, s.rank - core_size)
        s.recv(into, s.rank - core_size)
        return
    incoming = s.buffer(into.count, "incoming")
    extra = s.rank + core_size
    if extra < s.size:
        s.recv(incoming, extra)
        s.reduce(incoming, into)
    if extra < s.size and result_to_extra == "first":
        s.send(into, extra)
    bit = 1
    while bit < core_size:
        s.send(into, s.rank ^ bit)
        s.recv(incoming, s.rank ^ bit)
        for _ in range(reduces):
            s.reduce(incoming, into)
        bit *= 2
    if extra < s.size and result_to_extra == "last":
        s.send(into, extra)


def ring(s, source, into, *, sends=0, reduces=-1, gathers=1, receives=0):
    """Reduce-scatter, then allgather, over equal pieces; `count` is a multiple of the number of ranks."""
    length = into.count // s.size
    right, left = (s.rank + 1) % s.size, (s.rank - 1) % s.size

    def piece(number):
        return into.part((s.rank + number) % s.size * length, length)

    s.copy(source, into)
    incoming = s.buffer(length, "incoming")
    for step in range(s.size - 1):
        s.send(piece(sends - step), right)
        s.recv(incoming, left)
        s.reduce(incoming, piece(reduces - step))
    for step in range(s.size - 1):
        s.send(piece(gathers - step), right)
        s.recv(piece(receives - step), left)


def halving(s, source, into, *, keeps="the other half", shares="what it has"):
    """Recursive halving and doubling on a power of two, over equal parts."""
    length = into.count // s.size
    incoming = s.buffer(into.count, "incoming")
    s.copy(source, into)
    first = 0
    bit = s.size // 2
    while bit >= 1:
        peer = s.rank ^ bit
        upper = bool(s.rank & bit)
        given = into.part((first if upper else first + bit) * length, bit * length)
        first += bit if upper == (keeps == "the other half") else 0
        kept = into.part(first * length, bit * length)
        landing = incoming.part(0, kept.count)
        s.send(given, peer)
        s.recv(landing, peer)
        s.reduce(landing, kept)
        bit //= 2
    bit = 1
    while bit < s.size:
        peer = s.rank ^ bit
        s.send(into if shares == "everything" else into.part(first * length, bit * length), peer)
        s.recv(into if shares == "everything" else into.part((first ^ bit) * length, bit * length), peer)
        first &= ~bit
        bit *= 2


def star(s, source, into, *, copies="first", broadcast="same order"):
    """Every rank sends to rank 0, which reduces and sends the result back in two halves."""
    middle = (into.count + 1) // 2
    halves = [into.part(0, middle), into.part(middle, into.count - middle)]
    if copies == "first":
        s.copy(source, into)
    if s.rank != 0:
        s.send(source, 0)
        for half in halves:
            s.recv(half, 0)
        return
    if copies == "last":
        s.copy(source, into)
    for rank in range(1, s.size):
        incoming = s.buffer(into.count, "incoming")
        s.recv(incoming, rank)
        s.reduce(incoming, into)
    for rank in range(1, s.size):
        for half in halves if broadcast == "same order" else reversed(halves):
            s.send(half, rank)


def solo(size, count, *, hop_without=None, starts_itself=None, held_by="taken", result_after="last"):
    """The plans of a partial allreduce: activation by dissemination, a hold, a reduction at rank 0 and a broadcast.

    hop_without: (rank, distance) of a hop that is not sent; starts_itself: a rank that sends hops before it is active.
    """
    plans = []
    distances = [1 << k for k in range((size - 1).bit_length())]
    for rank in range(size):
        s = core.ScheduleBuilder(rank, size)
        data = s.buffer(count, "data")
        causes = [s.trigger("start")]
        for distance in distances:
            causes.append(s.recv(s.buffer(1, "token"), (rank - distance) % size))
        active = s.join("active", causes, "one")
        token = s.buffer(1, "token")
        if starts_itself != rank:
            s.gate(active)
        for distance in distances:
            if hop_without != (rank, distance):
                s.send(token, (rank + distance) % size)
        s.ungate()
        s.signal("activated", [active])
        release = s.trigger("release")
        taken = s.join("taken", [active, release])
        s.gate({"taken": taken, "active": active}[held_by])
        last = taken
        if rank == 0:
            reduces = []
            for other in range(1, size):
                incoming = s.buffer(count, "incoming")
                s.recv(incoming, other)
                reduces.append(s.reduce(incoming, data))
            for other in range(1, size):
                s.send(data, other)
            if reduces:
                last = reduces[-1 if result_after == "last" else 0]
        else:
            sent = s.send(data, 0)
            received = s.recv(data, 0)
            last = received if result_after == "last" else sent
        s.ungate()
        s.signal("result", [last])
        plans.append(s.build())
    return plans
