"""Measurements of this machine, and the selection table derived from them."""
