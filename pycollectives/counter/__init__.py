"""A number that all ranks add to, and a loop that ends by time or by the work of all ranks together."""

from __future__ import annotations

from .collective import SharedCounter
from .loop import until

__all__ = ["SharedCounter", "until"]
