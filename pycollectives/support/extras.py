"""How to install the requirements of an optional part of this package, for error messages."""

from __future__ import annotations

import sys
from importlib.util import find_spec

COMMAND_LINE = ("click", "jinja2", "rich", *(("tomli",) if sys.version_info < (3, 11) else ()))
"""The modules of the extra `cli`."""


def how_to_install(extra: str) -> str:
    """Return the commands that install an extra: from an index, and in a checkout.

    >>> how_to_install("torch")
    "pip install 'pycollectives[torch]', or in a checkout: pip install '.[torch]'"
    """
    return f"pip install 'pycollectives[{extra}]', or in a checkout: pip install '.[{extra}]'"


def missing_for_command_line() -> str:
    """Return a line that shows what to install, if the command line lacks a module; otherwise ""."""
    missing = [name for name in COMMAND_LINE if find_spec(name) is None]
    return f"pycollectives: the command line needs {', '.join(missing)}: {how_to_install('cli')}" if missing else ""
