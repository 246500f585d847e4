"""Comparisons of arguments between ranks, before an object is made, and of calls, under `PYC_CHECK=1`."""
