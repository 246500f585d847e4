"""Hop: decentralized training where ranks differ in speed, with update queues and token queues."""

from __future__ import annotations

from .gaps import gap_bounds

__all__ = ["gap_bounds"]
