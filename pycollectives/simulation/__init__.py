"""Simulations of collectives and groups in virtual time, and the mathematics of averaging."""
