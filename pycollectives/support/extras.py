"""How to install the requirements of an optional part of this package, for error messages."""

from __future__ import annotations


def how_to_install(extra: str) -> str:
    """Return the commands that install an extra: from an index, and in a checkout.

    >>> how_to_install("torch")
    "pip install 'pycollectives[torch]', or in a checkout: pip install '.[torch]'"
    """
    return f"pip install 'pycollectives[{extra}]', or in a checkout: pip install '.[{extra}]'"
