"""The error that ends a run of a benchmark."""


class RunError(Exception):
    """The run cannot continue. Every rank raises it with the same text."""
