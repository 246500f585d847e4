"""Data sets: one module and one function each, which returns a `Dataset`."""
