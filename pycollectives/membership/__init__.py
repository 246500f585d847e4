"""The members of a communicator with `on_failure="continue"`: how survivors continue, and dead ranks are replaced."""

from __future__ import annotations

from .change import MembershipChange

__all__ = ["MembershipChange"]
