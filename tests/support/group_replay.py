"""Replay the effect of a partial reduce on the weights of all ranks: its groups, one after another, in float64."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Log", "replay"]


@dataclass
class Log:
    """The record of one rank."""

    told: dict[tuple[int, tuple[int, ...]], tuple[int, ...]] = field(default_factory=dict)
    """Groups that answered its calls, by number and members: groups of one step of a rule have one number."""
    seen: list[np.ndarray] = field(default_factory=list)
    """Its weights after each call."""
    has_left_weights: bool = True
    """Whether it takes part with its last weights after that; otherwise it is absent."""


def replay(logs: list[Log], update: Callable[[int, int], np.ndarray], start: list[np.ndarray]) -> None:
    """Fail unless each rank saw the averages of the groups that ranks received, in the order of their numbers.

    A rank adds `update(rank, number of its call)` to its weights before a call. A rank that did not receive a group is
    a member because it had left. If all members had left, no rank received the group. A number is then missing, and the
    weights of the ranks that had left are no longer known.
    """
    weights = [np.asarray(each, np.float64) for each in start]
    calls = [0] * len(logs)
    members = {number: group for log in logs for number, group in log.told.items()}
    expected = 0
    for number in sorted(members):
        sequence = number[0]
        if sequence > expected:
            for rank, log in enumerate(logs):
                if calls[rank] == len(log.told):
                    weights[rank] = np.full_like(weights[rank], np.nan)
        expected = sequence + 1
        given = []
        for rank in members[number]:
            log = logs[rank]
            if number in log.told:
                assert log.told[number] == members[number], f"group {number}: rank {rank} was told of another"
                weights[rank] = weights[rank] + update(rank, calls[rank])
            else:
                assert calls[rank] == len(log.told), f"group {number} passed rank {rank} by"
            if number in log.told or log.has_left_weights:
                given.append(weights[rank])
        average = np.mean(given, axis=0)
        if np.isnan(average).any():  # all members have the result that one of them saw
            average = next(logs[rank].seen[calls[rank]] for rank in members[number] if number in logs[rank].told)
        for rank in members[number]:
            weights[rank] = average
            if number in logs[rank].told:
                seen = logs[rank].seen[calls[rank]]
                np.testing.assert_allclose(seen, average, rtol=1e-4, atol=1e-4, err_msg=f"group {number}, rank {rank}")
                calls[rank] += 1
    assert calls == [len(log.told) for log in logs]
