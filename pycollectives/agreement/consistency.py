"""Agreement at creation: ranks compare the arguments that must be the same, and every rank learns the outcome.

Each rank states its arguments, or the reason why it refuses them. A mistake on one rank is therefore an error on all
ranks, no rank waits for an object that another did not create, and existing objects are the same everywhere. Ranks
compare digests, and exchange the texts only if they differ.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ..support.errors import MismatchError, StallError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

MAX_TEXT = 4096
"""Limit of a comparison by the engine, in bytes."""

MAX_REFUSAL = 500
"""Limit of the reason for a refusal that the other ranks receive, in characters."""

MAX_GROUPS = 8
"""Maximum number of different values in a message."""

NOT_GIVEN = "not given"
"""How messages show an argument that only other ranks have passed."""


class Exchange(Protocol):
    """The part of an engine that agreement needs."""

    def compare(self, local: bytes, /, *, what: str, timeout: float | None = None) -> list[bytes] | None:
        """Return None if all ranks pass the same bytes, otherwise every rank's bytes, in the order of ranks."""


class Signed(Protocol):
    """An object with a signature that ranks compare: a call's arguments, or the fingerprint of a buffer."""

    def signature(self) -> Mapping[str, str | int | None]:
        """Return the values that must be the same on all ranks."""


SignedT = TypeVar("SignedT", bound=Signed)


def agree(engine: Exchange, what: str, make: Callable[[], SignedT], *, timeout: float | None = None) -> SignedT:
    """Make this rank's arguments and return them if they are the same on all ranks; collective.

    `what` is the name of the call in messages. If `make` raises an error, `agree` raises it after the other ranks have
    received it. A MismatchError lists the ranks whose arguments differ or are refused, with the values.
    """
    local, statements = share(engine, what, make, timeout=timeout)
    if any(statement != statements[0] for statement in statements):
        raise MismatchError(f"{what}: arguments differ: {describe_difference(dict(enumerate(statements)))}")
    return local


def share(
    engine: Exchange, what: str, make: Callable[[], SignedT], *, timeout: float | None = None
) -> tuple[SignedT, list[dict[str, Any]]]:
    """Make and return this rank's arguments and, if ranks differ, the signatures of all ranks in order; collective.

    Takes the same arguments as `agree`. Raises MismatchError if ranks make different calls, or another rank refused
    its arguments.
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
    """Return the JSON text of a statement, which ranks compare."""
    return json.dumps(statement, ensure_ascii=False).encode(errors="surrogatepass")


def shortened(text: str, longest: int) -> str:
    """Return a text for comparison: a text longer than `longest` characters is cut, with a hash appended."""
    if len(text) <= longest:
        return text
    digest = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=6).hexdigest()
    return f"{text[:longest]}... (hash {digest})"


def describe_difference(statements: Mapping[int, Mapping[str, object]]) -> str:
    """List the fields that differ, such as "count: 10 on ranks 0-2, 12 on rank 3; op: not given on rank 1, ..."."""
    fields = dict.fromkeys(field for statement in statements.values() for field in statement)
    by_field = {
        field: {rank: statement.get(field, NOT_GIVEN) for rank, statement in statements.items()} for field in fields
    }
    return "; ".join(
        f"{field}: {describe_values(values)}" for field, values in by_field.items() if len(_grouped(values)) > 1
    )


def describe_values(by_rank: Mapping[int, Any]) -> str:
    """List the values with their ranks, such as "10 on ranks 0-2, 12 on rank 3"."""
    return ", ".join(_listed(f"{value} on {describe_ranks(ranks)}" for value, ranks in _grouped(by_rank)))


def _listed(texts: Iterable[str]) -> list[str]:
    """Return the first few texts, and the number of texts left out."""
    every = list(texts)
    more = len(every) - MAX_GROUPS
    return every if more <= 0 else [*every[:MAX_GROUPS], f"and {more} more"]


def _grouped(by_rank: Mapping[int, Any]) -> list[tuple[Any, list[int]]]:
    groups: dict[str, tuple[Any, list[int]]] = {}
    for rank, value in by_rank.items():  # a list has no hash
        groups.setdefault(repr(value), (value, []))[1].append(rank)
    return list(groups.values())


def describe_ranks(ranks: Sequence[int]) -> str:
    """Describe a list of ascending ranks in words.

    >>> describe_ranks([0, 1, 2, 5])
    'ranks 0-2, 5'
    >>> describe_ranks([3])
    'rank 3'
    """
    return f"rank{'s' if len(ranks) > 1 else ''} {list_ranks(ranks)}"


def list_ranks(ranks: Sequence[int]) -> str:
    """Return ascending ranks in short form, such as "0, 2-5"."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
