"""Averages with neighbors in a graph: D-PSGD and SGP step by step, AD-PSGD in pairs at any time."""
