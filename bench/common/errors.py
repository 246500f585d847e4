"""What ends a run of a benchmark."""


class RunError(Exception):
    """The run cannot go on; every rank raises it, with the same text."""
