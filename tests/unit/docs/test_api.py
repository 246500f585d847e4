"""Each callable on the pages of docs/api explains its parameters, its result and its errors."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

API = Path(__file__).resolve().parents[3] / "docs" / "api"
IN_THE_STUB = "pycollectives.partial_allreduce.collective.Round()"
FEW = 3
"""With this many parameters, a docstring may name them in its text."""


def directives():
    """Yield (kind, name, options) of each directive."""
    directive = r"^\.\. auto(class|function|method):: ([\w.]+(?:\(\))?)\n((?: +:.*\n)*)"
    for page in sorted(API.glob("*.md")):
        yield from re.findall(directive, page.read_text(), re.MULTILINE)


def found(name):
    module, _, last = name.rpartition(".")
    try:
        return getattr(importlib.import_module(module), last)
    except ImportError:
        return getattr(found(module), last)


def shown_methods(cls, options):
    """Yield the functions that Sphinx shows of a class, but those that PyTorch documents."""
    members = re.search(r":members:(.*)", options)
    left_out = re.search(r":exclude-members: (.*)", options)
    left_out = left_out[1].split(", ") if left_out else []
    names = re.findall(r"\w+", members[1]) if members else []
    if members and not names:
        names = dir(cls) if ":inherited-members:" in options else vars(cls)
    for name in names:
        method = inspect.getattr_static(cls, name, None)
        method = getattr(method, "__func__", method)
        of_torch = issubclass(cls, torch.optim.Optimizer) and hasattr(torch.optim.Optimizer, name)
        if inspect.isfunction(method) and not name.startswith("_") and name not in left_out and not of_torch:
            yield f"{cls.__name__}.{name}", method


def callables():
    """Return (callable, whether its first parameter is an object) by name."""
    everything = {}
    for kind, name, options in directives():
        if name == IN_THE_STUB:
            continue
        thing = found(name.removesuffix("()"))
        if kind != "class":
            everything[name] = thing, kind == "method"
            continue
        if not name.endswith("()") and "__init__" in vars(thing) and ":members:" not in options:
            everything[name] = thing, False  # "()" hides the constructor; members may be its parameters
        everything.update({shown: (method, True) for shown, method in shown_methods(thing, options)})
    return everything


def lacks(function, is_method):
    """Return the missing parts of a docstring."""
    text = inspect.getdoc(function) or ""
    if re.match(r"See `[\w.]+`", text):
        return []
    sections = dict(re.findall(r"^(\w+)\n-{3,}\n(.*?)(?=\n\w+\n-{3,}\n|\Z)", text, re.MULTILINE | re.DOTALL))
    signature = inspect.signature(function)
    parameters = list(signature.parameters)[is_method:]
    described = re.findall(r"^[\w*, ]+$", sections.get("Parameters", ""), re.MULTILINE)
    described += re.findall(r"`[^`]*`", text) if len(parameters) <= FEW else []
    missing = sorted(set(parameters) - set(re.findall(r"\w+", " ".join(described))))
    if inspect.isclass(function):
        return missing
    nothing = (None, "None", "Self", "NoReturn", inspect.Signature.empty)
    if signature.return_annotation not in nothing and not re.search(r"\b([Rr]eturns?|Yields?)\b", text):
        missing.append("Returns")
    if "Raises" not in sections:
        missing += sorted(raised(function) - set(re.findall(r"`(\w+)`", text)))
    return missing


def raised(function):
    """Return the names of the exceptions that the text of a function raises."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    calls = [node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)]
    return {call.func.id for call in calls if isinstance(call.func, ast.Name)}


def test_callables_explain_their_parameters_results_and_errors():
    everything = callables()
    assert len(everything) > 200
    missing = {name: lack for name, each in everything.items() if (lack := lacks(*each))}
    assert not missing


def undocumented(rank: int, size: int, name: str) -> int:
    """Find a rank.

    Parameters
    ----------
    rank, size
        One of three.
    """
    if rank > size:
        raise ValueError(name)
    return rank


def explained(rank: int) -> int:
    """Return `rank`; `ValueError` if it is negative."""
    if rank < 0:
        raise ValueError(rank)
    return rank


def test_missing_parts_are_found():
    assert lacks(undocumented, is_method=False) == ["name", "Returns", "ValueError"]
    assert lacks(undocumented, is_method=True) == ["name", "Returns", "ValueError"]
    assert lacks(explained, is_method=False) == []
