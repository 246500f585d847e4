"""Ranks compare their arguments before an object is made and, under `PYC_CHECK=1`, their calls."""
