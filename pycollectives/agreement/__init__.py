"""Comparisons between ranks: of arguments before an object is made, and of calls under `PYC_CHECK`."""
