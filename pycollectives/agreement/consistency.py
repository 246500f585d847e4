"""Agreement at creation: arguments that must be the same on all ranks are compared, and every rank learns the outcome.

Each rank says either its arguments or why it refused them. So a mistake on one rank is an error on all of them, no rank
waits for an object that another did not create, and the objects that exist are the same everywhere. What ranks say
alike is compared by a digest; the texts move only where ranks differ.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ..support.errors import MismatchError, StallError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

__all__ = [
    "MAX_REFUSAL",
    "Exchange",
    "Signed",
    "agree",
    "describe_difference",
    "describe_ranks",
    "describe_values",
    "encode",
    "share",
    "shortened",
]

MAX_TEXT = 4096
"""Bytes that the engine compares at most."""

MAX_REFUSAL = 500
"""Characters of a refusal that the other ranks get."""

MAX_GROUPS = 8
"""Different values that a message lists."""

NOT_GIVEN = "not given"
"""The value, in messages, of a name that other ranks have given."""


class Exchange(Protocol):
    """The part of an engine that agreement needs."""

    def compare(self, local: bytes, /, *, what: str, timeout: float | None = None) -> list[bytes] | None:
        """Return None if all ranks pass the same, else every rank's bytes, in the order of ranks."""


class Signed(Protocol):
    """Something that has a signature, which is compared: a call's arguments, or the fingerprint of a buffer."""

    def signature(self) -> Mapping[str, str | int | None]:
        """Return what must be the same on all ranks."""


SignedT = TypeVar("SignedT", bound=Signed)


def agree(engine: Exchange, what: str, make: Callable[[], SignedT], *, timeout: float | None = None) -> SignedT:
    """Make this rank's arguments and return them once they are the same on all ranks; collective.

    Parameters
    ----------
    engine
        Carries the comparison.
    what
        The call, for messages: "partial_allreduce".
    make
        Checks this rank's arguments. What it raises is raised here, after the other ranks got it.
    timeout
        Seconds to wait for the other ranks.

    Raises
    ------
    MismatchError
        Ranks differ, or another rank refused its arguments; names ranks and values.
    StallError
        Some ranks did not make this call in time.
    """
    local, statements = share(engine, what, make, timeout=timeout)
    if any(statement != statements[0] for statement in statements):
        raise MismatchError(f"{what}: arguments differ: {describe_difference(dict(enumerate(statements)))}")
    return local


def share(
    engine: Exchange, what: str, make: Callable[[], SignedT], *, timeout: float | None = None
) -> tuple[SignedT, list[dict[str, Any]]]:
    """Make this rank's arguments; return them and, if ranks differ, every rank's signature in their order; collective.

    Parameters
    ----------
    engine, what, make, timeout
        As for `agree`.

    Raises
    ------
    MismatchError
        Ranks make different calls, or another rank refused its arguments; names them.
    StallError
        Some ranks did not make this call in time.
    """
    try:
        local = make()
        statement = encode({"call": what, **local.signature()})
        if len(statement) > MAX_TEXT:
            raise ValueError(f"{what}: expected arguments of at most {MAX_TEXT} bytes as JSON, got {len(statement)}")
    except Exception as error:
        refusal = f"{type(error).__name__}: {error}"[:MAX_REFUSAL]
        with contextlib.suppress(StallError, MismatchError):  # the caller's own mistake matters more
            engine.compare(encode({"call": what, "refused": refusal}), what=what, timeout=timeout)
        raise
    replies = engine.compare(statement, what=what, timeout=timeout)
    if replies is None:
        return local, []
    decoded = {text: json.loads(text) for text in set(replies)}
    statements = [decoded[text] for text in replies]
    refusals = {rank: one["refused"] for rank, one in enumerate(statements) if "refused" in one}
    if refusals:
        texts = _listed(f"refused on {describe_ranks(ranks)}: {text}" for text, ranks in _grouped(refusals))
        raise MismatchError(f"{what}: {'; '.join(texts)}")
    calls = {rank: one["call"] for rank, one in enumerate(statements)}
    if len(set(calls.values())) > 1:
        raise MismatchError(f"{what}: ranks make different calls: {describe_values(calls)}")
    return local, statements


def encode(statement: Mapping[str, object]) -> bytes:
    """Return a statement as the text that ranks compare; `json.loads` reads it."""
    return json.dumps(statement, ensure_ascii=False).encode(errors="surrogatepass")


def shortened(text: str, longest: int) -> str:
    """Return a text that is to be compared, and of one with more characters the beginning and a hash."""
    if len(text) <= longest:
        return text
    digest = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=6).hexdigest()
    return f"{text[:longest]}... (hash {digest})"


def describe_difference(statements: Mapping[int, Mapping[str, object]]) -> str:
    """Say in which fields statements differ: "count: 10 on ranks 0-2, 12 on rank 3; op: not given on rank 1, ..."."""
    fields = dict.fromkeys(field for statement in statements.values() for field in statement)
    by_field = {
        field: {rank: statement.get(field, NOT_GIVEN) for rank, statement in statements.items()} for field in fields
    }
    return "; ".join(
        f"{field}: {describe_values(values)}" for field, values in by_field.items() if len(_grouped(values)) > 1
    )


def describe_values(by_rank: Mapping[int, Any]) -> str:
    """Say who has what: "10 on ranks 0-2, 12 on rank 3"."""
    return ", ".join(_listed(f"{value} on {describe_ranks(ranks)}" for value, ranks in _grouped(by_rank)))


def _listed(texts: Iterable[str]) -> list[str]:
    """Return the first few, and how many more there are."""
    every = list(texts)
    more = len(every) - MAX_GROUPS
    return every if more <= 0 else [*every[:MAX_GROUPS], f"and {more} more"]


def _grouped(by_rank: Mapping[int, Any]) -> list[tuple[Any, list[int]]]:
    groups: dict[str, tuple[Any, list[int]]] = {}
    for rank, value in by_rank.items():  # a list has no hash
        groups.setdefault(repr(value), (value, []))[1].append(rank)
    return list(groups.values())


def describe_ranks(ranks: Sequence[int]) -> str:
    """Return ascending ranks in words.

    >>> describe_ranks([0, 1, 2, 5])
    'ranks 0-2, 5'
    >>> describe_ranks([3])
    'rank 3'
    """
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    text = ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
    return f"rank{'s' if len(ranks) > 1 else ''} {text}"
