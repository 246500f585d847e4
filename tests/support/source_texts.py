"""The texts that the program may print: its string literals, joined as Python and C++ join them."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VALUE = "\0"
"""Stands for a value in a text: no quotation on a page may span it."""


def text_of(node: ast.AST) -> str | None:
    """Return the text of a string or an f-string; None for anything else."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) or VALUE for part in node.values)
    return None


def texts_of_python(path: Path) -> set[str]:
    """Return all strings of a module except docstrings; parts of one expression are one string."""
    found = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return  # a docstring
        if (text := text_of(node)) is not None:
            found.add(text)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(path.read_text(encoding="utf-8")))
    return found


TOKENS = re.compile(
    r"""//[^\n]*|/\*.*?\*/          # a comment
    |'(?:\\.|[^'\\\n])'            # a character, which may be a quotation mark
    |"((?:\\.|[^"\\\n])*)"         # a string
    |\s+|.""",
    re.DOTALL | re.VERBOSE,
)


def texts_of_cpp(source: str) -> set[str]:
    """Return all strings of a file; adjacent literals are one string.

    >>> sorted(texts_of_cpp('f("one " /* 1 */\\n  "text", "two" + x); // "three"'))
    ['one text', 'two']
    """
    found, text = set(), None
    for token in TOKENS.finditer(source):
        if token[1] is not None:
            text = (text or "") + re.sub(r"\\(.)", r"\1", token[1])
        elif token[0].strip() and not token[0].startswith(("//", "/*")):
            found.add(text or "")
            text = None
    return found - {""}


@cache
def source() -> str:
    """Return all texts of the program, one after another."""
    texts = set()
    for path in (ROOT / "pycollectives").rglob("*.py"):
        texts |= texts_of_python(path)
    for pattern in ("*.cc", "*.h"):
        for path in (ROOT / "csrc").rglob(pattern):
            texts |= texts_of_cpp(path.read_text(encoding="utf-8"))
    return VALUE.join(sorted(texts))
