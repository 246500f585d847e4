"""Arrival scripts: when each rank makes each of its calls. Delay is an input of every test of a partial collective.

A script is a function of (rank, size, step) that returns how many units this rank sleeps before call `step`, or None if
it does not make this call.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from reductions import PAIRS

import pycollectives as pc

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from oracle import Case, Recorder

    Script = Callable[[int, int, int], float | None]


def together(rank: int, size: int, step: int) -> float:
    """No rank is late."""
    return 0


def one_late(rank: int, size: int, step: int) -> float:
    """The last rank is late every time."""
    return 4 if rank == size - 1 else 0


def all_late(rank: int, size: int, step: int) -> float:
    """Every rank is later than the previous one (linear skew)."""
    return 1 + rank


def alternating(rank: int, size: int, step: int) -> float:
    """Even ranks are late in even steps, odd ranks in odd steps."""
    return 3 if (rank + step) % 2 == 0 else 0


def rotating(rank: int, size: int, step: int) -> float:
    """A different rank is late in each step."""
    return 4 if step % size == rank else 0


def never_arrives(rank: int, size: int, step: int) -> float | None:
    """Rank 0 makes no call, unless it is the only rank."""
    return None if rank == 0 and size > 1 else 0


def uneven(rank: int, size: int, step: int) -> float | None:
    """Each rank makes fewer calls than the next one."""
    return 0 if step >= 2 * (size - 1 - rank) else None


SCRIPTS: dict[str, Script] = {
    script.__name__: script for script in (together, one_late, all_late, alternating, rotating, never_arrives, uneven)
}


def play(script: Script, recorder: Recorder, case: Case, unit: float = 0.5e-3) -> None:
    """Make one rank's calls as the script says."""
    rank = recorder.log.rank
    for step in range(case.calls):
        units = script(rank, case.size, step)
        if units is None:
            continue
        if units:
            time.sleep(units * unit)
        recorder.call()


# ---------------------------------------------------------------------------------------------------- random play


def random_case(draw: random.Random, size: int, *, calls: int = 10) -> Case:
    """Return random arguments of a collective."""
    from oracle import Case

    op, dtype = draw.choice([("SUM", "int64"), draw.choice(PAIRS)])
    return Case(
        size=size,
        calls=calls,
        policy=random_policy(draw, size),
        op=op,
        dtype=dtype,
        late=draw.choice(["accumulate", "accumulate", "replace", "drop"]),
        missed=draw.choice(["latest", "sum"]) if op in ("SUM", "AVG") else "latest",
        max_staleness=draw.choice([None, None, 0, 1, 3]),
        history=draw.choice([1, 2, 8]),
        activation=draw.choice(["auto", "dissemination", "tree", "tree:3"]),
        algorithm=draw.choice(["auto", "recursive_doubling", "ring", "rabenseifner"]),
        tiles=draw.choice([1, 1, 3, 101]),
    )


def random_policy(draw: random.Random, size: int) -> pc.policies.Policy:
    k, seed = draw.randint(1, size), draw.getrandbits(64)
    grace = draw.choice([0.0, 1e-3, "auto"])
    return draw.choice(
        [
            pc.Solo(),
            pc.Majority(seed),
            pc.Quorum(k, grace),
            pc.policies.AnyOf(k, seed),
            pc.policies.AllOf(k, seed),
            pc.Full(),
        ]
    )


def random_part(draw: random.Random, case: Case, flushes: int) -> list[tuple[str, float]]:
    """Return a rank's actions: calls, delays, unfinished work, with `flushes` flushes between, or an early close."""
    actions: list[tuple[str, float]] = []
    room = case.calls
    closes = draw.random() < 0.2
    kept_flushes = draw.randint(0, flushes) if closes else flushes
    for section in range(kept_flushes + 1):
        most = room if section == kept_flushes else room // 2
        spent = draw.randint(0, most)
        room -= spent
        while spent > 0:
            kind = draw.choice(["call", "call", "post", "twice"])
            if kind == "twice" and spent < 2:
                kind = "call"
            spent -= 2 if kind == "twice" else 1
            actions.append((kind, draw.choice([0, 0, 0, 0.2e-3, 1e-3, 3e-3])))
        if section < kept_flushes:
            actions.append(("flush", 0))
    actions.append(("close" if closes else "flush", 0))
    return actions


def play_actions(actions: list[tuple[str, float]], recorder: Recorder) -> None:
    """Perform the actions that `random_part` returned."""
    for kind, pause in actions:
        if kind == "call":
            time.sleep(pause)
            recorder.call()
        elif kind == "post":  # compute while the round runs
            recorder.contribute()
            time.sleep(pause)
            recorder.wait()
        elif kind == "twice":  # before the wait for the first call, which may not be complete
            recorder.contribute()
            time.sleep(pause)
            recorder.contribute()
            recorder.wait()
        elif kind == "flush":
            recorder.flush()
        else:
            recorder.close()
