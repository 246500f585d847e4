"""Averages with neighbors in a graph: asynchronous in pairs (AD-PSGD), synchronous (D-PSGD), and directed (SGP)."""
