"""The promises of a partial allreduce (docs/semantics.md), checked on simulated runs.

The oracle knows nothing of the protocol. Call j of rank r contributes 2**j in element r and 0 elsewhere, so the bits of
element r of a result show which calls of rank r are in it. `Case` describes a run. `Outcome` has the results of the
calls, in columns, with one function for each promise.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from pycollectives.support.native import core

NETWORKS = {
    "ideal": {},
    "in any order": {"jitter": 0.5},
    "fast": {"latency": 0.01, "overhead": 0.001, "gap_per_byte": 1e-6},
    "uneven": {"latency": 0.3, "overhead": 0.02, "gap_per_byte": 1e-4, "reduce_per_byte": 1e-4, "jitter": 1.0},
    "slow": {"latency": 5.0, "jitter": 5.0},
}
LOADS = ["together", "ties", "random", "heavy", "linear", "one late", "one early", "alternating"]


@dataclass(frozen=True)
class Case:
    """A run: the collective's arguments, and a script drawn from `script_seed`."""

    size: int
    policy: str
    ranks_per_node: int = 1
    policy_size: int = 1
    seed: int = 0
    grace: float = 0.0
    late: str = "accumulate"
    missed: str = "latest"
    max_staleness: int | None = None
    activation: str = "tree"
    algorithm: str = "recursive_doubling"
    history: int = 8
    pipeline: int = 0
    barrier: bool = False
    delivery_seed: int = 0
    # The script: work before each call, calls of each rank, and how each rank ends.
    network: str = "ideal"
    load: str = "random"
    most_calls: int = 5
    uneven_calls: bool = False
    ending: str = "flush"
    script_seed: int = 0

    @cached_property
    def work(self) -> np.ndarray:
        random = np.random.default_rng(self.script_seed)
        shape = (self.size, self.most_calls)
        ranks = np.arange(self.size)[:, None]
        chosen = random.integers(self.size)
        return {
            "together": lambda: np.zeros(shape),
            "ties": lambda: random.integers(0, 4, shape).astype(float),
            "random": lambda: random.uniform(0, 2, shape),
            "heavy": lambda: random.lognormal(0, 2, shape),
            "linear": lambda: np.broadcast_to(1.0 + ranks, shape),
            "one late": lambda: random.uniform(0.9, 1.1, shape) * np.where(ranks == chosen, 10, 1),
            "one early": lambda: random.uniform(0.9, 1.1, shape) * np.where(ranks == chosen, 0.1, 1),
            "alternating": lambda: np.where((ranks + np.arange(self.most_calls)) % 2 == 0, 3.0, 0.0),
        }[self.load]()

    @cached_property
    def calls(self) -> np.ndarray:
        random = np.random.default_rng(self.script_seed + 1)
        if not self.uneven_calls:
            return np.full(self.size, self.most_calls)
        return random.integers(0, self.most_calls + 1, self.size)

    @cached_property
    def endings(self) -> np.ndarray:
        random = np.random.default_rng(self.script_seed + 2)
        return random.choice(["flush", "close"] if self.ending == "mixed" else [self.ending], self.size)

    def run(self, **more: Any) -> dict[str, Any]:
        script = ("network", "load", "most_calls", "uneven_calls", "ending", "script_seed")
        arguments = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in script}
        return core.simulate(
            **arguments | NETWORKS[self.network] | {"max_events": 2_000_000} | more,
            work=np.ascontiguousarray(self.work),
            calls=self.calls,
            ending=self.endings.tolist(),
        )


def by_rank(told: dict[str, Any]) -> dict[str, np.ndarray]:
    """Return columns with one rank after another, each in the order of its results."""
    order = np.argsort(told["rank"], kind="stable")
    return {name: column[order] for name, column in told.items() if isinstance(column, np.ndarray)}


class Outcome:
    """The results of the calls of a run: one row per call or flush."""

    def __init__(self, case: Case) -> None:
        told = case.run()
        assert told["deadlock"] is None, told["deadlock"]
        self.case = case
        columns = by_rank(told)
        self.rank, self.call, self.round = columns["rank"], columns["call"], columns["round"]
        self.called, self.done = columns["called"], columns["done"]
        self.late, self.included, self.overrun = columns["late"], columns["included"], columns["overrun"]
        self.initiator, self.active, self.contributors = (columns[c] for c in ("initiator", "active", "contributors"))
        self.staleness, self.missed = columns["staleness"], columns["missed"]
        self.result, self.members = columns["result"], columns["members"]

        self.flush = self.call < 0
        self.arrival = ~self.late & ~self.flush
        self.completed = told["rounds"]
        self.rounds = int(self.round.max(initial=-1)) + 1  # that any rank saw

        # The rounds that each row received: those after the newest one that its rank had received.
        self.before = np.full(len(self.rank), -1)
        same = self.rank[1:] == self.rank[:-1]
        self.before[1:][same] = self.round[:-1][same]
        self.new = self.round > self.before

        self.check_every_call_returned()
        self.reconstruct()

    def check_every_call_returned(self) -> None:
        """Promise 6, liveness: every call and every flush has returned."""
        expected = [(r, j) for r in range(self.case.size) for j in range(self.case.calls[r])]
        assert list(zip(self.rank[~self.flush], self.call[~self.flush], strict=True)) == expected
        assert self.rank[self.flush].tolist() == np.flatnonzero(self.case.endings == "flush").tolist()
        assert (self.done >= self.called).all()

    def reconstruct(self) -> None:
        """Find the value of every round, and when each call's data was handed over and delivered."""
        case, n = self.case, self.rounds
        self.value = np.zeros((n, case.size), np.int64)
        alone = self.new & ((self.missed == 0) | (case.missed == "latest"))
        self.value[self.round[alone]] = self.result[alone]
        self.alone = alone
        self.is_flush = np.zeros(n, bool)
        self.is_flush[self.round[self.flush]] = True
        known = np.zeros(n, bool)
        known[self.round[alone]] = True
        for row in np.flatnonzero(self.flush & ~alone)[:1]:  # "sum", and every rank missed rounds before the flush
            at = self.round[row]
            if not known[at]:
                self.value[at] = self.result[row] - self.value[self.before[row] + 1 : at].sum(axis=0)
                known[at] = True
        assert known.all(), f"rounds {np.flatnonzero(~known)} took place and no call waited for them"

        calls = (case.size, max(case.most_calls, 1))
        self.made = np.zeros(calls, bool)
        self.round_of = np.full(calls, -1)
        self.late_of = np.zeros(calls, bool)
        self.included_of = np.zeros(calls, bool)
        of_call = ~self.flush
        where = self.rank[of_call], self.call[of_call]
        self.made[where] = True
        self.round_of[where] = self.round[of_call]
        self.late_of[where] = self.late[of_call]
        self.included_of[where] = self.included[of_call]
        # Rounds that had completed when the data was handed over: exact, except for a late call if one more round
        # completed before it looked.
        self.handed_over_latest = self.round_of + self.late_of
        self.handed_over = self.handed_over_latest.copy()
        looked_later = self.late & (self.round > self.before + 1)
        self.handed_over[self.rank[looked_later], self.call[looked_later]] -= 1
        bits = (self.value[:, :, None] >> np.arange(calls[1])) & 1  # rounds, ranks, calls
        self.delivered = bits.any(axis=0)
        self.delivered_in = np.where(self.delivered, bits.argmax(axis=0) if n else -1, -1)

    def repeated(self, **changed: Any) -> dict[str, np.ndarray]:
        """Return the columns of the same run with other arguments."""
        return by_rank(self.case.run(**changed))

    # ------------------------------------------------------------------------------------------------ promises

    def check(self) -> None:
        self.check_agreement()
        self.check_exactness()
        self.check_conservation()
        self.check_policy()
        self.check_staleness()
        self.check_liveness()
        self.check_order()
        self.check_what_calls_are_told()

    def check_agreement(self) -> None:
        """1: contributors, initiator, fresh contributors and the result's bits are the same on every rank."""
        assert (self.result[self.alone] == self.value[self.round[self.alone]]).all()
        _, rows, which = np.unique(self.round, return_index=True, return_inverse=True)
        first = rows[which]
        for column in (self.members, self.initiator, self.active, self.contributors):
            assert (column == column[first]).all()

    def check_exactness(self) -> None:
        """2: a result is the reduction of exactly the contributions named, each once."""
        assert (self.members == (self.value[self.round] != 0)).all()
        assert (self.contributors == self.members.sum(axis=1)).all()
        everything = (np.int64(1) << self.case.calls) - 1
        assert (self.value & ~everything == 0).all(), "delivered, never contributed"
        assert (np.bitwise_or.reduce(self.value, axis=0) == self.value.sum(axis=0)).all(), "delivered twice"
        if self.case.late != "accumulate":
            assert (self.value & (self.value - 1) == 0).all(), "combined, though late is not 'accumulate'"
        if self.case.missed == "sum":
            upto = np.concatenate([np.zeros((1, self.case.size), np.int64), self.value.cumsum(axis=0)])
            sums = upto[self.round + 1] - upto[self.before + 1]
            assert (self.result == np.where(self.new[:, None], sums, 0)).all()
        else:
            assert (self.result == self.value[self.round]).all()

    def check_conservation(self) -> None:
        """3: all data that was handed over is delivered, to all ranks under "sum"; and 5: in the next round."""
        case = self.case
        waited = (self.delivered_in >= self.handed_over) & (self.delivered_in <= self.handed_over_latest + 1)
        assert waited[self.delivered].all(), "not delivered in the next round"
        newest_so_far = np.maximum.accumulate(self.delivered_in, axis=1)
        assert (self.delivered_in == newest_so_far)[self.delivered].all(), "delivered out of order"

        # After the last round that any rank saw there may be one more, which ends the collective.
        unseen = self.handed_over_latest + 1 >= self.rounds if not self.flush.any() else np.zeros_like(self.made)
        lost = self.made & ~self.delivered & ~unseen
        if case.late == "accumulate":
            assert not lost.any()
        elif case.late == "replace":
            self.check_superseded(lost, self.made)
        else:
            held = case.max_staleness is not None or case.policy == "full"  # data for which a round waits is not late
            assert held or not (self.delivered & ~self.included_of).any(), "missed its round, and not dropped"
            self.check_superseded(lost & self.included_of, self.made & (self.included_of | self.delivered))

        if case.missed == "sum" and case.late == "accumulate":
            total = np.zeros((case.size, case.size), np.int64)
            np.add.at(total, self.rank[self.new], self.result[self.new])
            everything = (np.int64(1) << case.calls) - 1
            assert (total[case.endings == "flush"] == everything).all(), "a running total is wrong"

    def check_superseded(self, lost: np.ndarray, kept: np.ndarray) -> None:
        """Data may be lost only to newer data that came before the round after next had taken any."""
        for rank, call in np.argwhere(lost):
            newer = np.flatnonzero(kept[rank, call + 1 :])
            assert newer.size > 0, f"the newest data of rank {rank}, of call {call}, was lost"
            assert self.handed_over[rank, call + 1 + newer[0]] <= self.handed_over_latest[rank, call] + 1

    def check_policy(self) -> None:
        """4: the ranks that have arrived when a round starts; it never starts without an arrival."""
        case = self.case
        arrived = np.zeros((self.rounds, case.size), bool)
        arrived[self.round[self.arrival], self.rank[self.arrival]] = True
        completed = np.full(self.rounds, np.inf)  # the earliest of all ranks
        np.minimum.at(completed, self.round[self.arrival], self.done[self.arrival])
        leaves = np.zeros(case.size)
        np.maximum.at(leaves, self.rank[~self.flush], self.done[~self.flush])
        present = (self.value != 0) | (leaves <= completed[:, None])

        ordinary = ~self.is_flush
        initiator = np.zeros(self.rounds, np.int64)
        initiator[self.round] = self.initiator
        assert ((initiator >= 0) & (initiator < case.size)).all()
        assert arrived[ordinary, initiator[ordinary]].all(), "started by a rank that had not arrived"
        assert (self.value[ordinary, initiator[ordinary]] != 0).all(), "without its initiator's data"
        least = {"full": case.size, "quorum": case.policy_size, "all_of": case.policy_size}.get(case.policy, 1)
        assert (present.sum(axis=1)[ordinary] >= least).all(), "fewer than the policy asks for"

    def check_staleness(self) -> None:
        """5: no rank lacks fresh data in more than `max_staleness` rounds in a row, until it leaves."""
        limit = 0 if self.case.policy == "full" else self.case.max_staleness
        if limit is None:
            return
        newest = np.full(self.case.size, -1)  # the last round that completed before the rank left
        np.maximum.at(newest, self.rank[~self.flush], self.round[~self.flush])
        lacking = np.zeros(self.case.size, np.int64)
        for number in range(self.rounds):
            lacking = np.where(self.value[number] != 0, 0, lacking + 1)
            assert (lacking[newest >= number] <= limit).all(), f"round {number}"

    def check_liveness(self) -> None:
        """6: a late call never waits; under solo no call waits for another rank's application."""
        case = self.case
        if case.pipeline == 0:
            assert (self.done == self.called)[self.late].all()
        if case.policy == "solo" and case.network == "ideal" and case.max_staleness is None:
            assert (self.done == self.called)[~self.flush].all()

    def check_order(self) -> None:
        """7 and 8: no round is returned twice or skipped without a count, and `overrun` reports too many misses."""
        if self.case.pipeline == 0:
            assert self.new.all()
        else:  # calls made before the first of them was done complete together
            assert (self.round[~self.new] == self.before[~self.new]).all()
            assert not (self.late | self.flush)[~self.new].any()
        assert (self.missed == np.where(self.new, self.round - self.before - 1, 0)).all()
        assert (self.overrun == (self.missed > self.case.history)).all()

    def check_what_calls_are_told(self) -> None:
        """`included`, `staleness` and `active` agree with the results."""
        case = self.case
        mine = self.value[self.round, self.rank]
        newest = np.where(self.flush, case.calls[self.rank] - 1, self.call)
        assert (self.included == ((newest >= 0) & (mine >> np.maximum(newest, 0) != 0))).all()

        oldest = np.where(mine != 0, np.log2(np.maximum(mine & -mine, 1)), 0).astype(int)
        least = np.where(mine != 0, self.round - self.handed_over_latest[self.rank, oldest], 0)
        most = np.where(mine != 0, self.round - self.handed_over[self.rank, oldest], 0)
        assert ((self.staleness >= least) & (self.staleness <= np.minimum(most, 1))).all()

        newest_in = np.frexp(self.value.astype(float))[1] - 1  # rounds, ranks; -1: none
        ranks = np.arange(case.size)
        numbers = np.arange(self.rounds)[:, None]
        arrived_here = (self.round_of[ranks, newest_in] == numbers) & ~self.late_of[ranks, newest_in]
        fresh = ((newest_in >= 0) & arrived_here).sum(axis=1)
        assert (self.active == fresh[self.round]).all()
