"""A change of the members, as callbacks receive it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MembershipChange"]


@dataclass(frozen=True, kw_only=True)
class MembershipChange:
    """A change of a communicator's members; `Communicator.on_change` passes it to callbacks.

    Attributes
    ----------
    epoch
        The number of the change, from 1.
    members
        The ranks that are members now, ascending.
    lost
        The ranks that died in this change, ascending.
    joined
        The ranks that spares or new processes have replaced in this change, ascending.
    """

    epoch: int
    members: tuple[int, ...]
    lost: tuple[int, ...]
    joined: tuple[int, ...]
