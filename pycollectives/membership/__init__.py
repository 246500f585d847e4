"""The members of a communicator with `on_failure="continue"`: how they continue after a death, and are replaced."""

from __future__ import annotations

from .change import MembershipChange

__all__ = ["MembershipChange"]
