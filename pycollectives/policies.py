"""Policies: when a round of a partial collective starts.

A policy is an immutable value, the same on all ranks. Limits that depend on the number of ranks are checked when a
collective is made with the policy. docs/semantics.md defines "arrives" and "late".

| policy | a round starts when |
|---|---|
| `Solo()` | the first rank arrives (eager-SGD 4.1) |
| `Majority(seed)` | the rank that a hash of (seed, round) designates arrives (eager-SGD 4.2) |
| `Quorum(k, grace)` | k ranks, by default half of them, have arrived, and up to `grace` more seconds have passed |
| `AnyOf(m, seed)` | any of m designated ranks arrives |
| `AllOf(m, seed)` | all of m designated ranks have arrived |
| `Full()` | all ranks have arrived |
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from .support.validation import Declared, checked_number, hash_seed, integer

__all__ = ["AllOf", "AnyOf", "Full", "Majority", "Policy", "Quorum", "Solo", "as_policy", "parse"]

DEFAULT_SEED = 2020
"""Any fixed number works; it must be the same on all ranks."""
AUTO_GRACE = -1.0
"""`grace="auto"` in the engine."""


@dataclass(frozen=True)
class Policy(Declared):
    """Base class of the policies; not a policy itself.

    Attributes
    ----------
    kind
        The policy's name in the engine.
    """

    kind: ClassVar[str]

    def engine_arguments(self) -> dict[str, Any]:
        """Return the arguments that describe this policy to the engine and the simulator."""
        return {"policy": self.kind, **self._declared()}

    def for_size(self, size: int) -> Policy:
        """Return the policy with its defaults resolved for `size` ranks; raise `ValueError` if it needs more ranks."""
        del size
        return self

    def for_survivors(self, size: int) -> Policy:
        """Return the policy for `size` survivors, which waits for at most that many ranks."""
        del size
        return self

    def waits_for_arrivals(self, size: int) -> bool:
        """Return whether one of `size` ranks can wait even if all ranks have made the same number of calls."""
        return size > 1


def _check_ranks_of(policy: Policy, field: str, size: int) -> None:
    number = getattr(policy, field)
    if number > size:
        alone = "; this program runs as one process: start it with mpirun -n" if size == 1 else ""
        raise ValueError(f"{policy!r}: expected 1 <= {field} <= {size}, the number of ranks, got {number}{alone}")


@dataclass(frozen=True)
class Solo(Policy):
    """Start a round when the first rank arrives.

    No call waits for another rank's application. A round often has a single fresh contributor (eager-SGD 4.1).

    >>> Solo()
    Solo()
    """

    kind: ClassVar[str] = "solo"

    def waits_for_arrivals(self, size: int) -> bool:
        del size
        return False


@dataclass(frozen=True)
class Majority(Policy):
    """Start a round when its designated rank arrives, which all ranks determine without messages.

    A hash of (seed, round) draws the rank uniformly, so that on average half of the ranks are in time (eager-SGD 4.2).
    If the designated rank has left, the next rank of the sequence takes its place.

    Parameters
    ----------
    seed
        0 <= seed < 2**64, the same on all ranks.

    >>> Majority(seed=7)
    Majority(seed=7)
    """

    kind: ClassVar[str] = "majority"
    seed: int = field(default=DEFAULT_SEED, metadata=hash_seed(engine="seed"))


def _checked_grace(kind: str, name: str, value: Any) -> float | str:
    if not isinstance(value, str):
        return checked_number(kind, name, value, "seconds")
    if value != "auto":
        raise ValueError(f"{kind}: expected {name} in seconds or 'auto', got {value!r}")
    return value


@dataclass(frozen=True)
class Quorum(Policy):
    """Start a round when `k` ranks have arrived and up to `grace` more seconds have passed (ours).

    At least `k` ranks are in time in every round. Under `Majority`, half of the ranks are in time on average.

    Parameters
    ----------
    k
        Ranks that must arrive, 1 <= k <= size. None for half of the ranks, rounded up.
    grace
        Seconds, >= 0, that the round waits for further ranks after `k` ranks have arrived. It starts at once when all
        ranks have arrived. "auto" sets the grace to the median plus 3 median absolute deviations (hivemind issue 676)
        of the delays of the last 32 arrivals after the first `k`, late calls included. The grace is at most as long as
        the wait for `k` ranks, so that a round takes at most twice as long as without a grace.

    >>> Quorum(4, grace=0.001)
    Quorum(k=4, grace=0.001)
    >>> Quorum().for_size(7)
    Quorum(k=4, grace=0.0)
    >>> Quorum(grace="auto")
    Quorum(k=None, grace='auto')
    """

    kind: ClassVar[str] = "quorum"
    k: int | None = field(default=None, metadata=integer(at_least=1, optional=True, engine="policy_size"))
    grace: float | Literal["auto"] = field(default=0.0, metadata={"check": _checked_grace})

    def engine_arguments(self) -> dict[str, Any]:
        if self.k is None:
            raise ValueError(f"{self!r}: k depends on the number of ranks: call for_size(size) first")
        return {**super().engine_arguments(), "grace": AUTO_GRACE if self.grace == "auto" else self.grace}

    def for_survivors(self, size: int) -> Quorum:
        return self if self.k is None else replace(self, k=min(self.k, size))

    def for_size(self, size: int) -> Quorum:
        if self.k is None:
            return Quorum((size + 1) // 2, self.grace)
        _check_ranks_of(self, "k", size)
        return self

    def waits_for_arrivals(self, size: int) -> bool:
        k = self.for_size(size).k
        return k is not None and 1 < k < size


@dataclass(frozen=True)
class _OfDesignatedRanks(Policy):
    """Base class of the policies that designate `m` ranks for each round."""

    m: int = field(metadata=integer(at_least=1, engine="policy_size"))
    seed: int = field(default=DEFAULT_SEED, metadata=hash_seed(engine="seed"))

    def for_survivors(self, size: int) -> Policy:
        return replace(self, m=min(self.m, size))

    def for_size(self, size: int) -> Policy:
        _check_ranks_of(self, "m", size)
        return self

    def waits_for_arrivals(self, size: int) -> bool:
        return self.m < size


@dataclass(frozen=True)
class AnyOf(_OfDesignatedRanks):
    """Start a round when the first of `m` designated ranks arrives.

    m = 1 is `Majority`, m = size is `Solo`.

    Parameters
    ----------
    m
        Ranks designated per round, 1 <= m <= size.
    seed
        0 <= seed < 2**64, the same on all ranks.

    >>> AnyOf(2, seed=1)
    AnyOf(m=2, seed=1)
    """

    kind: ClassVar[str] = "any_of"


@dataclass(frozen=True)
class AllOf(_OfDesignatedRanks):
    """Start a round when all of `m` designated ranks have arrived.

    m = 1 is `Majority`, m = size is `Full`.

    Parameters
    ----------
    m
        Ranks designated per round, 1 <= m <= size.
    seed
        0 <= seed < 2**64, the same on all ranks.

    >>> AllOf(2)
    AllOf(m=2, seed=2020)
    """

    kind: ClassVar[str] = "all_of"


@dataclass(frozen=True)
class Full(Policy):
    """Start a round when all ranks have arrived, so that rounds are synchronous, as with `max_staleness=0`.

    >>> Full()
    Full()
    """

    kind: ClassVar[str] = "full"

    def waits_for_arrivals(self, size: int) -> bool:
        del size
        return False  # no call is late


def _grace(text: str) -> float | Literal["auto"]:
    try:
        return "auto" if text == "auto" else float(text)
    except ValueError:
        raise ValueError(f"expected a grace in seconds or 'auto', got {text!r}") from None


def parse(text: str, *, seed: int = DEFAULT_SEED) -> Policy:
    """Return the policy that a string describes, as on a command line.

    Parameters
    ----------
    text
        "solo", "majority", "quorum" (half of the ranks), "quorum:K", "quorum:K:GRACE" (seconds or "auto"), "any-of:M",
        "all-of:M" or "full".
    seed
        Seed of the policies that draw ranks.

    Raises
    ------
    ValueError
        `text` has none of these forms.

    >>> parse("quorum:4:0.001")
    Quorum(k=4, grace=0.001)
    """
    name, *numbers = text.strip().split(":")
    if numbers and not numbers[0].lstrip("+-").isdecimal() and name in ("quorum", "any-of", "all-of"):
        raise ValueError(f"policy {text!r}: expected a number of ranks after {name!r}, got {numbers[0]!r}")
    try:
        match name, numbers:
            case "solo", []:
                return Solo()
            case "majority", []:
                return Majority(seed)
            case "quorum", []:
                return Quorum()
            case "quorum", [k]:
                return Quorum(int(k))
            case "quorum", [k, grace]:
                return Quorum(int(k), _grace(grace))
            case "any-of", [m]:
                return AnyOf(int(m), seed)
            case "all-of", [m]:
                return AllOf(int(m), seed)
            case "full", []:
                return Full()
    except ValueError as error:
        raise ValueError(f"policy {text!r}: {error}") from error
    raise ValueError(
        f"policy {text!r}: expected solo, majority, quorum, quorum:K, quorum:K:GRACE (seconds or auto), any-of:M, "
        "all-of:M or full"
    )


def as_policy(policy: object, *, seed: int = DEFAULT_SEED) -> Policy:
    """Return `policy`, or the policy that a string `policy` describes, with this `seed`.

    Raises
    ------
    TypeError, ValueError
        `policy` is neither a policy nor a string that `parse` accepts.

    >>> as_policy("quorum:2")
    Quorum(k=2, grace=0.0)
    """
    if isinstance(policy, str):
        return parse(policy, seed=seed)
    if not isinstance(policy, Policy) or type(policy) is Policy:
        raise TypeError(f"policy: expected an object such as Solo() or Quorum(4), or its string, got {policy!r}")
    return policy
