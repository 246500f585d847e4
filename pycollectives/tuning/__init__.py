"""Measures this machine and derives a selection table."""
