"""The members of a communicator that continues, as a test plays them for one rank."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["played_context"]


def played_context(
    recover: Callable[..., None], *, rank: int, size: int, members: tuple[int, ...] = (), **others: Any
) -> SimpleNamespace:
    """Return a context of `rank`. `recover` is called instead of `Membership.recover`."""
    membership = SimpleNamespace(
        epoch=0,
        is_recovering=False,
        is_joining=False,
        is_installed=True,
        check_installed=lambda: None,
        failed=None,
        recover=recover,
        members=members,
    )
    return SimpleNamespace(
        membership=membership,
        communicator=SimpleNamespace(rank=rank, size=size),
        engine=SimpleNamespace(progress="thread", check_usable=lambda: None),
        timeout=None,
        limit=lambda limit: limit,
        **others,
    )
